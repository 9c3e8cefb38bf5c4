"""Which core of which host is which: the ``core_details`` that TPU planes carry."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from podscope_analyzers.plane_views import OpSpace
from podscope_analyzers.planes import is_sparse_core

DEVICE_PREFIX = "/device:TPU:"
LOCALHOST = "localhost"

_VARINT, _BYTES = 0, 2
# Field numbers of the message.
_DEVICE_ORDINAL, _CORE_ON_CHIP, _LOCAL_CHIP_ID = 2, 3, 4
_GLOBAL_CHIP_ID, _GLOBAL_CORE_ID, _IS_SPARSE_CORE = 5, 6, 7


@dataclass(frozen=True)
class CoreDetails:
    """One core.

    Attributes:
        hostname: Of the host that it belongs to, as its XSpace says.
        device_ordinal: Number of the device on its host.
        local_chip_id: Chip on its host; several cores may share one.
        core_on_chip: Number of the core on its chip.
        global_chip_id: Chip in the whole job; None where the tracer did not say.
        global_core_id: Core in the whole job, likewise.
    """

    hostname: str
    device_ordinal: int = 0
    local_chip_id: int = 0
    is_sparse_core: bool = False
    core_on_chip: int = 0
    global_chip_id: int | None = None
    global_core_id: int | None = None

    @property
    def label(self) -> str:
        """``host:ordinal``, as people see it."""
        return f"{self.hostname}:{self.device_ordinal}"

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "CoreDetails":
        """The core that ``to_state`` described."""
        return cls(
            hostname=str(state["hostname"]),
            device_ordinal=int(state["device_ordinal"]),
            local_chip_id=int(state["local_chip_id"]),
            is_sparse_core=bool(state["is_sparse_core"]),
            core_on_chip=int(state["core_on_chip"]),
            global_chip_id=_optional(state["global_chip_id"]),
            global_core_id=_optional(state["global_core_id"]),
        )


def _optional(number: Any) -> int | None:
    return None if number is None else int(number)


def core_details(space: OpSpace) -> dict[int, CoreDetails]:
    """The cores of a host's TPU planes that say what they are, by plane id.

    The hostname is the XSpace's: the one in the plane may be the container's of another time.
    """
    hostname = space.hostnames[0] if space.hostnames else LOCALHOST
    cores: dict[int, CoreDetails] = {}
    for plane in space.planes:
        encoded = plane.stats.get("core_details")
        if not plane.name.startswith(DEVICE_PREFIX) or not isinstance(encoded, bytes | str):
            continue
        raw = encoded.encode() if isinstance(encoded, str) else encoded
        numbers = _varints(raw)
        cores[plane.id] = CoreDetails(
            hostname=hostname,
            device_ordinal=numbers.get(_DEVICE_ORDINAL, 0),
            local_chip_id=numbers.get(_LOCAL_CHIP_ID, 0),
            is_sparse_core=is_sparse_core(plane.name) or bool(numbers.get(_IS_SPARSE_CORE, 0)),
            core_on_chip=numbers.get(_CORE_ON_CHIP, 0),
            global_chip_id=numbers.get(_GLOBAL_CHIP_ID),
            global_core_id=numbers.get(_GLOBAL_CORE_ID),
        )
    return cores


def _varints(raw: bytes) -> dict[int, int]:
    """The number fields of a small message; what is damaged ends the reading."""
    found: dict[int, int] = {}
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        value, at = _varint(raw, at)
        if tag & 7 == _VARINT:
            found[tag >> 3] = value
        elif tag & 7 == _BYTES:
            at += value
        else:
            break
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(raw):
            break
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at
