"""From bytes to results: each host once, then any tool over any of the hosts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from mmap import mmap

from podscope_analyzers.allocations import Allocations, host_allocations
from podscope_analyzers.capture_stats import CaptureStats, Diagnostics, HostRow
from podscope_analyzers.core_details import LOCALHOST, core_details
from podscope_analyzers.gpu_kernels import KernelDatabase, host_kernels
from podscope_analyzers.hlo.programs import Programs, read_programs
from podscope_analyzers.inference_latency import Requests
from podscope_analyzers.inference_requests import host_requests
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.host_databases import device_op_database, host_op_database
from podscope_analyzers.op_metrics.host_execution import host_execution_database
from podscope_analyzers.op_metrics.run_environment import host_perf_env, host_run_environment
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.prepare import prepare
from podscope_analyzers.registry import Tool, check_parameters, find_tool
from podscope_analyzers.result import Scope, ToolResult
from podscope_analyzers.run_environment import RunEnvironment
from podscope_analyzers.step_activity import step_activity
from podscope_analyzers.steps import combine_step_databases, host_step_database
from podscope_analyzers.steps.database import CORES_PER_HOST, StepDatabase
from podscope_analyzers.steps.intersection import step_spans
from podscope_analyzers.summary import HostSummary, summarize_hosts
from podscope_analyzers.tf_data.events import host_tf_data
from podscope_analyzers.xspace import open_xspace

_NO_SUMMARY = HostSummary("", 0, False, 0, None, None, None, None, {})


def analyze_host(buffer: bytes | memoryview | mmap, host: str) -> HostPartial:
    """Decode one host's XSpace and compute all that any stats tool needs of it.

    Args:
        buffer: The file's bytes.
        host: The host's name in the capture.

    Raises:
        XSpaceError: the bytes are not a valid XSpace.
    """
    space = open_xspace(buffer)
    prepared = prepare(space)
    programs = read_programs(prepared)
    steps = host_step_database(prepared)
    begin_ps, end_ps = step_spans(steps)
    partial = HostPartial(
        host=host,
        hostname=space.hostnames[0] if space.hostnames else LOCALHOST,
        run_environment=host_run_environment(prepared, programs),
        perf_env=host_perf_env(prepared),
        host_ops=host_op_database(prepared),
        device_ops=device_op_database(prepared, programs),
        host_execution=host_execution_database(prepared, programs),
        steps=steps,
        activity=step_activity(space, begin_ps, end_ps),
        kernels=host_kernels(prepared, programs),
        requests=host_requests(prepared),
        tf_data=host_tf_data(prepared),
        cores=core_details(prepared),
        errors=tuple(dict.fromkeys(space.errors)),
        warnings=tuple(dict.fromkeys(space.warnings)),
        losses=(),
        summary=_NO_SUMMARY,
        programs=programs.unparsed(),
        allocations=host_allocations(prepared),
    )
    return replace(partial, summary=summarize_hosts(combine([partial])))


def combine(
    partials: Sequence[HostPartial], *, keep_incomplete_steps: bool = False
) -> CaptureStats:
    """The stats of several hosts together; the order of the partials does not matter.

    Args:
        partials: One per host.
        keep_incomplete_steps: Whether ``steps`` has each host's first and last step too.
    """
    ordered = sorted(partials, key=lambda partial: partial.host)
    databases = [partial.steps for partial in ordered]
    all_steps = _combined_steps(databases, keep_incomplete=True)
    return CaptureStats(
        hosts=tuple(_host_row(index, partial) for index, partial in enumerate(ordered)),
        host_ops=OpDatabase.combine((p.host_ops for p in ordered), add_cores=False),
        device_ops=OpDatabase.combine(p.device_ops for p in ordered),
        host_execution=OpDatabase.combine(p.host_execution for p in ordered),
        steps=all_steps
        if keep_incomplete_steps
        else _combined_steps(databases, keep_incomplete=False),
        all_steps=all_steps,
        cores={
            CORES_PER_HOST * index + core: details
            for index, partial in enumerate(ordered)
            for core, details in partial.cores.items()
        },
        kernels=KernelDatabase.combine(p.kernels for p in ordered),
        run_environment=RunEnvironment.combine(p.run_environment for p in ordered),
        perf_env=PerfEnv.combine(p.perf_env for p in ordered),
        requests=Requests.combine(p.requests for p in ordered),
        diagnostics=Diagnostics(
            errors=_messages([(p.host, p.errors) for p in ordered]),
            warnings=_messages([(p.host, p.warnings) for p in ordered]),
        ),
        losses=tuple(loss for partial in ordered for loss in partial.losses),
        programs=Programs.combine(p.programs for p in ordered if p.programs is not None),
        # Tools that work on them answer for single hosts.
        allocations=next(
            (p.allocations for p in ordered if p.allocations is not None), Allocations.empty()
        ),
    )


def run_tool(
    name: str,
    partials: Sequence[HostPartial],
    scope: Scope,
    parameters: Mapping[str, str] | None = None,
) -> ToolResult:
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
    return tool.analyze(stats, scope, given)


def run_tool_xprof(
    name: str, partials: Sequence[HostPartial], parameters: Mapping[str, str] | None = None
) -> object:
    """A tool's result as XProf's data route answers it, JSON-ready.

    Raises:
        UnknownToolError: there is no such tool.
        ParameterError: the tool does not take one of the parameters, or not that value.
    """
    tool = find_tool(name)
    given = parameters or {}
    check_parameters(tool, given)
    chosen = hosts_of(tool, partials)
    stats = combine(chosen, keep_incomplete_steps=tool.keeps_incomplete_steps)
    return tool.xprof_json(stats, given)


def hosts_of(tool: Tool, partials: Sequence[HostPartial]) -> Sequence[HostPartial]:
    """The partials that the tool answers for: of a tool for single hosts, the first by name."""
    if tool.scope != "host" or len(partials) <= 1:
        return partials
    return [min(partials, key=lambda partial: partial.host)]


def _combined_steps(databases: list[StepDatabase], *, keep_incomplete: bool) -> StepDatabase:
    return combine_step_databases(databases, keep_incomplete=keep_incomplete)


def _host_row(index: int, partial: HostPartial) -> HostRow:
    return HostRow(
        index=index,
        host=partial.host,
        hostname=partial.hostname,
        device_type=partial.run_environment.device_type,
        steps=partial.steps,
        activity=partial.activity,
        cores=dict(partial.cores),
        tf_data=partial.tf_data,
    )


def _messages(hosts: list[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Messages of all hosts, each once, sorted."""
    return tuple(sorted({text for _, texts in hosts for text in texts}))
