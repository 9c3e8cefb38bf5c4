"""Requests that a serving job answered: how long, spent on what, in which batches."""

from collections.abc import Mapping
from typing import Any, Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.inference.aggregate import models_stats
from podscope_analyzers.inference.ordering import BATCH_ORDERS, LATENCY, REQUEST_ORDERS
from podscope_analyzers.inference.tables import (
    batch_averages_table,
    batches_table,
    latency_table,
    models_table,
    request_averages_table,
    requests_table,
    tensors_table,
    told_times,
)
from podscope_analyzers.inference.xprof import inference_json
from podscope_analyzers.result import Reason, Scope, ToolResult

NAME: Final = "inference_profile"
VERSION: Final = 4
PARAMETERS: Final = {
    "request_column": "what the shown requests are ordered by, such as 'Device compute'; "
    "default 'Latency'",
    "batch_column": "what the shown batches are ordered by, such as 'Batching delay'; "
    "default 'Latency'",
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
    told = told_times(inference)
    tables = {
        "models": models_table(models),
        "latency": latency_table(models, told=told),
        "requests": requests_table(models, hosts, request_order, told=told),
        "request_averages": request_averages_table(models, told=told),
        "batches": batches_table(models, hosts, batch_order, told=told),
        "batch_averages": batch_averages_table(models, told=told),
        "tensors": tensors_table(models, inference.patterns),
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


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> list[object]:
    """The tables that XProf's page reads: one of models, then two or three of each."""
    inference = stats.inference.as_reference()
    return inference_json(
        models_stats(inference, is_reference=True),
        inference.patterns,
        REQUEST_ORDERS.get(parameters.get("request_column", LATENCY), "duration_ps"),
        BATCH_ORDERS.get(parameters.get("batch_column", LATENCY), "duration_ps"),
    )
