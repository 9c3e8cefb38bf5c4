"""The sections of a host's partial, each computed from its XSpace when it is first read.

What computes a section is loaded with it: few tools need all of them.
"""

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from podscope_analyzers.planes import is_gpu, is_sparse_core
from podscope_analyzers.prepare import prepare
from podscope_analyzers.run_environment import LOCALHOST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from podscope_analyzers.allocations import Allocations
    from podscope_analyzers.annotations import Annotations
    from podscope_analyzers.core_details import CoreDetails
    from podscope_analyzers.counters import Counters
    from podscope_analyzers.gpu_kernels import KernelDatabase
    from podscope_analyzers.hlo.programs import Programs
    from podscope_analyzers.host_facts import HostFacts, NamedTimes
    from podscope_analyzers.inference import InferenceStats
    from podscope_analyzers.op_metrics.database import OpDatabase
    from podscope_analyzers.peaks import PerfEnv
    from podscope_analyzers.plane_views import OpPlane
    from podscope_analyzers.prepared import PreparedPlane, PreparedSpace
    from podscope_analyzers.result import Loss
    from podscope_analyzers.run_environment import RunEnvironment
    from podscope_analyzers.slice_transfers import SliceTransfers
    from podscope_analyzers.step_activity import StepActivity
    from podscope_analyzers.step_times import StepTimes
    from podscope_analyzers.steps import StepDatabase
    from podscope_analyzers.steps.events import StepEvents
    from podscope_analyzers.steps.timed_cores import Spans
    from podscope_analyzers.tf_data.loaders import Loaders
    from podscope_analyzers.tf_data.pipelines import TfDataStats
    from podscope_analyzers.xspace import XSpace


class HostSections:
    """What one host contributes; the names are those of ``HostPartial``.

    Args:
        space: The host's XSpace.
        host: Its name in the capture.
        with_children: Whether the device's operations are wanted with what they are made of.
    """

    def __init__(self, space: "XSpace", host: str, *, with_children: bool = True) -> None:
        self._space = space
        self._with_children = with_children
        self.host = host
        self._step_events: dict[int, StepEvents] = {}
        self._active_spans: dict[int, Spans] = {}
        self._named_times: dict[int, Mapping[str, NamedTimes]] = {}

    def close(self) -> None:
        """Lets go of the profile; no section can be computed after that."""
        self._programs.close()
        self._prepared.close()
        self._space.close()

    @cached_property
    def _prepared(self) -> "PreparedSpace":
        return prepare(self._space, framework_ops=False)

    @cached_property
    def _programs(self) -> "Programs":
        from podscope_analyzers.hlo.programs import read_programs

        return read_programs(self._prepared)

    @property
    def hostname(self) -> str:
        """What the XSpace says."""
        return self._space.hostnames[0] if self._space.hostnames else LOCALHOST

    @cached_property
    def run_environment(self) -> "RunEnvironment":
        """What the host ran on."""
        from podscope_analyzers.op_metrics.run_environment import host_run_environment

        return host_run_environment(self._prepared, self._programs)

    @cached_property
    def perf_env(self) -> "PerfEnv":
        """Peaks of its first device."""
        from podscope_analyzers.op_metrics.run_environment import host_perf_env

        return host_perf_env(self._prepared)

    @cached_property
    def host_ops(self) -> "OpDatabase":
        """Operations on its threads."""
        from podscope_analyzers.op_metrics.host_databases import host_op_database

        return host_op_database(self._prepared)

    @cached_property
    def device_ops(self) -> "OpDatabase":
        """Operations on its devices."""
        from podscope_analyzers.op_metrics.host_databases import device_op_database

        planes = {id(plane): plane for plane in self._prepared.planes}

        def visit(plane: "OpPlane") -> "StepTimes":
            # All that reads a device's events does so in turn, and then they are forgotten.
            self._step_events[id(plane)], by_row = self._read_steps(planes[id(plane)])
            return by_row

        return device_op_database(
            self._prepared, self._programs, visit, with_children=self._with_children
        )

    def _read_steps(self, plane: "PreparedPlane") -> "tuple[StepEvents, StepTimes]":
        from podscope_analyzers.steps.device import read_device_steps

        found = read_device_steps(plane)
        if is_sparse_core(plane.name) and not len(found[0].steps()):
            from podscope_analyzers.op_metrics.duty_cycle import core_activity

            activity = core_activity(plane).all
            self._active_spans[id(plane)] = activity.start_ps, activity.end_ps
        if not is_gpu(plane.name):
            self._times_of(plane)
            plane.release()
        return found

    def _times_of(self, plane: "PreparedPlane") -> "Mapping[str, NamedTimes]":
        from podscope_analyzers.host_facts import named_times

        if id(plane) not in self._named_times:
            self._named_times[id(plane)] = named_times(plane)
        return self._named_times[id(plane)]

    @cached_property
    def host_execution(self) -> "OpDatabase":
        """Operations of compiled programs on its threads."""
        from podscope_analyzers.op_metrics.host_execution import host_execution_database

        return host_execution_database(self._prepared, self._programs)

    @cached_property
    def steps(self) -> "StepDatabase":
        """All its steps."""
        from podscope_analyzers.steps import host_step_database

        return host_step_database(
            self._prepared,
            lambda plane: self._step_events.pop(id(plane), None) or self._read_steps(plane)[0],
            lambda plane: self._active_spans[id(plane)],
        )

    @cached_property
    def activity(self) -> "StepActivity":
        """What its threads did in the steps."""
        from podscope_analyzers.step_activity import step_activity
        from podscope_analyzers.steps.intersection import step_spans

        return step_activity(self._prepared, *step_spans(self.steps))

    @cached_property
    def kernels(self) -> "KernelDatabase":
        """GPU kernels."""
        from podscope_analyzers.gpu_kernels import host_kernels

        return host_kernels(self._prepared, self._programs)

    @cached_property
    def inference(self) -> "InferenceStats":
        """Requests that it answered."""
        from podscope_analyzers.inference.host import host_inference

        return host_inference(self._prepared)

    @cached_property
    def annotations(self) -> "Annotations":
        """Annotations on its threads."""
        from podscope_analyzers.annotations import host_annotations

        return host_annotations(self._prepared)

    @cached_property
    def tf_data(self) -> "TfDataStats":
        """Its tf.data pipelines."""
        from podscope_analyzers.tf_data.events import host_tf_data

        return host_tf_data(self._prepared)

    @cached_property
    def loaders(self) -> "Loaders":
        """Its loaders that are no tf.data."""
        from podscope_analyzers.tf_data.loaders import host_loaders
        from podscope_analyzers.tf_data.pipelines import SLOW_CALL_PS

        return host_loaders(self._prepared, SLOW_CALL_PS)

    @cached_property
    def cores(self) -> "dict[int, CoreDetails]":
        """What is known of its TPU cores."""
        from podscope_analyzers.core_details import core_details

        return core_details(self._prepared)

    @property
    def program_titles(self) -> dict[int, str]:
        """Titles of its HLO programs by id."""
        return self._programs.titles()

    @property
    def errors(self) -> tuple[str, ...]:
        """What its tracers could not record, each thing once."""
        return tuple(dict.fromkeys(self._space.errors))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its tracers warn of, each thing once."""
        return tuple(dict.fromkeys(self._space.warnings))

    @cached_property
    def losses(self) -> "tuple[Loss, ...]":
        """What its capture lost."""
        from podscope_analyzers.losses import host_losses

        return host_losses(self._space, self.host, self.allocations)

    @cached_property
    def facts(self) -> "HostFacts":
        """What advice rests on beside the stats."""
        from podscope_analyzers.host_facts import host_facts

        facts = host_facts(self._prepared, self.steps, self.allocations, self._times_of)
        return replace(facts, time_base_ns=self._space.unix_base_ns)

    @cached_property
    def slice_transfers(self) -> "SliceTransfers":
        """Its transfers between slices."""
        from podscope_analyzers.slice_transfers import host_slice_transfers

        return host_slice_transfers(self._prepared, self._programs)

    @cached_property
    def counters(self) -> "Counters":
        """Its hardware counters."""
        from podscope_analyzers.counters import host_counters

        return host_counters(self._space)

    @property
    def programs(self) -> "Programs":
        """Its HLO programs."""
        return self._programs.unparsed()

    @cached_property
    def allocations(self) -> "Allocations":
        """What its allocators recorded."""
        from podscope_analyzers.allocations import host_allocations

        return host_allocations(self._prepared)
