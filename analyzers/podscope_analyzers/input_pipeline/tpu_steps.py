"""Steps of TPU hosts: of all cores of a step, the one that waits longest decides."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from podscope_analyzers.core_details import CoreDetails
from podscope_analyzers.input_pipeline.bottleneck import (
    NO_STEP_TIME,
    Bottleneck,
    InputClass,
    classify_input,
    classify_output,
)
from podscope_analyzers.input_pipeline.generic_steps import longest_core_ms
from podscope_analyzers.input_pipeline.summaries import Int64s, StepSummary, summarize
from podscope_analyzers.steps import StepDatabase

IDLE_WORTH_NAMING = 3.0
ALL_REDUCE_WORTH_NAMING = 6.0

_HOST_TRANSFERS = ("host send", "host send-done", "host recv", "host recv-done")
_NOT_ACTIVE = (
    "IDLE",
    "infeed",
    "outfeed",
    *_HOST_TRANSFERS,
    "megacore fusion",
    "async-done",
    "sparsecorev0 infeed",
    "sparsecorev0 infeed wait",
    "sparsecorev0 infeed transform",
)
_NOTHING = StepSummary()


@dataclass(frozen=True)
class TpuStep:
    """One step over all its cores, in milliseconds.

    Attributes:
        infeed_core: Name of the core that waited longest for input; empty when unknown.
        all_reduce_compute_ms: Of the core with the longest all-reduces, what each takes at least.
        all_reduce_sync_ms: The rest of that core's all-reduces: waiting for other cores.
        infeed_percents: Share of the step that waits for input: mean, smallest, largest core.
        active_ms: Mean over the TensorCores of the time that computes.
    """

    number: int
    tc_compute_ms: float = 0.0
    tc_infeed_ms: float = 0.0
    tc_outfeed_ms: float = 0.0
    tc_idle_ms: float = 0.0
    scv0_compute_ms: float = 0.0
    scv0_infeed_ms: float = 0.0
    host_transfer_ms: float = 0.0
    all_reduce_compute_ms: float = 0.0
    all_reduce_sync_ms: float = 0.0
    infeed_core: str = ""
    infeed_percents: StepSummary = _NOTHING
    active_ms: float | None = None
    sc_compute_ms: float = 0.0
    sc_idle_ms: float = 0.0
    sc_step_ms: float = 0.0

    @property
    def sc_active_ms(self) -> float:
        """How long a SparseCore was not idle: mean of them, as the two that it comes from."""
        return self.sc_step_ms - self.sc_idle_ms

    @property
    def infeed_ms(self) -> float:
        """Waiting for input, on either kind of core."""
        return self.tc_infeed_ms + self.scv0_infeed_ms

    @property
    def all_reduce_ms(self) -> float:
        """All-reduces of the core where they take longest."""
        return self.all_reduce_compute_ms + self.all_reduce_sync_ms

    @property
    def step_ms(self) -> float:
        """The step put together from its parts; not its duration, all-reduces come on top."""
        return (
            self.tc_compute_ms
            + self.scv0_compute_ms
            + self.infeed_ms
            + self.all_reduce_ms
            + self.tc_outfeed_ms
            + self.tc_idle_ms
        )


@dataclass(frozen=True)
class TpuSteps:
    """All steps of TPU hosts.

    Attributes:
        step_time: Summary of the longest TensorCore of every step, milliseconds.
        has_sparse_core: Whether any core is a SparseCore.
    """

    steps: tuple[TpuStep, ...]
    step_time: StepSummary
    has_sparse_core: bool

    def __len__(self) -> int:
        """How many steps."""
        return len(self.steps)

    def summary(self, name: str) -> StepSummary:
        """Over the steps, one of their times by attribute name."""
        return summarize([getattr(step, name) for step in self.steps])

    @property
    def tc_active_ms(self) -> float:
        """Mean over the steps of the time in which a TensorCore computes."""
        active = [step.active_ms for step in self.steps if step.active_ms is not None]
        return summarize(active).average

    @property
    def active_step_ms(self) -> float:
        """The longer of the TensorCores' and the SparseCores' mean active time."""
        return max(self.tc_active_ms, self.summary("sc_active_ms").average)

    def bottleneck(self) -> "TpuBottleneck":
        """What bounds the steps."""
        return _bottleneck(self.steps)


@dataclass(frozen=True)
class TpuBottleneck:
    """Classes and sentences about steps of TPUs."""

    input_classification: InputClass
    input_statement: str
    output_statement: str = ""
    idle: str = "no"
    idle_statement: str = ""
    all_reduce: str = "no"
    all_reduce_statement: str = ""

    def as_generic(self) -> Bottleneck:
        """The part that the overview shows of any kind of device."""
        return Bottleneck(
            self.input_classification,
            self.input_statement,
            self.output_statement,
            all_other="high" if self.idle == "yes" else "no",
            all_other_statement=self.idle_statement,
            collectives="high" if self.all_reduce == "yes" else "no",
            collectives_statement=self.all_reduce_statement,
        )


def tpu_steps(steps: StepDatabase, cores: Mapping[int, CoreDetails]) -> TpuSteps:
    """The steps of TPU hosts.

    Args:
        steps: Of one host or of several.
        cores: What is known of the cores, by core id.
    """
    columns = _CoreColumns(steps)
    offsets = steps.row_offsets.tolist()
    found = tuple(
        columns.step(index, np.arange(offsets[index], offsets[index + 1]), cores)
        for index in range(len(steps))
    )
    return TpuSteps(
        steps=found,
        step_time=summarize(longest_core_ms(steps)),
        has_sparse_core=any(core.is_sparse_core for core in cores.values())
        or bool(steps.is_sparse_core.any()),
    )


class _CoreColumns:
    """The breakdown of every row in the terms of this page, picoseconds."""

    def __init__(self, steps: StepDatabase) -> None:
        self.steps = steps
        duration = steps.duration_ps
        # What the IDLE category says and what is left of the step need not be the same.
        busy = steps.breakdown_ps.sum(axis=1) - steps.time_ps("IDLE")
        self.duration = duration
        self.idle = duration - busy
        self.infeed = steps.time_ps("infeed")
        self.outfeed = steps.time_ps("outfeed")
        self.transfer = steps.time_ps(*_HOST_TRANSFERS)
        sc_infeed = steps.time_ps("sparsecorev0 infeed")
        transformed = np.minimum(sc_infeed, steps.time_ps("sparsecorev0 outfeed"))
        self.scv0_wait = np.where(
            sc_infeed > 0, sc_infeed - transformed, steps.time_ps("sparsecorev0 infeed wait")
        )
        # Operations that overlap each other take longer than the step; no core does.
        off_duty = self.infeed + self.outfeed + self.transfer + self.idle + self.scv0_wait
        self.optimal = np.minimum(duration - off_duty, duration)
        categories = [c for c in steps.categories if c not in _NOT_ACTIVE]
        self.active = np.minimum(steps.time_ps(*categories), duration)
        self.sc_idle = steps.time_ps("IDLE")
        self.all_reduce_compute, self.all_reduce_sync = _all_reduces(steps)

    def step(self, index: int, rows: Int64s, cores: Mapping[int, CoreDetails]) -> TpuStep:
        steps = self.steps
        number = int(steps.step_numbers[index])
        is_sparse = steps.is_sparse_core[rows]
        tensor, sparse = rows[~is_sparse], rows[is_sparse]
        return self._with_sparse(self._with_tensor(TpuStep(number), tensor, cores), sparse)

    def _with_sparse(self, step: TpuStep, rows: Int64s) -> TpuStep:
        if not len(rows):
            return step
        return replace(
            step,
            sc_compute_ms=float((self.duration - self.sc_idle)[rows].min()) / 1e9,
            sc_idle_ms=float(self.sc_idle[rows].mean()) / 1e9,
            sc_step_ms=float(self.duration[rows].mean()) / 1e9,
        )

    def _with_tensor(
        self, step: TpuStep, rows: Int64s, cores: Mapping[int, CoreDetails]
    ) -> TpuStep:
        if not len(rows):
            return step
        infeed = self.infeed[rows]
        longest_infeed = int(np.argmax(infeed))
        all_reduce = self.all_reduce_compute[rows] + self.all_reduce_sync[rows]
        reducing = rows[int(np.argmax(all_reduce))]
        durations = self.duration[rows]
        shares = np.divide(100 * infeed, durations, out=np.zeros(len(rows)), where=durations != 0)
        compute = int(self.optimal[rows].min()) / 1e9
        waiting = int(infeed[longest_infeed]) / 1e9
        # The reference keeps the mean in whole picoseconds.
        outfeed = int(self.outfeed[rows].mean()) / 1e9
        scv0 = int(self.scv0_wait[rows].max()) / 1e9
        rest = compute + scv0 + waiting + outfeed
        # Where none waits, none waits longest.
        core = cores.get(int(self.steps.core_id[rows[longest_infeed]])) if waiting else None
        return replace(
            step,
            tc_compute_ms=compute,
            tc_infeed_ms=waiting,
            tc_outfeed_ms=outfeed,
            scv0_compute_ms=scv0,
            host_transfer_ms=int(self.transfer[rows].max()) / 1e9,
            tc_idle_ms=max(0.0, int(durations.min()) / 1e9 - rest),
            all_reduce_compute_ms=int(self.all_reduce_compute[reducing]) / 1e9,
            all_reduce_sync_ms=int(self.all_reduce_sync[reducing]) / 1e9,
            infeed_core=core.label if core is not None else "",
            infeed_percents=summarize(shares),
            active_ms=float(self.active[rows].mean()) / 1e9,
        )


def _all_reduces(steps: StepDatabase) -> tuple[Int64s, Int64s]:
    """Per row, the time that its collectives need at least, and what they take beyond that.

    A collective ends on all cores at once: the core that came last spends the least in it.
    """
    rows = len(steps.row_step)
    compute, sync = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    talks = steps.collectives
    if not len(talks.step):
        return compute, sync
    duration = talks.end_ps - talks.begin_ps
    _, group = np.unique(np.stack([talks.step, talks.id]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    least = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, group, duration)
    key = steps.row_step * (1 << 40) + steps.core_id
    wanted = talks.step * (1 << 40) + talks.core_id
    order = np.argsort(key)
    at = order[np.minimum(np.searchsorted(key[order], wanted), rows - 1)]
    is_known = key[at] == wanted
    np.add.at(compute, at[is_known], least[group][is_known])
    np.add.at(sync, at[is_known], (duration - least[group])[is_known])
    return compute, sync


def _bottleneck(steps: tuple[TpuStep, ...]) -> TpuBottleneck:
    total = sum(step.step_ms for step in steps)
    if total <= 0:
        return TpuBottleneck("unknown", NO_STEP_TIME)

    def percent(name: str) -> float:
        return 100 * sum(float(getattr(step, name)) for step in steps) / total

    infeed, idle = percent("infeed_ms"), percent("tc_idle_ms")
    verdict = classify_input(infeed, 0.0)
    reduce_compute, reduce_sync = percent("all_reduce_compute_ms"), percent("all_reduce_sync_ms")
    is_idle = idle >= IDLE_WORTH_NAMING
    is_reducing = reduce_compute + reduce_sync - infeed >= ALL_REDUCE_WORTH_NAMING
    return TpuBottleneck(
        input_classification=verdict.classification,
        input_statement=verdict.statement,
        output_statement=classify_output(percent("tc_outfeed_ms")),
        idle="yes" if is_idle else "no",
        idle_statement=f"{idle:.1f}% of the step time the TensorCores are idle without waiting "
        "for input: the host is late with something else. Several steps per call from Python "
        "would hide it."
        if is_idle
        else "",
        all_reduce="yes" if is_reducing else "no",
        all_reduce_statement=f"All-reduces take {reduce_compute:.1f}% of the step time, and "
        f"waiting for other cores in them {reduce_sync:.1f}%."
        if is_reducing
        else "",
    )
