"""Which tf.data pipelines are slow, and which of their iterators they wait for."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from podscope_analyzers.capture_stats import CaptureStats, HostRow
from podscope_analyzers.reasons import NO_TF_DATA
from podscope_analyzers.result import Cell, Column, Loss, Scope, Table, ToolResult
from podscope_analyzers.tf_data.bottlenecks import (
    HostPipeline,
    host_pipelines,
    kind_of,
    steps_for,
    summary,
)
from podscope_analyzers.tf_data.loaders import PREFETCH, LoaderStage, loader_advice
from podscope_analyzers.tf_data.pipelines import SLOW_CALL_PS, Pipeline, TfDataStats
from podscope_analyzers.tf_data.reference import reference_message

NAME: Final = "tf_data_bottleneck_analysis"
VERSION: Final = 4

_LOADER_COLUMNS: Final = (
    Column("host", "Host", "string"),
    Column("loader", "Loader", "string"),
    Column("thread", "Thread", "string"),
    Column("stage", "Stage, with those that it runs in", "string"),
    Column("depth", "Depth", "integer"),
    Column("calls", "Calls", "integer"),
    Column("slow_calls", "Calls above 50 us", "integer"),
    Column("total_time_us", "Total time", "number", "us"),
    Column("self_time_us", "Self time", "number", "us"),
    Column("avg_latency_us", "Average latency", "number", "us"),
    Column("max_latency_us", "Longest", "number", "us"),
)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Slow pipelines first, each with what it waits for and what to do; then every iterator."""
    del parameters  # It takes none.
    found = host_pipelines(stats.hosts)
    tables = {
        "pipelines": _pipelines_table(stats.hosts),
        "iterators": _iterators_table(stats.hosts),
        "loaders": _loaders_table(stats.hosts),
    }
    is_empty = not tables["pipelines"].rows and not tables["loaders"].rows
    slow_loaders = [one for host in stats.hosts for one in _loaders(host)]
    slow_loaders.sort(key=lambda one: -float(one["max_latency_us"]))
    losses = [
        Loss(host.host, "/host:CPU", "iterator_calls_not_walked", 1)
        for host in stats.hosts
        if not host.tf_data.is_complete
    ]
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="empty" if is_empty else "ok",
        result={
            "is_input_bound": any(one.is_slow for one in found)
            or any(one["is_slow"] for one in slow_loaders),
            "summary": summary(found) if found or not slow_loaders else _said(slow_loaders),
            "slow_call_threshold_us": SLOW_CALL_PS / 1e6,
            "bottlenecks": [_bottleneck(one) for one in found],
            "loader_bottlenecks": slow_loaders,
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=(NO_TF_DATA,) if is_empty else (),
        losses=losses,
    )


def _bottleneck(one: HostPipeline) -> dict[str, Any]:
    iterator = one.iterator if one.iterator_self_ps else None
    return {
        "host": one.host.host,
        "pipeline": one.pipeline.name,
        "is_slow": one.is_slow,
        "max_latency_us": one.pipeline.max_latency_ps / 1e6,
        "iterator": iterator.name if iterator else None,
        "iterator_long_name": iterator.long_name if iterator else None,
        "iterator_kind": kind_of(iterator.name) if iterator else None,
        "iterator_self_time_us": one.iterator_self_ps / 1e6 if iterator else None,
        "advice": [
            {"text": step.text, "link": step.link or None} for step in steps_for(iterator.name)
        ]
        if iterator and one.is_slow
        else [],
    }


def _calls(host: HostRow) -> list[list[LoaderStage]]:
    """The stages of every loader on every thread, its call first."""
    found: dict[tuple[str, str, str], list[LoaderStage]] = {}
    for stage in host.loaders.stages:
        found.setdefault((stage.loader, stage.thread, stage.path[0]), []).append(stage)
    return [sorted(stages, key=lambda one: len(one.path)) for stages in found.values()]


def _loaders(host: HostRow) -> list[dict[str, Any]]:
    """What every loader waits for; threads that only make something ahead are no loaders."""
    made: dict[tuple[str, str], list[LoaderStage]] = {}
    calls = _calls(host)
    for stages in calls:
        if stages[0].made_for:
            made.setdefault((stages[0].loader, stages[0].made_for), []).extend(stages)
    taken = {(one.loader, one.path[-1]) for one in host.loaders.stages if not one.made_for}
    return [
        _loader(host.host, stages, made)
        for stages in calls
        if (stages[0].loader, stages[0].made_for) not in taken
    ]


def _loader(
    host: str,
    stages: Sequence[LoaderStage],
    made: Mapping[tuple[str, str], Sequence[LoaderStage]],
) -> dict[str, Any]:
    call = stages[0]
    worst = max(stages, key=lambda one: one.self_ps)
    self_ps, waits_for = worst.self_ps, None
    ahead = made.get((call.loader, worst.path[-1]), ())
    if worst.category == PREFETCH and ahead:
        # It only waits; what takes the time runs on the threads that make its elements.
        waits_for = worst.path[-1]
        sums: dict[tuple[str, ...], int] = {}
        for one in ahead:
            sums[one.path] = sums.get(one.path, 0) + one.self_ps
        path = max(sums, key=lambda one: sums[one])
        worst, self_ps = next(one for one in ahead if one.path == path), sums[path]
    is_slow = call.max_ps > SLOW_CALL_PS
    advice = loader_advice(call.loader, call.path[0], worst.category) if is_slow else ()
    return {
        "host": host,
        "loader": call.loader,
        "thread": call.thread,
        "call": call.path[0],
        "calls": call.calls,
        "avg_latency_us": call.total_ps / call.calls / 1e6,
        "max_latency_us": call.max_ps / 1e6,
        "is_slow": is_slow,
        "stage": worst.path[-1],
        "stage_self_time_us": self_ps / 1e6,
        "waits_for": waits_for,
        "advice": list(advice),
    }


def _said(loaders: Sequence[Mapping[str, Any]]) -> str:
    longest = max(loaders, key=lambda one: float(one["max_latency_us"]))
    what = f"{longest['loader']}'s {longest['call']} on {longest['host']}"
    if not longest["is_slow"]:
        return f"No call of {what} takes longer than {SLOW_CALL_PS / 1e6:g} us."
    return (
        f"{what} takes {longest['avg_latency_us'] / 1000:.3g} ms on average and up to "
        f"{longest['max_latency_us'] / 1000:.3g} ms; most of it is spent in {longest['stage']}."
    )


def _loaders_table(hosts: Sequence[HostRow]) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            host.host,
            stage.loader,
            stage.thread,
            " > ".join(stage.path),
            len(stage.path),
            stage.calls,
            stage.slow_calls,
            stage.total_ps / 1e6,
            stage.self_ps / 1e6,
            stage.total_ps / stage.calls / 1e6,
            stage.max_ps / 1e6,
        )
        for host in hosts
        for stages in _calls(host)
        for stage in stages
    ]
    return Table(_LOADER_COLUMNS, rows)


def _pipelines_table(hosts: Sequence[HostRow]) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            host.host,
            pipeline.name,
            str(pipeline.root_id),
            len(pipeline.duration_ps),
            pipeline.slow_calls,
            pipeline.duration_ps.sum() / len(pipeline.duration_ps) / 1e6,
            pipeline.min_latency_ps / 1e6,
            pipeline.max_latency_ps / 1e6,
        )
        for host in hosts
        for pipeline in host.tf_data.pipelines()
    ]
    return Table(
        columns=(
            Column("host", "Host", "string"),
            Column("pipeline", "Pipeline", "string"),
            Column("root_id", "Id of the root iterator", "string"),
            Column("calls", "Calls", "integer"),
            Column("slow_calls", "Calls above 50 us", "integer"),
            Column("avg_latency_us", "Average latency", "number", "us"),
            Column("min_latency_us", "Shortest", "number", "us"),
            Column("max_latency_us", "Longest", "number", "us"),
        ),
        rows=rows,
    )


def _iterators_table(hosts: Sequence[HostRow]) -> Table:
    rows: list[Sequence[Cell]] = []
    for host in hosts:
        for pipeline in host.tf_data.pipelines():
            rows += _iterator_rows(host, pipeline)
    return Table(
        columns=(
            Column("host", "Host", "string"),
            Column("pipeline", "Pipeline", "string"),
            Column("iterator_id", "Id", "string"),
            Column("parent_id", "Id of the iterator that asks it", "string"),
            Column("iterator", "Iterator", "string"),
            Column("long_name", "With the iterators above it", "string"),
            Column("is_async", "Works ahead", "boolean"),
            Column("calls", "Calls", "integer"),
            Column("total_time_us", "Total time", "number", "us"),
            Column("self_time_us", "Self time", "number", "us"),
            Column("slowest_self_time_us", "Self time in the slowest call", "number", "us"),
            Column("is_blocking", "The slowest call waited for it", "boolean"),
            Column("is_critical", "On the way from the root to what it waited for", "boolean"),
        ),
        rows=rows,
    )


def _iterator_rows(host: HostRow, pipeline: Pipeline) -> list[Sequence[Cell]]:
    """One row per iterator over all calls of its pipeline, most self time first."""
    stats = host.tf_data
    begin, slowest_end, end = pipeline.entries[[0, 1, -1]].tolist()
    totals: dict[int, list[int]] = {}
    columns = (stats.iterator_ids, stats.calls, stats.duration_ps, stats.self_ps)
    for own, *values in zip(*(column[begin:end].tolist() for column in columns), strict=True):
        sums = totals.setdefault(own, [0, 0, 0])
        for place, value in enumerate(values):
            sums[place] += value
    slowest = {
        int(stats.iterator_ids[row]): (int(stats.self_ps[row]), bool(stats.is_blocking[row]))
        for row in range(begin, slowest_end)
    }
    critical = _critical(stats, begin, slowest_end)
    rows: list[Sequence[Cell]] = []
    for own, (calls, total_ps, self_ps) in sorted(totals.items(), key=lambda item: -item[1][2]):
        iterator = stats.iterators[own]
        slowest_ps, is_blocking = slowest.get(own, (0, False))
        rows.append(
            (
                host.host,
                pipeline.name,
                str(own),
                str(iterator.parent_id),
                iterator.name,
                iterator.long_name,
                iterator.works_ahead,
                calls,
                total_ps / 1e6,
                self_ps / 1e6,
                slowest_ps / 1e6,
                is_blocking,
                own in critical,
            )
        )
    return rows


def _critical(stats: TfDataStats, begin: int, end: int) -> set[int]:
    """The iterators from a call's root to the one that it waited for longest."""
    own, self_ps = stats.bottleneck(begin, end)
    found: set[int] = set()
    while self_ps and own in stats.iterators and own not in found:
        found.add(own)
        own = stats.iterators[own].parent_id
    return found


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's message, of hosts by the names that they give themselves."""
    del parameters  # It takes none.
    return reference_message(stats.hosts)
