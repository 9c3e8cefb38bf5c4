"""What a tool works on: the stats of all the hosts of a capture, combined."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from podscope_analyzers.allocations import Allocations
    from podscope_analyzers.annotations import Annotations
    from podscope_analyzers.core_details import CoreDetails
    from podscope_analyzers.counters import Counters
    from podscope_analyzers.gpu_kernels import KernelDatabase
    from podscope_analyzers.hlo.programs import Programs
    from podscope_analyzers.host_facts import HostFacts
    from podscope_analyzers.inference import InferenceStats
    from podscope_analyzers.op_metrics.database import OpDatabase
    from podscope_analyzers.peaks import PerfEnv
    from podscope_analyzers.result import Loss
    from podscope_analyzers.run_environment import RunEnvironment
    from podscope_analyzers.slice_transfers import SliceTransfers
    from podscope_analyzers.step_activity import StepActivity
    from podscope_analyzers.steps import StepDatabase
    from podscope_analyzers.tf_data.loaders import Loaders
    from podscope_analyzers.tf_data.pipelines import TfDataStats


def _no_facts() -> "HostFacts":
    from podscope_analyzers.host_facts import HostFacts

    return HostFacts()


@dataclass(frozen=True)
class HostRow:
    """One host of the capture.

    Attributes:
        index: Its place in name order; its core ids are ``1000 * index`` plus the local ones.
        host: Its name in the capture, which is its file's name. It is the identity: containers
            of one machine, and processes of one test, share a hostname.
        hostname: What the XSpace says, ``localhost`` when it says nothing.
        device_type: As in the run environment.
        steps: All its own steps, incomplete ones too.
        activity: What its threads did in them, column i for step i.
        cores: What is known of its TPU cores, by the host's own core ids.
        tf_data: Its tf.data pipelines.
        loaders: Its loaders that are no tf.data.
        device_core_count: TensorCores or GPUs that it traced.
        mxu_utilization_ratio: As its tracer measured it; None where it did not.
        hbm_utilization_ratio: Likewise.
        slice_transfers: What its TPU cores sent to other slices.
        facts: What advice rests on beside the stats.
    """

    index: int
    host: str
    hostname: str
    device_type: str
    steps: "StepDatabase"
    activity: "StepActivity"
    cores: "dict[int, CoreDetails]"
    tf_data: "TfDataStats"
    loaders: "Loaders"
    slice_transfers: "SliceTransfers"
    facts: "HostFacts" = field(default_factory=_no_facts)
    device_core_count: int = 0
    mxu_utilization_ratio: float | None = None
    hbm_utilization_ratio: float | None = None

    def own_steps(self, steps: "StepDatabase") -> npt.NDArray[np.int64]:
        """Where the rows of a capture's steps are among the host's own steps.

        Returns:
            Index of the own step of every row, shape (r,); -1 for rows of other hosts.
        """
        found = np.full(len(steps.row_step), -1, np.int64)
        rows = np.flatnonzero(steps.host_index == self.index)
        first = self.steps.row_offsets[:-1]
        if len(rows) and len(self.steps.begin_ps):
            begin = self.steps.begin_ps[np.minimum(first, len(self.steps.begin_ps) - 1)]
            order = np.argsort(begin, kind="stable")
            # Cores of a step start together, or nearly: the latest step begun by then is meant.
            middle = steps.begin_ps[rows] + steps.duration_ps[rows] // 2
            at = np.searchsorted(begin[order], middle, side="right") - 1
            found[rows] = order[np.maximum(at, 0)]
        return found


@dataclass(frozen=True)
class Diagnostics:
    """What the profilers said about the capture, without repetitions."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaptureStats:
    """The combined stats of a capture's hosts.

    Attributes:
        hosts: In name order.
        host_ops: Operations on the hosts' threads, summed over hosts.
        device_ops: Operations on the devices, summed over devices and hosts.
        host_execution: HLO operations that hosts without devices executed themselves; the
            reference has none of them.
        steps: Steps that every host has, cores of all hosts side by side, without the first and
            last of each host where the reference leaves them out.
        all_steps: Likewise, none left out.
        cores: What is known of the cores, by the capture's core ids.
        kernels: GPU kernels, equal ones of several hosts together.
        reference_kernels: The same host after host, as the reference has them.
        run_environment: Device type, cores, tasks, whether it trains.
        perf_env: Peak rates of the devices.
        inference: Requests that the hosts answered, and the batches they ran in.
        annotations: Spans on the hosts' threads that are no operation of a framework.
        program_titles: ``module(program id)`` of the hosts' programs, by unsigned id.
        diagnostics: Errors and warnings of the profilers.
        losses: What the tracers dropped.
        programs: The HLO programs; only for tools that name them in ``Tool.parts``.
        allocations: What the first host's allocators recorded; likewise.
        counters: Values of its devices' hardware counters; likewise.
    """

    hosts: tuple[HostRow, ...]
    host_ops: "OpDatabase"
    device_ops: "OpDatabase"
    host_execution: "OpDatabase"
    steps: "StepDatabase"
    all_steps: "StepDatabase"
    cores: "dict[int, CoreDetails]"
    kernels: "KernelDatabase"
    reference_kernels: "KernelDatabase"
    run_environment: "RunEnvironment"
    perf_env: "PerfEnv"
    inference: "InferenceStats"
    annotations: "Annotations"
    program_titles: Mapping[int, str]
    diagnostics: Diagnostics
    losses: "tuple[Loss, ...]"
    programs: "Programs"
    allocations: "Allocations"
    counters: "Counters"

    @cached_property
    def is_complete(self) -> npt.NDArray[np.bool_]:
        """Which of ``all_steps`` every host has recorded from begin to end, shape (s,)."""
        steps = self.all_steps
        complete = np.ones(len(steps), np.bool_)
        for host in self.hosts:
            cut = host.steps.incomplete_steps()
            if cut.any():
                own = host.own_steps(steps)
                rows = np.flatnonzero(own >= 0)
                complete[steps.row_step[rows[cut[own[rows]]]]] = False
        return complete

    @cached_property
    def complete_steps(self) -> "StepDatabase":
        """The steps that every host has recorded from begin to end."""
        return self.all_steps.select(np.flatnonzero(self.is_complete))
