"""Rates of operations and what bounds them."""

from dataclasses import dataclass
from typing import Final

from podscope_analyzers.op_metrics.database import Access, MemorySpace, OpDatabase, safe_divide
from podscope_analyzers.peaks import (
    CMEM_READ,
    CMEM_WRITE,
    HBM,
    SRAM_WRITE,
    VMEM_READ,
    VMEM_WRITE,
    PerfEnv,
)

GIBI: Final = 1.073741824
"""Gigabytes per gibibyte."""

UNKNOWN_BOUND: Final = "Unknown"


def giga_per_second(amount: float, time_ps: int) -> float:
    """Units of 1e9 per second from an amount and picoseconds; 0 without time."""
    return safe_divide(amount, time_ps / 1000)


@dataclass(frozen=True)
class OpRates:
    """Rates of one operation.

    Attributes:
        flop_rate: GFLOP/s.
        model_flop_rate: GFLOP/s by the flops of the program's text.
        memory_bandwidth: GiB/s.
        hbm_bandwidth: GiB/s of the device's main memory.
        operational_intensity: FLOP per byte.
        bound_by: What the operation uses most of: Compute, HBM, …; Unknown without rates.
    """

    flop_rate: float
    model_flop_rate: float
    memory_bandwidth: float
    hbm_bandwidth: float
    operational_intensity: float
    bound_by: str


def bytes_by_memory(database: OpDatabase) -> dict[tuple[int, int, int], int]:
    """Bytes by row, memory and kind of access, of the rows that have a breakdown."""
    accesses = database.accesses
    found: dict[tuple[int, int, int], int] = {}
    for row, space, access, size in zip(
        accesses.op.tolist(),
        accesses.space.tolist(),
        accesses.access.tolist(),
        accesses.size_bytes.tolist(),
        strict=True,
    ):
        key = row, space, access
        found[key] = found.get(key, 0) + size
    return found


class Roofline:
    """Rates of a database's operations against a device's peaks.

    Args:
        device_type: ``GPU`` or ``TPU`` in it decides which memories count.
        own: Whether our own flops and bytes are taken, or the reference's.
    """

    def __init__(
        self, database: OpDatabase, perf_env: PerfEnv, device_type: str, *, own: bool = False
    ) -> None:
        self._perf_env = perf_env
        self._is_gpu = "GPU" in device_type
        self._is_tpu = "TPU" in device_type and not self._is_gpu
        prefix = "own_" if own else ""
        self._flops = database.column(prefix + "flops").tolist()
        self._model_flops = database.column(prefix + "model_flops").tolist()
        self._bytes = database.column(prefix + "bytes_accessed").tolist()
        self._time = database.column("time_ps").tolist()
        self._by_memory = bytes_by_memory(database)
        self._with_breakdown = frozenset(row for row, _, _ in self._by_memory)

    def __getitem__(self, row: int) -> OpRates:
        time_ps = self._time[row]
        flop_rate = giga_per_second(self._flops[row], time_ps)
        hbm_bandwidth = giga_per_second(self._hbm_bytes(row), time_ps) / GIBI
        return OpRates(
            flop_rate=flop_rate,
            model_flop_rate=giga_per_second(self._model_flops[row], time_ps),
            memory_bandwidth=giga_per_second(self._bytes[row], time_ps) / GIBI,
            hbm_bandwidth=hbm_bandwidth,
            operational_intensity=safe_divide(self._flops[row], self._bytes[row]),
            bound_by=self._bound_by(row, flop_rate, hbm_bandwidth),
        )

    def bytes(self, row: int, space: MemorySpace, access: Access) -> int:
        """Bytes of one memory and kind of access."""
        return self._by_memory.get((row, space, access), 0)

    def _hbm_bytes(self, row: int) -> int:
        if row not in self._with_breakdown:
            return int(self._bytes[row])
        return sum(self.bytes(row, MemorySpace.HBM, access) for access in Access)

    def _bound_by(self, row: int, flop_rate: float, hbm_bandwidth: float) -> str:
        env = self._perf_env
        candidates = [
            ("Compute", safe_divide(flop_rate, env.peak_tera_flops_per_second * 1000)),
            ("HBM", safe_divide(hbm_bandwidth, env.bandwidth(HBM) / GIBI)),
        ]
        if self._is_tpu:
            for name, memory, space, access in _ON_CHIP:
                peak, size = env.bandwidth(memory), self.bytes(row, space, access)
                if size and peak:
                    bandwidth = giga_per_second(size, self._time[row]) / GIBI
                    candidates.append((name, bandwidth / (peak / GIBI)))
        if self._is_gpu:
            candidates.append(
                ("Shm/L1", safe_divide(hbm_bandwidth, env.bandwidth(SRAM_WRITE) / GIBI))
            )
        bound, highest = UNKNOWN_BOUND, 0.0
        for name, utilisation in candidates:
            if utilisation > highest:
                bound, highest = name, utilisation
        return bound


_ON_CHIP: Final = (
    ("CMEM Read", CMEM_READ, MemorySpace.CMEM, Access.READ),
    ("CMEM Write", CMEM_WRITE, MemorySpace.CMEM, Access.WRITE),
    ("VMEM Read", VMEM_READ, MemorySpace.VMEM, Access.READ),
    ("VMEM Write", VMEM_WRITE, MemorySpace.VMEM, Access.WRITE),
)
