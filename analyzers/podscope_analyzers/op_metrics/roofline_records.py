"""Programs and operations against a device's roofline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from podscope_analyzers.op_metrics.database import (
    Access,
    MemoryAccesses,
    MemorySpace,
    OpDatabase,
    safe_divide,
)
from podscope_analyzers.op_metrics.op_description import describe_op
from podscope_analyzers.op_metrics.op_tree import UNKNOWN_PROGRAM
from podscope_analyzers.op_metrics.rates import GIBI, OpRates, Roofline, giga_per_second
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.peaks import (
    CMEM_READ,
    CMEM_WRITE,
    HBM,
    SRAM_READ,
    SRAM_WRITE,
    VMEM_READ,
    VMEM_WRITE,
    PerfEnv,
)
from podscope_analyzers.spread import Spread
from podscope_analyzers.steps.work import (
    CALLERS,
    COSTS,
    MEMORIES,
    NOT_FEEDS,
    StepWork,
    is_feed,
)

_INT64_MAX: Final = (1 << 63) - 1
_IS_BYTES: Final = np.array(
    [name.endswith("bytes_accessed") for name in COSTS] + [True] * len(MEMORIES)
)
_MOST_BYTES: Final = float(1 << 62)

PROGRAM: Final = "Program"
TOTAL: Final = "Total"
AVERAGE: Final = "Average"
MAX_OPS: Final = 1000
"""Operations kept, before those without executions are left out."""

MAX_PROGRAMS: Final = 100
"""Programs with a record of their own."""

ON_CHIP: Final = (
    ("cmem_read", MemorySpace.CMEM, Access.READ),
    ("cmem_write", MemorySpace.CMEM, Access.WRITE),
    ("vmem_read", MemorySpace.VMEM, Access.READ),
    ("vmem_write", MemorySpace.VMEM, Access.WRITE),
)


@dataclass(frozen=True)
class Ceilings:
    """Peak rates: GFLOP/s, and GiB/s by memory, 0 where there is none.

    Attributes:
        bandwidths: By ``hbm`` and the names of ``ON_CHIP``. The local memory of a GPU is its
            ``vmem``.
    """

    flop_rate: float
    bandwidths: dict[str, float]

    @classmethod
    def of(cls, env: PerfEnv, *, is_gpu: bool) -> "Ceilings":
        """Ceilings of a device."""
        memories = {"hbm": HBM}
        if is_gpu:
            memories |= {"vmem_read": SRAM_READ, "vmem_write": SRAM_WRITE}
        elif env.has_cmem:
            memories |= {"cmem_read": CMEM_READ, "cmem_write": CMEM_WRITE}
        elif env.has_merged_vmem:
            memories |= {"vmem_read": VMEM_READ, "vmem_write": VMEM_WRITE}
        names = ("hbm", *(name for name, _, _ in ON_CHIP))
        peaks = {name: env.bandwidth(memories[name]) if name in memories else 0 for name in names}
        return cls(
            env.peak_tera_flops_per_second * 1000,
            {name: peak / GIBI for name, peak in peaks.items()},
        )

    def ridge_point(self, memory: str) -> float:
        """FLOP per byte from which on compute is the limit, not this memory."""
        return safe_divide(self.flop_rate, self.bandwidths[memory] * GIBI)


@dataclass(frozen=True)
class RooflineRecord:
    """A program or an operation.

    Attributes:
        step: ``Total``, ``Average``, or a step's number.
        rank: 0 for a program.
        bandwidths: GiB/s by ``hbm`` and the names of ``ON_CHIP``.
        intensities: FLOP per byte, likewise.
        bottleneck_intensity: That of what bounds it.
        time_us: Of the average step, that of one; avg_time_us the time of one execution.
        time_ratio: Share of the time looked at; self_ratio the same of the self time.
        compute_ratio: Of the peak flop rate; memory_ratio of the memory used most.
        includes_feeds: Whether infeeds and outfeeds count.
        spread: Of an operation's self time over steps.
    """

    step: str
    rank: int
    category: str
    name: str
    occurrences: int
    time_us: float
    avg_time_us: float
    self_time_us: float
    self_ratio: float
    cumulative_ratio: float
    dma_stall_ratio: float
    rates: OpRates
    bandwidths: dict[str, float]
    intensities: dict[str, float]
    bottleneck_intensity: float
    time_ratio: float
    compute_ratio: float
    memory_ratio: float
    includes_feeds: bool
    program_id: str
    framework_name: str
    origin: str
    source_html: str
    spread: Spread | None = None

    @property
    def efficiency(self) -> float:
        """How near the roofline it is."""
        return max(self.compute_ratio, self.memory_ratio)

    @property
    def optimal_flop_rate(self) -> float:
        """GFLOP/s on the roofline at its intensity."""
        return safe_divide(self.rates.flop_rate, self.efficiency)


class RooflineModel:
    """Records of a device's operations.

    Args:
        env: Its peak rates.
        device_type: ``GPU`` or ``TPU`` in it decides which memories count.
        own: Whether our own flops and bytes are taken, or the reference's.
    """

    def __init__(self, env: PerfEnv, device_type: str, *, own: bool) -> None:
        self.env = env
        self._device_type = device_type
        self._own = own
        self.ceilings = Ceilings.of(env, is_gpu="GPU" in device_type)

    def total(self, ops: OpDatabase, *, with_feeds: bool) -> Iterator[RooflineRecord]:
        """The program, then its operations by self time.

        Args:
            ops: Operations of the devices.
            with_feeds: Whether infeeds and outfeeds count.
        """
        yield self.program(ops, TOTAL, with_feeds=with_feeds)
        feeds = _feeds(ops)
        total_ps = ops.total_time_ps
        if not with_feeds:
            total_ps -= int(ops.top("time_ps")[feeds].sum())
        roofline, spreads = self._roofline(ops), ops.spreads()
        rank, cumulative = 0, 0.0
        for row in ops.order_by_self_time()[:MAX_OPS].tolist():
            if not ops.column("occurrences")[row] or (feeds[row] and not with_feeds):
                continue
            rank += 1
            self_ps = int(ops.column("self_time_ps")[row])
            ratio = safe_divide(self_ps / 1e6, total_ps / 1e6)
            cumulative += ratio
            op = describe_op(ops, row)
            record = self._record(
                ops,
                roofline,
                row,
                TOTAL,
                total_ps=total_ps,
                rank=rank,
                ratios=(ratio, cumulative),
                with_feeds=with_feeds,
                texts=(op.program_id, op.framework_name, op.origin, op.source_html),
            )
            yield replace(record, spread=spreads[row])

    def program(self, ops: OpDatabase, step: str, *, with_feeds: bool) -> RooflineRecord:
        """One record of all operations together."""
        return self._of_program(_program(ops, with_feeds=with_feeds), step, with_feeds)

    def programs(
        self, ops: OpDatabase, titles: Mapping[int, str], *, with_feeds: bool
    ) -> Iterator[RooflineRecord]:
        """One record of each program, the longest first: its operations together in their time.

        Args:
            ops: Operations of the devices.
            titles: What programs are called, by unsigned id.
            with_feeds: Whether infeeds and outfeeds count.
        """
        modules, place = np.unique(ops.top("module_id"), return_inverse=True)
        time_ps = np.zeros(len(modules), np.int64)
        np.add.at(time_ps, place, np.where(ops.is_idle[: len(place)], 0, ops.top("self_time_ps")))
        order = np.argsort(-time_ps, kind="stable")[:MAX_PROGRAMS]
        for module in modules[order[time_ps[order] > 0]].tolist():
            one = _program(ops, with_feeds=with_feeds, module_id=module)
            program_id = module % (1 << 64)
            record = self._of_program(one, TOTAL, with_feeds)
            yield replace(
                record,
                name=titles.get(program_id, UNKNOWN_PROGRAM),
                program_id=str(program_id),
                time_ratio=safe_divide(one.total_time_ps, ops.total_time_ps),
            )

    def steps(
        self, work: StepWork, numbers: Sequence[int], *, with_feeds: bool
    ) -> Iterator[RooflineRecord]:
        """The average step, then every step: one record each of all its operations together.

        Args:
            work: Of the steps, shape (s, …).
            numbers: What the steps are called.
            with_feeds: Whether infeeds and outfeeds count.
        """
        together = _step_program(work.total(), with_feeds=with_feeds)
        average = self._of_program(together, AVERAGE, with_feeds)
        # Its rates are of all steps together, its time is that of one; its mean is not divided.
        count = max(len(numbers), 1)
        yield replace(average, time_us=average.time_us / count)
        for at, number in enumerate(numbers):
            one = _step_program(work.take(np.array([at])), with_feeds=with_feeds)
            yield self._of_program(one, str(number), with_feeds)

    def _of_program(self, one: OpDatabase, step: str, with_feeds: bool) -> RooflineRecord:
        return self._record(
            one,
            self._roofline(one),
            0,
            step,
            total_ps=one.total_time_ps,
            with_feeds=with_feeds,
        )

    def _roofline(self, ops: OpDatabase) -> Roofline:
        return Roofline(ops, self.env, self._device_type, own=self._own)

    def _record(
        self,
        ops: OpDatabase,
        roofline: Roofline,
        row: int,
        step: str,
        *,
        total_ps: int,
        with_feeds: bool,
        rank: int = 0,
        ratios: tuple[float, float] = (0.0, 0.0),
        texts: tuple[str, str, str, str] = ("0", "", "", ""),
    ) -> RooflineRecord:
        rates = roofline[row]
        time_ps = int(ops.column("time_ps")[row])
        flops = float(ops.column("own_flops" if self._own else "flops")[row])
        # What the rate was made from, whether of a breakdown or of all bytes.
        sizes = {"hbm": rates.hbm_bandwidth * GIBI * time_ps / 1000}
        sizes |= {name: roofline.bytes(row, space, access) for name, space, access in ON_CHIP}
        bandwidths = {
            name: giga_per_second(size, time_ps) / GIBI for name, size in sizes.items()
        } | {"hbm": rates.hbm_bandwidth}
        intensities = {name: safe_divide(flops, size) for name, size in sizes.items()}
        used = [
            safe_divide(bandwidths[name], peak) for name, peak in self.ceilings.bandwidths.items()
        ]
        return RooflineRecord(
            step=step,
            rank=rank,
            category=ops.text("category", row),
            name=ops.text("name", row),
            occurrences=int(ops.column("occurrences")[row]),
            time_us=time_ps / 1e6,
            avg_time_us=safe_divide(time_ps / 1e6, int(ops.column("occurrences")[row])),
            self_time_us=int(ops.column("self_time_ps")[row]) / 1e6,
            self_ratio=ratios[0],
            cumulative_ratio=ratios[1],
            dma_stall_ratio=safe_divide(int(ops.column("dma_stall_ps")[row]), time_ps),
            rates=rates,
            bandwidths=bandwidths,
            intensities=intensities,
            bottleneck_intensity=_bottleneck(rates, intensities),
            time_ratio=safe_divide(time_ps, total_ps),
            compute_ratio=safe_divide(rates.flop_rate, self.ceilings.flop_rate),
            memory_ratio=max(used),
            includes_feeds=with_feeds,
            program_id=texts[0],
            framework_name=texts[1],
            origin=texts[2],
            source_html=texts[3],
        )


def _bottleneck(rates: OpRates, intensities: dict[str, float]) -> float:
    if rates.bound_by == "Compute":
        return rates.operational_intensity
    if rates.bound_by in ("HBM", "Shm/L1"):
        return intensities["hbm"]
    return intensities.get(rates.bound_by.lower().replace(" ", "_"), 0.0)


def _feeds(ops: OpDatabase) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which top-level rows are infeeds or outfeeds."""
    names = (ops.texts[code] for code in ops.top("category").tolist())
    return np.array([is_feed(name) for name in names], np.bool_)


def _program(ops: OpDatabase, *, with_feeds: bool, module_id: int | None = None) -> OpDatabase:
    """A database of one row: all operations together, in all the time looked at.

    Of one program alone the time is that of its operations.
    """
    feeds = _feeds(ops)
    counted = np.array(
        [ops.texts[code] not in CALLERS for code in ops.top("category").tolist()], np.bool_
    )
    time_ps = ops.total_time_ps
    if module_id is not None:
        is_of_program = ops.top("module_id") == module_id
        counted &= is_of_program
        feeds &= is_of_program
        time_ps = int(ops.top("self_time_ps")[is_of_program].sum())
    if not with_feeds:
        counted &= ~feeds
        time_ps -= int(ops.top("time_ps" if module_id is None else "self_time_ps")[feeds].sum())
    accesses = ops.accesses
    kept = np.flatnonzero(
        np.append(counted, np.zeros(len(ops) - len(counted), np.bool_))[accesses.op]
    )
    summed: dict[tuple[int, int], int] = {}
    rows: Iterable[tuple[int, int, int]] = zip(
        accesses.space[kept].tolist(),
        accesses.access[kept].tolist(),
        accesses.size_bytes[kept].tolist(),
        strict=True,
    )
    for space, access, size in rows:
        summed[space, access] = summed.get((space, access), 0) + size
    work = {
        prefix + name: [ops.top(prefix + name)[counted].sum()]
        for prefix in ("", "own_")
        for name in ("flops", "model_flops", "bytes_accessed")
    }
    return _one_row(work, summed, time_ps)


def _step_program(work: StepWork, *, with_feeds: bool) -> OpDatabase:
    """A database of one row: a step's operations together, in all its time."""
    values = work.values[0].sum(axis=0) if with_feeds else work.values[0, NOT_FEEDS]
    # Sums of sizes that a damaged file claims may be more than a whole number holds.
    values = np.where(_IS_BYTES, np.clip(values, -_MOST_BYTES, _MOST_BYTES), values)
    time_ps = int(work.time_ps[0]) - (0 if with_feeds else int(work.feeds_time_ps[0]))
    moved = {
        memory: int(size)
        for memory, size in zip(MEMORIES, values[len(COSTS) :].tolist(), strict=True)
        if size
    }
    costs = {name: [value] for name, value in zip(COSTS, values.tolist(), strict=False)}
    return _one_row(costs, moved, time_ps)


def _within_int64(value: int) -> int:
    # Sums over the cores of a damaged capture are beyond any number of picoseconds.
    return max(-_INT64_MAX, min(value, _INT64_MAX))


def _one_row(
    work: Mapping[str, Any], moved: Mapping[tuple[int, int], int], time_ps: int
) -> OpDatabase:
    texts = TextTable()
    code = texts.code(PROGRAM)
    time_ps = _within_int64(time_ps)
    return OpDatabase.build(
        {"name": [code], "category": [code], "occurrences": 1, "time_ps": time_ps, **work},
        texts,
        accesses=MemoryAccesses.of(
            [(0, space, access, _within_int64(size)) for (space, access), size in moved.items()]
        ),
        total_time_ps=time_ps,
    )
