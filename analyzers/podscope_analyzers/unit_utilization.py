"""How busy a TPU's units were, from its counters by name.

A counter's name is the path of a hardware register. What it counts stands at its end
(``…UNPRIVILEGED_COUNT_MXU_BUSY_1``), and which die, SparseCore and tile it is of before that; a
tracer may give the end alone. Rates and cycles per instruction: TPU v6e and v7x as the profiler's
counter documentation has them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

_GIB: Final = 1 << 30
_CYCLES: Final = "cycles"
_INSTRUCTIONS: Final = "instructions"
_BYTES: Final = "bytes"
_ICI_BYTES_PER_SECOND: Final = 294_947_368_421.0526
_HBM_BYTES_PER_BEAT: Final = 32
_ICI_BYTES_PER_FLIT: Final = 128
_TILES: Final = 16
_DIE: Final = re.compile(r"_DIE([01])_")
_SPARSE_CORE: Final = re.compile(r"_SC_([01])_(SCS|SCTD|SCTC)(?:_(\d+))?_")
_HBM: Final = re.compile(r"(RD_RESP|WR_REQ)_PS[01]\Z")
_ICI: Final = re.compile(r"(?:\A|_)ICI?_?.*?(RX|TX|READ|WRITE|RD|WR).*FLITS?(?:_\d+)?\Z")
_THROTTLE: Final = "_PWRMGR_TC_THROTTLE_CORE_DEBUG_STATS_"


@dataclass(frozen=True)
class TpuKind:
    """What the formulas need to know of a TPU.

    Attributes:
        is_v7x: Two dies, cycles from the power manager, and other matrix formats.
        xlu_cycles: Of one instruction of the cross-lane units.
    """

    is_v7x: bool
    clock_hz: float
    hbm_bytes_per_second: float
    xlu_cycles: int
    dies: int


KINDS: Final[Mapping[str, TpuKind]] = {
    "TPU v6 Lite": TpuKind(False, 1.75e9, 1525.5 * _GIB, 4, 1),
    "TPU v7x": TpuKind(True, 1.9e9, 3433.0 * _GIB, 1, 2),
}
_MATMUL_CYCLES: Final = {
    "LMR_BF16": 4, "LMR_I8": 2, "LMR_I4": 2, "VREG_BF16": 8, "VREG_F8": 8, "VREG_I8": 8,
    "VREG_I4": 8, "VREG_F32": 4,
}  # fmt: skip
_MATMUL_TYPES_V6E: Final = {
    "MXU BF16": ("LMR_BF16", "VREG_F8", "VREG_BF16", "VREG_F32"),
    "MXU I8": ("LMR_I8", "VREG_I8"),
    "MXU I4": ("LMR_I4", "VREG_I4"),
}
_MATMUL_TYPES_V7X: Final = {
    "MXU BF16": ("LMR_BF16", "VREG_BF16", "VREG_F32"),
    "MXU E4M3 + E5M2": ("VREG_F8",),
}
_THROTTLES: Final = {
    "Clocks Skipped": "CLOCKS_SKIPPED",
    "Ext Throttle Clocks Skipped": "EXT_THROTTLE_CLOCKS_SKIPPED",
    "LDIDT Droop Clocks Skipped": "LDIDT_DROOP_CLOCKS_SKIPPED",
}
_VPU_KINDS: Final = ("FADD", "FMUL", "MISC", "INT", "FMAC")
_SCALAR_SLOTS: Final = {
    "TEC Scalar Issue": "TEC_SCALAR_ISSUE",
    "TEC Scalar Issue: S0 slot": "TEC_S0_INSTRUCTION",
    "TEC Scalar Issue: S1 slot": "TEC_S1_INSTRUCTION",
    "TEC Scalar Issue: Smisc slot": "TEC_SMISC_INSTRUCTION",
}
_VECTOR_SLOTS: Final = ("V0", "V1", "V2", "VLD", "VST", "VEX", "VRES")
_UNSPACED_ON_V6E: Final = ("V0", "VEX", "VRES")
_SEQUENCER_SLOTS: Final = {
    "SCS Scalar Issue": "SCALAR_ISSUE",
    "SCS: S0 Slot": "S0_INSTRUCTION",
    "SCS: S1 Slot": "S1_INSTRUCTION",
    "SCS: Smisc Slot": "SMISC_INSTRUCTION",
}


@dataclass(frozen=True)
class Utilization:
    """One unit of one core in one sample.

    Attributes:
        node: The TensorCore, or the SparseCore.
        peak: The most that was possible in that time; 0 when its cycles were not counted.
    """

    node: int
    name: str
    achieved: float
    peak: float
    unit: str


class _Row(Protocol):
    def __call__(
        self, name: str, achieved: float, times: float = 1, unit: str = _CYCLES
    ) -> Utilization: ...


class UnitCounters:
    """The counters of one sample, found by what their names say.

    Args:
        values: By name; of a name that repeats, the last.
    """

    def __init__(self, values: Mapping[str, int]) -> None:
        self._core: dict[tuple[int, str], int] = {}
        self._throttle: dict[tuple[int, str], int] = {}
        self._sparse: dict[tuple[int, int, str, str], int] = {}
        self._sparse_cycles: dict[tuple[int, int, str], int] = {}
        self._hbm: dict[tuple[int, str], int] = {}
        self._ici: dict[str, int] = {}
        for name, value in values.items():
            self._place(name.upper(), value)

    def _place(self, name: str, value: int) -> None:
        found = _DIE.search(name)
        die = int(found[1]) if found else 0
        if hbm := _HBM.search(name):
            key = (die, "read" if hbm[1] == "RD_RESP" else "write")
            self._hbm[key] = self._hbm.get(key, 0) + value
            return
        if "ICI" in name and (ici := _ICI.search(name)):
            way = "read" if ici[1] in ("RX", "READ", "RD") else "write"
            self._ici[way] = self._ici.get(way, 0) + value
            return
        end = name.rpartition("UNPRIVILEGED_")[2].removeprefix("COUNT_")
        if sparse := _SPARSE_CORE.search(name):
            core, part, tile = int(sparse[1]), sparse[2], sparse[3] or "0"
            if end == "CYCLES":
                if tile == "0":
                    self._sparse_cycles[(die, core, part)] = value
                return
            place = (die, core, part, end)
            self._sparse[place] = self._sparse.get(place, 0) + value
        elif _THROTTLE in name:
            self._throttle[(die, end)] = value
        else:
            self._core[(die, end)] = value

    def _count(self, core: int, *names: str) -> int:
        return sum(self._core.get((core, name), 0) for name in names)

    def utilization(self, kind: TpuKind) -> Iterator[Utilization]:
        """Every unit, TensorCores first, in the order of the reference."""
        for core in range(kind.dies):
            yield from self._tensor_core(kind, core)
            yield from self._bandwidth(kind, core)
        for die in range(kind.dies):
            for core in range(2):
                yield from self._sparse_core(kind, die, core)

    def _tensor_core(self, kind: TpuKind, core: int) -> Iterator[Utilization]:
        cycles = (
            self._throttle.get((core, "CYCLE_COUNT"), 0)
            if kind.is_v7x
            else self._count(core, "CYCLES")
        )
        if not cycles:
            return

        def row(name: str, achieved: float, times: float = 1, unit: str = _CYCLES) -> Utilization:
            return Utilization(core, name, achieved, cycles * times, unit)

        for name, counter in _THROTTLES.items() if kind.is_v7x else ():
            yield row(name, self._throttle.get((core, counter), 0))
        scalar = self._count(core, "SCALAR_ALU_INSTRUCTION_0", "SCALAR_ALU_INSTRUCTION_1")
        yield row("Scalar Unit", scalar, 2, _INSTRUCTIONS)
        slots = range(4)
        vector = self._count(core, *(f"VECTOR_ALU_INSTRUCTION_{i}" for i in slots))
        yield row("Vector ALUs", vector, 4, _INSTRUCTIONS)
        done = (f"VPU_VALU_{what}_OPS_{i}" for what in _VPU_KINDS for i in slots)
        yield row("VPU Utilization", self._count(core, *done), 4, _INSTRUCTIONS)
        yield row("Vmem Stores", self._count(core, "VST_INSTRUCTION"), 1, _INSTRUCTIONS)
        loads = self._count(core, "VLD_INSTRUCTION_0", "VLD_INSTRUCTION_1")
        yield row("Vmem Loads", loads, 2, _INSTRUCTIONS)
        yield from self._busy(core, "MXU", row)
        yield row("MXU0", self._matmul(kind, core, (0,)))
        yield row("MXU1", self._matmul(kind, core, (1,)))
        for name, types in (_MATMUL_TYPES_V7X if kind.is_v7x else _MATMUL_TYPES_V6E).items():
            yield row(name, self._matmul_of(core, (0, 1), types), 2)
        pushes = self._count(core, "MATPUSH_CYCLES_MXU_0", "MATPUSH_CYCLES_MXU_1")
        yield row("MXU matpush", pushes, 2)
        yield from self._busy(core, "XLU", row)
        for unit in (0, 1):
            instructions = self._count(
                core,
                f"PACKED_XLU_{unit}",
                f"ROTATE_PERMUTE_INSTRUCTION_XLU_{unit}",
                f"ROTATE_PERMUTE_SET_INSTRUCTION_XLU_{unit}",
                f"TRANSPOSE_XLU_{unit}",
            )
            peak = cycles // kind.xlu_cycles
            yield Utilization(core, f"XLU{unit}", instructions, peak, _INSTRUCTIONS)

    def _busy(self, core: int, unit: str, row: _Row) -> Iterator[Utilization]:
        none, one, two = (self._count(core, f"{unit}_BUSY_{i}") for i in range(3))
        yield row(f"No {unit} Busy", none)
        yield row(f"1 {unit} Busy", one)
        yield row(f"2 {unit}{'s' if unit == 'XLU' else ''} Busy", two)
        yield row(f"Avg {unit} Busy", 0.5 * one + two)

    def _matmul(self, kind: TpuKind, core: int, units: tuple[int, ...]) -> int:
        groups = _MATMUL_TYPES_V7X if kind.is_v7x else _MATMUL_TYPES_V6E
        return sum(self._matmul_of(core, units, types) for types in groups.values())

    def _matmul_of(self, core: int, units: tuple[int, ...], types: tuple[str, ...]) -> int:
        return sum(
            _MATMUL_CYCLES[one] * self._count(core, f"MATMUL_{one}_MXU_{unit}")
            for one in types
            for unit in units
        )

    def _bandwidth(self, kind: TpuKind, core: int) -> Iterator[Utilization]:
        cycles = self._count(core, "CYCLES")
        if not cycles:
            return
        read, written = (self._hbm.get((core, way), 0) for way in ("read", "write"))
        total = read + written
        peak = kind.hbm_bytes_per_second * (cycles / kind.clock_hz)
        moved = total * _HBM_BYTES_PER_BEAT
        yield Utilization(0, f"HBM Rd+Wr - core {core}", moved, peak, _BYTES)
        if total:
            yield Utilization(core, "HBM Read Ratio", 100 * read / total, 100, "percent")
            yield Utilization(core, "HBM Write Ratio", 100 * written / total, 100, "percent")
        links = _ICI_BYTES_PER_SECOND * (cycles / 1e9)
        for name, way in (("ICI (Read)", "read"), ("ICI (Write)", "write")):
            sent = self._ici.get(way, 0) * _ICI_BYTES_PER_FLIT
            yield Utilization(0, name, sent, links, _BYTES)

    def _sparse_core(self, kind: TpuKind, die: int, core: int) -> Iterator[Utilization]:
        node = 2 * die + core
        tiles = self._sparse_cycles.get((die, core, "SCTD"), 0) * _TILES

        def count(part: str, name: str) -> int:
            return self._sparse.get((die, core, part, name), 0)

        for name, counter in _SCALAR_SLOTS.items():
            yield Utilization(node, name, count("SCTD", counter), tiles, _INSTRUCTIONS)
        issued = count("SCTC", "VECTOR_ISSUE")
        yield Utilization(node, "SC Vector Issue", issued, tiles, _INSTRUCTIONS)
        for slot in _VECTOR_SLOTS:
            space = "" if not kind.is_v7x and slot in _UNSPACED_ON_V6E else " "
            name = f"SC Vector Issue:{space}{slot} Slot"
            done = count("SCTC", f"{slot}_INSTRUCTION")
            yield Utilization(node, name, done, tiles, _INSTRUCTIONS)
        cycles = self._sparse_cycles.get((die, core, "SCS"), 0)
        for name, counter in _SEQUENCER_SLOTS.items():
            yield Utilization(node, name, count("SCS", counter), cycles, _INSTRUCTIONS)
