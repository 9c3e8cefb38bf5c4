"""Requests that a serving job answered: how long, spent on what, in which batches."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.inference.aggregate import (
    TENSOR_PERCENTILES,
    Average,
    ModelStats,
    models_stats,
    program_ids,
)
from podscope_analyzers.inference.columns import (
    BATCH_AVERAGE_COLUMNS,
    BATCH_COLUMNS,
    LATENCY_COLUMNS,
    MODEL_COLUMNS,
    REQUEST_AVERAGE_COLUMNS,
    REQUEST_COLUMNS,
    REQUEST_TIMES,
)
from podscope_analyzers.inference.percentiles import at_percentiles, shown_rows
from podscope_analyzers.inference.stats import ALL_MODELS, InferenceStats, Int64s, Rows
from podscope_analyzers.op_metrics.database import safe_divide
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable, fixed

NAME: Final = "inference_profile"
VERSION: Final = 4
PARAMETERS: Final = {
    "request_column": "what the shown requests are ordered by, such as 'Device compute'; "
    "default 'Latency'",
    "batch_column": "what the shown batches are ordered by, such as 'Batching delay'; "
    "default 'Latency'",
}

LATENCY: Final = "Latency"
REQUEST_ORDERS: Final = {
    LATENCY: "duration_ps",
    "Request delay for batching": "delay_ps",
    "Request size": "size",
    "Host preprocess": "preprocess_ps",
    "Host batch formation": "formation_ps",
    "Host runtime": "runtime_ps",
    "Data transfer H2D": "write_ps",
    "Data transfer D2H": "read_ps",
    "Device compute": "device_ps",
    "Host postprocess": "postprocess_ps",
    "Idle time": "idle_ps",
}
BATCH_ORDERS: Final = {
    LATENCY: "duration_ps",
    "Batching delay": "delay_ps",
    "Padding amount": "padding",
    "Batch size after padding": "padded_size",
    "Batching efficiency": "efficiency",
}
NO_REQUESTS: Final = Reason(
    "no_requests",
    "No request of a serving job was recorded.",
    "Capture a server while it answers, with host_tracer_level 2. Servers that do not record their "
    "requests can mark them: TraceMe or jax.profiler.TraceAnnotation with _r=-1.",
)
NO_BREAKDOWN: Final = Reason(
    "no_request_breakdown",
    "What the requests were spent on is only recorded by servers on TPUs and GPUs.",
    "Latencies, batches and delays are as measured; see the trace for the rest.",
)

_BATCHING: Final = frozenset({"delay_ps", "formation_ps"})
_LATENCIES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


def _percentile_id(percentile: float) -> str:
    return f"p{percentile:g}".replace(".", "_")


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Requests and batches of every model, with what they were spent on.

    Args:
        stats: Of all hosts.
        scope: What the result covers.
        parameters: See ``PARAMETERS``.

    Raises:
        ParameterError: there is no such column to order by.
    """
    request_order = _order("request_column", parameters, REQUEST_ORDERS)
    batch_order = _order("batch_column", parameters, BATCH_ORDERS)
    inference = stats.inference
    models = models_stats(inference, is_reference=False)
    hosts = [host.host for host in stats.hosts]
    told = _told(inference)
    tables = {
        "models": _models_table(models),
        "latency": _latency_table(models, told=told),
        "requests": _requests_table(models, hosts, request_order, told=told),
        "request_averages": _request_averages_table(models, told=told),
        "batches": _batches_table(models, hosts, batch_order, told=told),
        "batch_averages": _batch_averages_table(models, told=told),
        "tensors": _tensors_table(models, inference.patterns),
    }
    count = inference.requests.total
    reasons = [] if count else [NO_REQUESTS]
    if count and "device_ps" not in told:
        reasons.append(NO_BREAKDOWN)
    result: dict[str, Any] = {
        "device_type": stats.run_environment.device_type,
        "request_count": count,
        "batch_count": inference.batches.total,
        "is_sampled": inference.is_sampled,
        "request_column": parameters.get("request_column", LATENCY),
        "batch_column": parameters.get("batch_column", LATENCY),
        **{name: table.to_json() for name, table in tables.items()},
    }
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if count else "empty",
        result=result,
        tables=tables,
        reasons=reasons,
    )


def _order(parameter: str, parameters: Mapping[str, str], known: Mapping[str, str]) -> str:
    given = parameters.get(parameter, LATENCY)
    if given not in known:
        msg = f"{NAME} cannot order by {parameter} '{given}'; known: {', '.join(known)}"
        raise ParameterError(msg)
    return known[given]


def _shown(rows: Rows, order: str) -> list[tuple[int, float]]:
    """Rows to show and their percentiles, when ordered by a column."""
    if order == "duration_ps":
        return shown_rows(rows["weight"])
    if order == "efficiency":
        padded = rows["padded_size"]
        efficiency = (padded - rows["padding"]) / np.where(padded == 0, 1, padded)
        place = np.argsort(np.where(padded == 0, 0.0, efficiency), kind="stable")
    else:
        place = np.argsort(rows[order], kind="stable")
    shown = shown_rows(rows["weight"][place])
    return [(int(place[at]), percentile) for at, percentile in shown]


def _efficiency(padding: float, padded_size: float) -> float | None:
    return (padded_size - padding) / padded_size if padded_size else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _models_table(models: list[ModelStats]) -> Table:
    rows: list[list[Cell]] = []
    for one in models:
        requests, batches = one.request_average, one.batch_average
        if not requests.count and not batches.count:
            continue
        told = one.parameters
        rows.append(
            [
                None if one.model == ALL_MODELS else one.model,
                requests.count,
                _finite(requests.per_second) if requests.count else None,
                requests.mean("duration_ps") / 1e6 if requests.count else None,
                batches.count,
                _finite(batches.per_second) if batches.count else None,
                batches.mean("duration_ps") / 1e6 if batches.count else None,
                _efficiency(batches.sums["padding"], batches.sums["padded_size"]),
                told.num_batch_threads if told else None,
                told.max_batch_size if told else None,
                told.batch_timeout_micros if told else None,
                told.max_enqueued_batches if told else None,
                told.allowed_batch_sizes if told else None,
            ]
        )
    return Table(
        columns=MODEL_COLUMNS,
        rows=rows,
    )


def _latency_table(models: list[ModelStats], *, told: frozenset[str]) -> Table:
    """The shortest request, those at percentiles, and the longest, with what each was spent on."""
    rows: list[list[Cell]] = []
    for one in models:
        requests = one.requests
        if not requests.total:
            continue
        inner = at_percentiles(requests["weight"], _LATENCIES).tolist()
        places = zip((0.0, *_LATENCIES, 100.0), (0, *inner, len(requests) - 1), strict=True)
        rows += [
            [
                None if one.model == ALL_MODELS else one.model,
                percentile,
                int(requests.duration_ps[at]) / 1e6,
                *_request_times(requests, at, told=told),
            ]
            for percentile, at in places
        ]
    return Table(
        columns=LATENCY_COLUMNS,
        rows=rows,
    )


def _request_times(requests: Rows, at: int, *, told: frozenset[str]) -> list[float | None]:
    return [
        int(requests[column][at]) / 1e6 if column in told else None
        for _, _, column, _ in REQUEST_TIMES
    ]


def _told(inference: InferenceStats) -> frozenset[str]:
    """Which of ``REQUEST_TIMES`` the hosts tell."""
    every = frozenset(column for _, _, column, _ in REQUEST_TIMES)
    # A server that makes no batches has no delay until one.
    batching = frozenset() if inference.batches.total else _BATCHING
    if inference.is_device_known:
        return every - batching
    if inference.is_gpu_known:
        # No runtime of GPUs records when it was called.
        return every - batching - {"runtime_ps"}
    return (
        frozenset(column for _, _, column, of_device in REQUEST_TIMES if not of_device) - batching
    )


def _requests_table(
    models: list[ModelStats], hosts: list[str], order: str, *, told: frozenset[str]
) -> Table:
    rows: list[list[Cell]] = []
    for one in models:
        requests = one.requests
        latency = requests.duration_ps
        for at, percentile in _shown(requests, order):
            rows.append(
                [
                    None if one.model == ALL_MODELS else one.model,
                    percentile,
                    hosts[int(requests["host"][at])],
                    int(requests["id"][at]),
                    int(requests["begin_ps"][at]) / 1e6,
                    int(latency[at]) / 1e6,
                    int(requests["size"][at]) or None,
                    *_request_times(requests, at, told=told),
                ]
            )
    return Table(
        columns=REQUEST_COLUMNS,
        rows=rows,
    )


def _request_averages_table(models: list[ModelStats], *, told: frozenset[str]) -> Table:
    rows: list[list[Cell]] = []
    for one in models:
        every: list[tuple[int | None, Average]] = [(None, one.request_average)]
        every += [(size.size, size.requests) for size in one.sizes]
        rows += [
            [
                None if one.model == ALL_MODELS else one.model,
                size,
                average.count,
                _finite(average.per_second),
                average.mean("duration_ps") / 1e6,
                average.mean("size") or None,
                *(
                    average.mean(column) / 1e6 if column in told else None
                    for _, _, column, _ in REQUEST_TIMES
                ),
            ]
            for size, average in every
            if average.count
        ]
    return Table(
        columns=REQUEST_AVERAGE_COLUMNS,
        rows=rows,
    )


def _batches_table(
    models: list[ModelStats], hosts: list[str], order: str, *, told: frozenset[str]
) -> Table:
    rows: list[list[Cell]] = []
    for one in models:
        batches = one.batches
        latency = batches.duration_ps
        for at, percentile in _shown(batches, order):
            padding, padded = int(batches["padding"][at]), int(batches["padded_size"][at])
            rows.append(
                [
                    None if one.model == ALL_MODELS else one.model,
                    percentile,
                    hosts[int(batches["host"][at])],
                    int(batches["id"][at]),
                    int(batches["begin_ps"][at]) / 1e6,
                    int(latency[at]) / 1e6,
                    padding if padded else None,
                    padded or None,
                    _efficiency(padding, padded),
                    int(batches["delay_ps"][at]) / 1e6,
                    int(batches["device_ps"][at]) / 1e6 if "device_ps" in told else None,
                    ", ".join(map(str, program_ids(batches, np.array([at])))) or None,
                ]
            )
    return Table(
        columns=BATCH_COLUMNS,
        rows=rows,
    )


def _batch_averages_table(models: list[ModelStats], *, told: frozenset[str]) -> Table:
    rows: list[list[Cell]] = []
    for one in models:
        every: list[tuple[int | None, Average]] = [(None, one.batch_average)]
        every += [(size.size, size.batches) for size in one.sizes]
        rows += [
            [
                None if one.model == ALL_MODELS else one.model,
                size,
                average.count,
                _finite(average.per_second),
                average.mean("duration_ps") / 1e6,
                average.mean("padding"),
                average.mean("padded_size"),
                _efficiency(average.sums["padding"], average.sums["padded_size"]),
                average.mean("delay_ps") / 1e6,
                average.mean("device_ps") / 1e6 if "device_ps" in told else None,
            ]
            for size, average in every
            if average.count
        ]
    return Table(
        columns=BATCH_AVERAGE_COLUMNS,
        rows=rows,
    )


def _tensors_table(models: list[ModelStats], patterns: tuple[str, ...]) -> Table:
    return Table(
        columns=(
            Column("model", "Model", "string"),
            Column("tensor_pattern", "Tensors", "string"),
            Column("occurrences", "Occurrences", "integer"),
            *(
                Column(f"{_percentile_id(p)}_us", f"{p:g}th percentile", "number", "us")
                for p in TENSOR_PERCENTILES
            ),
        ),
        rows=[
            (
                None if one.model == ALL_MODELS else one.model,
                patterns[found.pattern].replace("<br>", "; "),
                found.count,
                *(time / 1e6 for time in found.times_ps),
            )
            for one in models
            for found in one.tensors
        ],
    )


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> list[object]:
    """The tables that XProf's page reads: one of models, then two or three of each."""
    inference = stats.inference.as_reference()
    models = models_stats(inference, is_reference=True)
    has_batching = any(len(one.batches) for one in models)
    meta = XprofTable(
        [XprofColumn("model_name", "Model Name", "string")],
        [[one.model] for one in models],
        # The reference never says that there are patterns, and shows them.
        {"hasBatching": "true" if has_batching else "false", "hasTensorPattern": "false"},
    )
    request_order = REQUEST_ORDERS.get(parameters.get("request_column", LATENCY), "duration_ps")
    batch_order = BATCH_ORDERS.get(parameters.get("batch_column", LATENCY), "duration_ps")
    tables: list[object] = [meta.to_json()]
    for one in models:
        tables.append(_reference_requests(one, request_order, has_batching).to_json())
        if has_batching:
            tables.append(_reference_batches(one, batch_order).to_json())
        if inference.patterns:
            tables.append(_reference_tensors(one, inference.patterns).to_json())
    return tables


_REFERENCE_TIMES: Final = (
    ("host_preprocessing", "Host preprocess", "preprocess_ps"),
    ("host_runtime", "Host runtime", "runtime_ps"),
    ("data_transfer_h2d", "Data transfer H2D", "write_ps"),
    ("data_transfer_d2h", "Data transfer D2H", "read_ps"),
    ("device_compute", "Device compute", "device_ps"),
    ("host_postprocess", "Host postprocess", "postprocess_ps"),
    ("idle time", "Idle time", "idle_ps"),
)


def _reference_requests(one: ModelStats, order: str, has_batching: bool) -> XprofTable:
    columns = [
        XprofColumn("percentile", "Percentile", "string"),
        XprofColumn("request_id", "Request ID", "string"),
        XprofColumn("latency_ms", "Latency"),
    ]
    if has_batching:
        columns += [
            XprofColumn("batching_request_size", "Request size"),
            XprofColumn("host_batch_formation", "Host batch formation"),
            XprofColumn("throughput", "Throughput", "string"),
        ]
    columns += [XprofColumn(name, label) for name, label, _ in _REFERENCE_TIMES]
    columns.append(XprofColumn("trace_viewer_url", "Trace Viewer URL", "string"))
    requests = one.requests

    def row(
        percentile: str, request: str, get: "_Get", rate: str, device: "_Get | None" = None
    ) -> list[XprofCell]:
        batching: list[XprofCell] = [get("size"), get("delay_ps") / 1e9, rate]
        return [
            percentile,
            request,
            get("duration_ps") / 1e9,
            *(batching if has_batching else ()),
            *(
                (device if device and column == "device_ps" else get)(column) / 1e9
                for _, _, column in _REFERENCE_TIMES
            ),
            "",
        ]

    rows = [
        row(fixed(percentile, 3), str(int(requests["id"][at])), _Get(requests, at), "N/A")
        for at, percentile in _shown(requests, order)
    ]
    rows += [
        row(
            f"Batch size {size.size}",
            "N/A",
            _Get(size.requests),
            fixed(size.requests.per_second, 1),
            # The released reference shows what the batches computed here.
            _Get(size.batches),
        )
        for size in one.sizes
    ]
    average = one.request_average
    rows.append(row("Average", "N/A", _Get(average), fixed(average.per_second, 1)))
    return XprofTable(columns, rows, _rates(average))


class _Get:
    """Reads a column of one row, or of an average as the reference cuts it."""

    def __init__(self, source: Rows | Average, at: int = 0) -> None:
        self._source = source
        self._at = at

    def __call__(self, name: str) -> float:
        source = self._source
        if isinstance(source, Average):
            return source.whole(name)
        values: Int64s = source.duration_ps if name == "duration_ps" else source[name]
        return int(values[self._at])

    def total(self, name: str) -> float:
        """The sum, where it is an average's; else the same."""
        return self._source.sums[name] if isinstance(self._source, Average) else self(name)


def _rates(average: Average) -> dict[str, str]:
    return {
        "throughput": fixed(average.per_second, 1),
        "averageLatencyMs": fixed(average.mean("duration_ps") / 1e9, 3),
    }


def _reference_batches(one: ModelStats, order: str) -> XprofTable:
    kinds: tuple[tuple[str, str, Literal["string", "number"]], ...] = (
        ("percentile", "Percentile", "string"),
        ("batch_id", "Batch ID", "string"),
        ("latency", "Latency", "number"),
        ("padding_amount", "Padding amount", "number"),
        ("batch_size_after_padding", "Batch size after padding", "number"),
        ("batching_efficiency", "Batching efficiency", "number"),
        ("batching_delay_us", "Batching delay", "number"),
        ("throughput", "Throughput", "string"),
        ("device_compute", "Device compute", "number"),
        ("program_id", "Program ID(s)", "string"),
        ("trace_viewer_url", "Trace Viewer URL", "string"),
    )
    batches = one.batches

    def row(
        percentile: str, batch: str, get: _Get, rate: str, programs: str, url: str = ""
    ) -> list[XprofCell]:
        padding, padded = get.total("padding"), get.total("padded_size")
        return [
            percentile,
            batch,
            get("duration_ps") / 1e9,
            get("padding"),
            get("padded_size"),
            safe_divide(padded - padding, padded),
            # Milliseconds, whatever the column is called.
            get("delay_ps") / 1e9,
            rate,
            get("device_ps") / 1e9,
            programs,
            url,
        ]

    def joined(programs: tuple[int, ...]) -> str:
        return ", ".join(map(str, programs))

    rows = [
        row(
            fixed(percentile, 3),
            str(int(batches["id"][at])),
            _Get(batches, at),
            "N/A",
            joined(program_ids(batches, np.array([at]))),
        )
        for at, percentile in _shown(batches, order)
    ]
    rows += [
        row(
            f"Batch size {size.size}",
            "N/A",
            _Get(size.batches),
            fixed(size.batches.per_second, 1),
            joined(size.programs),
        )
        for size in one.sizes
    ]
    average = one.batch_average
    rate = fixed(average.per_second, 1)
    rows.append(row("Aggregated", "N/A", _Get(average), rate, "N/A", "N/A"))
    told = one.parameters
    properties = {**_rates(average), "hasBatchingParam": "true" if told else "false"}
    if told:
        properties |= {
            "batchingParamNumBatchThreads": str(told.num_batch_threads),
            "batchingParamMaxBatchSize": str(told.max_batch_size),
            "batchingParamBatchTimeoutMicros": str(told.batch_timeout_micros),
            "batchingParamMaxEnqueuedBatches": str(told.max_enqueued_batches),
            "batchingParamAllowedBatchSizes": told.allowed_batch_sizes,
        }
    return XprofTable([XprofColumn(*kind) for kind in kinds], rows, properties)


def _reference_tensors(one: ModelStats, patterns: tuple[str, ...]) -> XprofTable:
    rows: list[list[XprofCell]] = [
        [
            index,
            patterns[found.pattern],
            found.count,
            "<br>".join(
                f"{fixed(percentile, 2)}%: {fixed(time / 1e9, 6)}ms"
                for percentile, time in zip(TENSOR_PERCENTILES, found.times_ps, strict=True)
            ),
        ]
        for index, found in enumerate(one.tensors)
    ]
    return XprofTable(
        [
            XprofColumn("id", "ID"),
            XprofColumn("tensor_pattern", "Tensor Pattern", "string"),
            XprofColumn("count", "Number of Occurrence"),
            XprofColumn("percentile", "Linearize/Delinearize latency", "string"),
        ],
        rows,
    )
