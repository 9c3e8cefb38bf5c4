"""From bytes to results: each host once, then any tool over any of the hosts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from mmap import mmap
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats, Diagnostics, HostRow
from podscope_analyzers.lazy import lazily
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.registry import Tool, check_parameters, find_tool
from podscope_analyzers.sections import HostSections
from podscope_analyzers.xspace import open_xspace

if TYPE_CHECKING:
    from podscope_analyzers.op_metrics.database import OpDatabase
    from podscope_analyzers.result import Loss, Scope, ToolResult
    from podscope_analyzers.step_times import StepTimes
    from podscope_analyzers.steps import PodSteps
    from podscope_analyzers.steps.alignment import Alignment
    from podscope_analyzers.steps.database import Int64s, StepDatabase


def analyze_host(buffer: bytes | memoryview | mmap, host: str) -> HostPartial:
    """Decode one host's XSpace and compute all that any stats tool needs of it.

    Args:
        buffer: The file's bytes.
        host: The host's name in the capture.

    Raises:
        XSpaceError: the bytes are not a valid XSpace.
    """
    sections = _sections(buffer, host)
    opened = _opened(sections)
    partial = HostPartial(
        **{field.name: getattr(opened, field.name) for field in fields(HostPartial)}
    )
    sections.close()
    return partial


def open_host(
    buffer: bytes | memoryview | mmap, host: str, *, tool: str | None = None
) -> HostPartial:
    """One host's XSpace, of which each section is computed when it is first read.

    What one tool needs is computed faster than what all need; but the bytes and all that was
    decoded of them stay in memory as long as the partial does, and bad bytes of an event are only
    found when it is read.

    Args:
        buffer: The file's bytes.
        host: The host's name in the capture.
        tool: The only one that is asked, if only one is: what it does not show is not computed.

    Raises:
        UnknownToolError: there is no such tool.
        XSpaceError: the structure of the bytes is not that of a valid XSpace. Reading a section
            raises it too.
    """
    return _opened(_sections(buffer, host, tool))


def _sections(
    buffer: bytes | memoryview | mmap, host: str, tool: str | None = None
) -> HostSections:
    with_children = tool is None or find_tool(tool).shows_children
    return HostSections(open_xspace(buffer), host, with_children=with_children)


def _opened(sections: HostSections) -> HostPartial:
    partial = lazily(
        HostPartial,
        {
            **{
                field.name: _section(sections, field.name)
                for field in fields(HostPartial)
                if field.name != "summary"
            },
            "summary": lambda: _summary(partial),
        },
    )
    return partial


def _section(sections: HostSections, name: str) -> Callable[[], object]:
    """What computes one section."""
    return lambda: getattr(sections, name)


def _summary(partial: HostPartial) -> object:
    from podscope_analyzers.summary import summarize_hosts

    return summarize_hosts(combine([partial]))


def combine(
    partials: Sequence[HostPartial],
    *,
    keep_incomplete_steps: bool = False,
    with_step_times: bool = True,
) -> CaptureStats:
    """The stats of several hosts together; the order of the partials does not matter.

    Each is combined when it is first read.

    Args:
        partials: One per host.
        keep_incomplete_steps: Whether ``steps`` has each host's first and last step too.
        with_step_times: Whether operations have their times by step; the steps are computed for
            these.
    """
    ordered = sorted(partials, key=lambda partial: partial.host)
    pod = cache(lambda: _pod_steps(ordered))
    compared = cache(lambda: _compared_steps(pod) if len(ordered) > 1 else None)
    numbers = (
        cache(lambda: _complete_steps(ordered, is_whole=compared() is None))
        if with_step_times
        else None
    )
    joint = Joint(
        ops={name: _databases_of(ordered, name, numbers) for name in ADD_CORES},
        step_numbers=numbers,
        steps=lambda keep_incomplete: _combined_steps(
            ordered, pod, keep_incomplete=keep_incomplete
        ),
        compared=compared,
        has_incomplete=lambda: any(p.steps.incomplete_steps().any() for p in ordered),
    )
    return combined_stats(ordered, joint, keep_incomplete_steps=keep_incomplete_steps)


ADD_CORES: Final[Mapping[str, bool]] = {
    "host_ops": False,
    "device_ops": True,
    "host_execution": True,
}
"""The databases of operations, and whether the cores of several hosts add in them."""


@dataclass(frozen=True)
class Joint:
    """What is not put together host by host.

    Attributes:
        ops: Databases of operations of all hosts, by ``ADD_CORES``' names.
        steps: The common steps, with those that the capture cut or without.
        compared: The steps to compare hosts by, where some of them lack steps; None elsewhere.
        has_incomplete: Whether it cut any.
        step_numbers: Of every host the ids of the complete steps that all have, in order; None
            where times by step are not wanted.
    """

    ops: Mapping[str, "Callable[[], OpDatabase]"]
    steps: "Callable[[bool], StepDatabase]"
    compared: "Callable[[], tuple[StepDatabase, Alignment] | None]"
    has_incomplete: Callable[[], bool]
    step_numbers: "Callable[[], list[Int64s]] | None"


def combined_stats(
    ordered: Sequence[HostPartial], joint: Joint, *, keep_incomplete_steps: bool
) -> CaptureStats:
    """The stats of hosts, each combined when it is first read.

    Args:
        ordered: The hosts by name; of the sections in ``joint`` nothing is read.
        joint: The rest.
        keep_incomplete_steps: As in ``combine``.
    """
    # Not read of the stats themselves: they would refer to themselves, and with them all that they
    # are made of would wait for the garbage collector.
    all_steps = cache(
        lambda: joint.steps(True) if (found := joint.compared()) is None else found[0]
    )
    return lazily(
        CaptureStats,
        {
            "hosts": lambda: tuple(_host_row(i, partial) for i, partial in enumerate(ordered)),
            **joint.ops,
            "steps": lambda: (
                joint.steps(keep_incomplete_steps)
                if joint.compared() is not None
                else all_steps()
                # Steps of TPUs, and few steps, are all kept: the same once more.
                if keep_incomplete_steps or not joint.has_incomplete()
                else joint.steps(False)
            ),
            "all_steps": all_steps,
            "cores": lambda: _cores(ordered),
            "kernels": lambda: _kernels(ordered, joint.step_numbers),
            "reference_kernels": lambda: _reference_kernels(ordered),
            "run_environment": lambda: _run_environment(ordered),
            "perf_env": lambda: _perf_env(ordered),
            "inference": lambda: _inference(ordered),
            "annotations": lambda: _annotations(ordered),
            "program_titles": lambda: _titles(ordered),
            "diagnostics": lambda: Diagnostics(
                errors=_messages([(p.host, p.errors) for p in ordered]),
                warnings=_messages([(p.host, p.warnings) for p in ordered]),
            ),
            "losses": lambda: (
                *(loss for partial in ordered for loss in partial.losses),
                *_lacking_steps(ordered, joint.compared()),
            ),
            "programs": lambda: _programs(ordered),
            "allocations": lambda: _allocations(ordered),
            "counters": lambda: _counters(ordered),
        },
    )


def _databases_of(
    ordered: Sequence[HostPartial], name: str, numbers: "Callable[[], list[Int64s]] | None"
) -> "Callable[[], OpDatabase]":
    def combined() -> "OpDatabase":
        from podscope_analyzers.op_metrics.pod_ops import PodOps
        from podscope_analyzers.op_metrics.pod_step_times import PodStepTimes

        databases = [getattr(partial, name) for partial in ordered]
        if len(databases) == 1:
            (one,) = databases
            (own_times,) = _numbered([one.step_times], numbers)
            return cast("OpDatabase", replace(one, step_times=own_times))
        ranks = np.arange(len(databases))
        ops = PodOps.of_hosts(enumerate(databases), ranks, add_cores=ADD_CORES[name]).database()
        if numbers is None or not any(len(one.step_times.op) for one in databases):
            return ops
        steps = [partial.steps for partial in ordered]
        times = PodStepTimes.of(list(zip(databases, steps, strict=True)))
        common = numbers()
        first = [
            int(np.searchsorted(own.step_numbers, ids[0])) if len(ids) else -1
            for own, ids in zip(steps, common, strict=True)
        ]
        count = max((len(ids) for ids in common), default=0)
        return replace(ops, step_times=times.common(ops, np.array(first, np.int64), count))

    return combined


def _numbered(
    hosts: "list[StepTimes]", numbers: "Callable[[], list[Int64s]] | None"
) -> "list[StepTimes]":
    """Times in the steps that all hosts have; every host counts its own steps."""
    from podscope_analyzers.step_times import StepTimes

    if numbers is None or not any(len(times.op) for times in hosts):
        return [StepTimes()] * len(hosts)
    return [times.numbered(steps) for times, steps in zip(hosts, numbers(), strict=True)]


def _complete_steps(ordered: Sequence[HostPartial], *, is_whole: bool) -> "list[Int64s]":
    """Of every host the ids of the complete steps that all have, in order.

    None where a host lacks steps: times by step are sums over all hosts.
    """
    from podscope_analyzers.steps.intersection import intersect_steps

    if not is_whole:
        return [partial.steps.step_numbers[:0] for partial in ordered]
    databases = [partial.steps.without_incomplete_steps() for partial in ordered]
    common = intersect_steps(databases)
    return [
        database.step_numbers[first : first + common.step_count]
        if first >= 0
        else database.step_numbers[:0]
        for database, first in zip(databases, common.first_step.tolist(), strict=True)
    ]


def _cores(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.steps.database import CORES_PER_HOST

    return {
        CORES_PER_HOST * index + core: details
        for index, partial in enumerate(ordered)
        for core, details in partial.cores.items()
    }


def _kernels(
    ordered: Sequence[HostPartial], numbers: "Callable[[], list[Int64s]] | None"
) -> object:
    from podscope_analyzers.gpu_kernels import KernelDatabase

    parts = [partial.kernels for partial in ordered]
    by_step = _numbered([part.step_times for part in parts], numbers)
    return KernelDatabase.combine(
        replace(part, step_times=times) for part, times in zip(parts, by_step, strict=True)
    )


def _reference_kernels(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.gpu_kernels import KernelDatabase

    return KernelDatabase.side_by_side(partial.kernels for partial in ordered)


def _run_environment(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.run_environment import RunEnvironment

    return RunEnvironment.combine(p.run_environment for p in ordered)


def _perf_env(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.peaks import PerfEnv

    return PerfEnv.combine(p.perf_env for p in ordered)


def _inference(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.inference import InferenceStats

    return InferenceStats.combine(p.inference for p in ordered)


def _annotations(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.annotations import Annotations

    return Annotations.combine(p.annotations for p in ordered)


def _programs(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.hlo.programs import Programs

    return Programs.combine(p.programs for p in ordered if p.programs is not None)


def _allocations(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.allocations import Allocations

    # Tools that work on them answer for single hosts.
    found = (p.allocations for p in ordered if p.allocations is not None)
    return next(found, Allocations.empty())


def _counters(ordered: Sequence[HostPartial]) -> object:
    from podscope_analyzers.counters import Counters

    return next((p.counters for p in ordered if p.counters is not None), Counters.empty())


def run_tool(
    name: str,
    partials: Sequence[HostPartial],
    scope: "Scope",
    parameters: Mapping[str, str] | None = None,
) -> "ToolResult":
    """A tool's result in our own schema.

    Raises:
        UnknownToolError: there is no such tool.
        ParameterError: the tool does not take one of the parameters, or not that value.
    """
    tool = find_tool(name)
    given = parameters or {}
    check_parameters(tool, given)
    chosen = hosts_of(tool, partials)
    stats = combine(chosen, keep_incomplete_steps=tool.keeps_incomplete_steps)
    if len(chosen) < len(partials):
        scope = replace(scope, hosts=[partial.host for partial in chosen])
    try:
        return run_on_stats(tool, stats, scope, given)
    finally:
        _forget_parsed(stats)


def run_on_stats(
    tool: Tool, stats: CaptureStats, scope: "Scope", parameters: Mapping[str, str]
) -> "ToolResult":
    """A tool's result, with what was lost and what to do, on stats that serve several tools."""
    from podscope_analyzers.advice import advise
    from podscope_analyzers.losses import result_losses

    result = tool.analyze(stats, scope, parameters)
    return replace(
        result,
        losses=result_losses(tool.name, result.losses, stats.losses, scope),
        advice=advise(stats, scope, tool.name),
    )


def run_tool_xprof(
    name: str, partials: Sequence[HostPartial], parameters: Mapping[str, str] | None = None
) -> object:
    """A tool's result as XProf's data route answers it, JSON-ready; text where that is no JSON.

    Raises:
        UnknownToolError: there is no such tool.
        ParameterError: the tool does not take one of the parameters, or not that value.
    """
    tool = find_tool(name)
    given = parameters or {}
    check_parameters(tool, given)
    chosen = hosts_of(tool, partials)
    stats = combine(
        chosen, keep_incomplete_steps=tool.keeps_incomplete_steps, with_step_times=False
    )
    try:
        return tool.xprof_json(stats, given)
    finally:
        _forget_parsed(stats)


def _forget_parsed(stats: CaptureStats) -> None:
    """Let go of parsed programs, which refer to themselves: a service would keep them for long."""
    programs = vars(stats).get("programs")
    if programs is not None:
        programs.close()


def hosts_of(tool: Tool, partials: Sequence[HostPartial]) -> Sequence[HostPartial]:
    """The partials that the tool answers for: of a tool for single hosts, the first by name."""
    if tool.scope != "host" or len(partials) <= 1:
        return partials
    return [min(partials, key=lambda partial: partial.host)]


def _pod_steps(ordered: Sequence[HostPartial]) -> "PodSteps":
    from podscope_analyzers.steps import PodSteps

    return PodSteps.of([partial.steps for partial in ordered])


def _combined_steps(
    ordered: Sequence[HostPartial], pod: "Callable[[], PodSteps]", *, keep_incomplete: bool
) -> "StepDatabase":
    from podscope_analyzers.steps import combine_step_databases

    if len(ordered) > 1:
        return pod().common(np.arange(len(ordered)), keep_incomplete=keep_incomplete)
    databases = [partial.steps for partial in ordered]
    return combine_step_databases(databases, keep_incomplete=keep_incomplete)


def _compared_steps(
    pod: "Callable[[], PodSteps]",
) -> "tuple[StepDatabase, Alignment] | None":
    steps = pod()
    return steps.compared(np.arange(len(steps)))


def _lacking_steps(
    ordered: Sequence[HostPartial], compared: "tuple[StepDatabase, Alignment] | None"
) -> list["Loss"]:
    """Steps that hosts did not record and the others did."""
    from podscope_analyzers.losses import STEPS_NOT_TRACED
    from podscope_analyzers.result import Loss

    if compared is None:
        return []
    lacking = compared[1].lacking.tolist()
    return [
        Loss(partial.host, "", STEPS_NOT_TRACED, count)
        for partial, count in zip(ordered, lacking, strict=True)
        if count
    ]


def _host_row(index: int, partial: HostPartial) -> HostRow:
    return lazily(
        HostRow,
        {
            "index": lambda: index,
            "host": lambda: partial.host,
            "hostname": lambda: partial.hostname,
            "device_type": lambda: partial.run_environment.device_type,
            "device_core_count": lambda: partial.run_environment.device_core_count,
            "mxu_utilization_ratio": lambda: partial.run_environment.mxu_utilization_ratio,
            "hbm_utilization_ratio": lambda: partial.run_environment.hbm_utilization_ratio,
            "steps": lambda: partial.steps,
            "activity": lambda: partial.activity,
            "cores": lambda: dict(partial.cores),
            "tf_data": lambda: partial.tf_data,
            "loaders": lambda: partial.loaders,
            "slice_transfers": lambda: partial.slice_transfers,
            "facts": lambda: partial.facts,
        },
    )


def _titles(ordered: Sequence[HostPartial]) -> dict[int, str]:
    """Titles of all hosts' programs; of equal ids the first."""
    return {
        i: title for partial in reversed(ordered) for i, title in partial.program_titles.items()
    }


def _messages(hosts: list[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Messages of all hosts, each once, sorted."""
    return tuple(sorted({text for _, texts in hosts for text in texts}))
