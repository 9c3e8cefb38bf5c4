"""TPU chips of this host, from its PCI devices; libtpu is never asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_GOOGLE: Final = 0x1AE0
_GIB: Final = 2**30


@dataclass(frozen=True)
class TpuKind:
    """A generation of TPUs.

    Attributes:
        devices_per_chip: What libtpu counts as a device; two cores of older chips are two.
        memory_bytes: HBM of one device.
    """

    name: str
    devices_per_chip: int
    memory_bytes: int


_V2_V3: Final = 0x0027
_SUBSYSTEMS: Final = {
    0x004E: TpuKind("TPU v2", 2, 8 * _GIB),
    0x004F: TpuKind("TPU v3", 2, 16 * _GIB),
}
_KINDS: Final = {
    0x005E: TpuKind("TPU v4", 1, 32 * _GIB),
    0x0063: TpuKind("TPU v5e", 1, 16 * _GIB),
    0x0062: TpuKind("TPU v5p", 1, 95 * _GIB),
    0x006F: TpuKind("TPU v6e", 1, 32 * _GIB),
    0x0076: TpuKind("TPU 7x", 2, 192 * _GIB // 2),
}


def tpu_chips(sys: Path = Path("/sys")) -> tuple[TpuKind, ...]:
    """The kinds of the host's TPU chips, one entry per chip; empty when it has none."""
    found = []
    try:
        devices = sorted((sys / "bus/pci/devices").iterdir())
    except OSError:
        return ()
    for device in devices:
        if _number(device / "vendor") != _GOOGLE:
            continue
        number = _number(device / "device")
        if number == _V2_V3:
            kind = _SUBSYSTEMS.get(_number(device / "subsystem_device"))
        else:
            kind = _KINDS.get(number)
        if kind is not None:
            found.append(kind)
    return tuple(found)


def _number(file: Path) -> int:
    try:
        return int(file.read_text().strip(), 16)
    except (OSError, ValueError):
        return -1
