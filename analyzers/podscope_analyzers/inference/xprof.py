"""The tables about requests and batches as XProf's data route gives them."""

from typing import Final, Literal

import numpy as np

from podscope_analyzers.inference.aggregate import (
    TENSOR_PERCENTILES,
    Average,
    ModelStats,
    program_ids,
)
from podscope_analyzers.inference.ordering import shown
from podscope_analyzers.inference.stats import Int64s, Rows
from podscope_analyzers.op_metrics.database import safe_divide
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable, fixed

_TIMES: Final = (
    ("host_preprocessing", "Host preprocess", "preprocess_ps"),
    ("host_runtime", "Host runtime", "runtime_ps"),
    ("data_transfer_h2d", "Data transfer H2D", "write_ps"),
    ("data_transfer_d2h", "Data transfer D2H", "read_ps"),
    ("device_compute", "Device compute", "device_ps"),
    ("host_postprocess", "Host postprocess", "postprocess_ps"),
    ("idle time", "Idle time", "idle_ps"),
)


def inference_json(
    models: list[ModelStats], patterns: tuple[str, ...], request_order: str, batch_order: str
) -> list[object]:
    """One table of models, then two or three of each.

    Args:
        models: As the reference counts them.
        patterns: Of tensors.
        request_order: Column that the requests are ordered by.
        batch_order: Column that the batches are ordered by.
    """
    has_batching = any(len(one.batches) for one in models)
    meta = XprofTable(
        [XprofColumn("model_name", "Model Name", "string")],
        [[one.model] for one in models],
        # The reference never says that there are patterns, and shows them.
        {"hasBatching": "true" if has_batching else "false", "hasTensorPattern": "false"},
    )
    tables: list[object] = [meta.to_json()]
    for one in models:
        tables.append(_requests_table(one, request_order, has_batching).to_json())
        if has_batching:
            tables.append(_batches_table(one, batch_order).to_json())
        if patterns:
            tables.append(_tensors_table(one, patterns).to_json())
    return tables


def _requests_table(one: ModelStats, order: str, has_batching: bool) -> XprofTable:
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
    columns += [XprofColumn(name, label) for name, label, _ in _TIMES]
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
                for _, _, column in _TIMES
            ),
            "",
        ]

    rows = [
        row(fixed(percentile, 3), str(int(requests["id"][at])), _Get(requests, at), "N/A")
        for at, percentile in shown(requests, order)
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


def _batches_table(one: ModelStats, order: str) -> XprofTable:
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
        return ", ".join(map(str, programs)) or "N/A"

    rows = [
        row(
            fixed(percentile, 3),
            str(int(batches["id"][at])),
            _Get(batches, at),
            "N/A",
            joined(program_ids(batches, np.array([at]))),
        )
        for at, percentile in shown(batches, order)
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


def _tensors_table(one: ModelStats, patterns: tuple[str, ...]) -> XprofTable:
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
