"""The kernel that a custom call carries, as text, and what its author says that it costs."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final

from podscope_analyzers.errors import ParameterError
from podscope_protos.v1 import hlo_pb2

# XLA's TPU compiler keeps a kernel's module here: of Pallas in MLIR's bytecode or as text.
_CONFIG: Final = "custom_call_config"
_BODY: Final = "body"
_ESTIMATE: Final = "cost_estimate"
_INT64: Final = 1 << 63
_DIGITS: Final = 20
_BYTECODE: Final = b"ML\xefR"


def stated_cost(proto: hlo_pb2.HloInstructionProto) -> tuple[int, int]:
    """Flops and bytes of one run by the kernel's author (Pallas: ``cost_estimate``); 0 unsaid."""
    if proto.opcode != "custom-call" or _ESTIMATE.encode() not in proto.backend_config:
        return 0, 0
    try:
        told = json.loads(proto.backend_config)
    except (ValueError, RecursionError):
        return 0, 0
    for place in (told, *told.values()) if isinstance(told, dict) else ():
        estimate = place.get(_ESTIMATE) if isinstance(place, dict) else None
        if isinstance(estimate, dict):
            return _amount(estimate.get("flops")), _amount(estimate.get("bytes_accessed"))
    return 0, 0


def _amount(told: object) -> int:
    """A number of protobuf's JSON, which writes long ones as texts; 0 for anything else."""
    if isinstance(told, str) and told.isascii() and told.isdigit() and len(told) < _DIGITS:
        told = int(told)
    if not isinstance(told, int | float) or isinstance(told, bool):
        return 0
    return int(told) if 0 <= told < _INT64 else 0


def custom_call_text(proto: hlo_pb2.HloInstructionProto) -> str:
    """What a custom call's backend config says, and the kernel in it as far as it is text.

    Raises:
        ParameterError: the instruction is no custom call, or carries nothing.
    """
    if proto.opcode != "custom-call":
        msg = f"{proto.name} is a {proto.opcode}; type custom_call is for custom calls"
        raise ParameterError(msg)
    raw = proto.backend_config
    if not raw:
        msg = f"{proto.name} carries no kernel: it calls {proto.custom_call_target or 'nothing'}"
        raise ParameterError(msg)
    text = raw.decode(errors="replace")
    try:
        config = json.loads(text)
    except ValueError:
        return text
    if not isinstance(config, dict):
        return text
    body = _body(config)
    shown = json.dumps(config, indent=2, ensure_ascii=False)
    return f"{shown}\n" if body is None else f"{shown}\n\n{body}\n"


def _body(config: Mapping[str, Any]) -> str | None:
    """The kernel as text, which is taken out of the config."""
    inner = config.get(_CONFIG)
    if not isinstance(inner, dict) or not isinstance(inner.get(_BODY), str):
        return None
    packed = inner.pop(_BODY)
    try:
        body = base64.b64decode(packed, validate=True)
    except (binascii.Error, ValueError):
        return str(packed)
    if not body.startswith(_BYTECODE):
        return body.decode(errors="replace")
    # Only MLIR itself prints its bytecode; its strings name what the kernel is made of.
    names = (part.decode() for part in body.split(b"\0") if _is_name(part))
    return f"// MLIR bytecode of {len(body)} bytes; its names:\n" + "\n".join(names)


def _is_name(part: bytes) -> bool:
    return len(part) > 1 and part.isascii() and part.decode("ascii", "replace").isprintable()
