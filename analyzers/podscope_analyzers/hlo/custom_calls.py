"""The kernel that a custom call carries, as text."""

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
_BYTECODE: Final = b"ML\xefR"


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
