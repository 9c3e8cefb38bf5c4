"""The tables about requests and batches in our own schema."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import numpy as np

from podscope_analyzers.inference.aggregate import (
    TENSOR_PERCENTILES,
    Average,
    BatchSize,
    ModelStats,
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
from podscope_analyzers.inference.ordering import shown
from podscope_analyzers.inference.percentiles import at_percentiles
from podscope_analyzers.inference.stats import ALL_MODELS, InferenceStats, Rows
from podscope_analyzers.result import Cell, Column, Table

_BATCHING: Final = frozenset({"delay_ps", "formation_ps"})
_LATENCIES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)


def told_times(inference: InferenceStats) -> frozenset[str]:
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


def _percentile_id(percentile: float) -> str:
    return f"p{percentile:g}".replace(".", "_")


def _efficiency(padding: float, padded_size: float) -> float | None:
    return (padded_size - padding) / padded_size if padded_size else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def models_table(models: list[ModelStats]) -> Table:
    """Rates, averages and batching parameters of every model."""
    rows: list[list[Cell]] = []
    for one in models:
        requests, batches = one.request_average, one.batch_average
        if not requests.count and not batches.count:
            continue
        told = one.parameters
        rows.append(
            [
                _name(one),
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
    return Table(MODEL_COLUMNS, rows)


def latency_table(models: list[ModelStats], *, told: frozenset[str]) -> Table:
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
                _name(one),
                percentile,
                int(requests.duration_ps[at]) / 1e6,
                *_request_times(requests, at, told=told),
            ]
            for percentile, at in places
        ]
    return Table(LATENCY_COLUMNS, rows)


def _request_times(requests: Rows, at: int, *, told: frozenset[str]) -> list[float | None]:
    return [
        int(requests[column][at]) / 1e6 if column in told else None
        for _, _, column, _ in REQUEST_TIMES
    ]


def requests_table(
    models: list[ModelStats], hosts: list[str], order: str, *, told: frozenset[str]
) -> Table:
    """The requests to show of every model, in the chosen order."""
    rows: list[list[Cell]] = []
    for one in models:
        requests = one.requests
        latency = requests.duration_ps
        for at, percentile in shown(requests, order):
            rows.append(
                [
                    _name(one),
                    percentile,
                    hosts[int(requests["host"][at])],
                    int(requests["id"][at]),
                    int(requests["begin_ps"][at]) / 1e6,
                    int(latency[at]) / 1e6,
                    int(requests["size"][at]) or None,
                    *_request_times(requests, at, told=told),
                ]
            )
    return Table(REQUEST_COLUMNS, rows)


def request_averages_table(models: list[ModelStats], *, told: frozenset[str]) -> Table:
    """The average request of every model, and by size of its batch."""
    rows: list[list[Cell]] = []
    for one in models:
        rows += [
            [
                _name(one),
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
            for size, average in _averages(one.request_average, one.sizes, "requests")
        ]
    return Table(REQUEST_AVERAGE_COLUMNS, rows)


def batches_table(
    models: list[ModelStats], hosts: list[str], order: str, *, told: frozenset[str]
) -> Table:
    """The batches to show of every model, in the chosen order."""
    rows: list[list[Cell]] = []
    for one in models:
        batches = one.batches
        latency = batches.duration_ps
        for at, percentile in shown(batches, order):
            padding, padded = int(batches["padding"][at]), int(batches["padded_size"][at])
            rows.append(
                [
                    _name(one),
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
    return Table(BATCH_COLUMNS, rows)


def batch_averages_table(models: list[ModelStats], *, told: frozenset[str]) -> Table:
    """The average batch of every model, and by size."""
    rows: list[list[Cell]] = []
    for one in models:
        rows += [
            [
                _name(one),
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
            for size, average in _averages(one.batch_average, one.sizes, "batches")
        ]
    return Table(BATCH_AVERAGE_COLUMNS, rows)


def tensors_table(models: list[ModelStats], patterns: tuple[str, ...]) -> Table:
    """How long tensors of each pattern took to be laid out, at percentiles."""
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
                _name(one),
                patterns[found.pattern].replace("<br>", "; "),
                found.count,
                *(time / 1e6 for time in found.times_ps),
            )
            for one in models
            for found in one.tensors
        ],
    )


def _averages(
    whole: Average, sizes: Sequence[BatchSize], of: Literal["requests", "batches"]
) -> Iterator[tuple[int | None, Average]]:
    """The average of all, without a size, then that of each size of batches that has any."""
    each = ((size.size, size.requests if of == "requests" else size.batches) for size in sizes)
    yield from ((size, one) for size, one in ((None, whole), *each) if one.count)


def _name(one: ModelStats) -> str | None:
    """The model's; None for all together."""
    return None if one.model == ALL_MODELS else one.model
