"""Requests and batches of all hosts by model: rates, averages, tensor patterns."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from podscope_analyzers.inference.latency import throughput
from podscope_analyzers.inference.percentiles import at_percentiles
from podscope_analyzers.inference.stats import (
    PROGRAMS,
    REQUEST_TIMES,
    BatchingParameters,
    InferenceStats,
    Int64s,
    Rows,
)
from podscope_analyzers.sorted_values import distinct

TENSOR_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
_REQUEST_SUMS = ("duration_ps", "size", *REQUEST_TIMES)
_BATCH_SUMS = ("duration_ps", "delay_ps", "padding", "padded_size", "device_ps")


@dataclass(frozen=True)
class Average:
    """The mean of some requests or batches.

    Attributes:
        count: Of them.
        sums: By column, ``duration_ps`` among them.
        per_second: How many a second.
    """

    count: int
    sums: Mapping[str, int]
    per_second: float

    def whole(self, name: str) -> int:
        """The mean in whole units, cut towards 0; 0 of nothing."""
        if not self.count:
            return 0
        quotient = abs(self.sums[name]) // self.count
        return quotient if self.sums[name] >= 0 else -quotient

    def mean(self, name: str) -> float:
        """The mean; 0 of nothing."""
        return self.sums[name] / self.count if self.count else 0.0


@dataclass(frozen=True)
class BatchSize:
    """What ran in batches of one size, padding included; the programs from the first one on."""

    size: int
    requests: Average
    batches: Average
    programs: tuple[int, ...]


@dataclass(frozen=True)
class TensorTransfers:
    """How long it took to bring tensors of one pattern into another layout.

    Attributes:
        pattern: Index of the pattern.
        count: How often.
        times_ps: At ``TENSOR_PERCENTILES``.
    """

    pattern: int
    count: int
    times_ps: tuple[int, ...]


@dataclass(frozen=True)
class ModelStats:
    """One model's requests and batches.

    Attributes:
        requests: By duration, the shortest first.
        batches: Likewise.
        sizes: By the size of the batches, ascending; a request counts once per batch.
        tensors: In the order of their patterns.
        parameters: None where the server told none.
    """

    model: str
    requests: Rows
    batches: Rows
    request_average: Average
    batch_average: Average
    sizes: tuple[BatchSize, ...]
    tensors: tuple[TensorTransfers, ...]
    parameters: BatchingParameters | None


def models_stats(stats: InferenceStats, *, is_reference: bool) -> list[ModelStats]:
    """The stats of every model, by name.

    Args:
        stats: Of all hosts.
        is_reference: Whether batches of different hosts with one id are one, the longest, as the
            reference takes them.
    """
    requests = stats.model_rows(stats.requests)
    batches = stats.model_rows(stats.batches)
    return [
        _model_stats(stats, model, requests[model], batches[model], is_reference)
        for model in sorted(requests)
    ]


def _model_stats(
    stats: InferenceStats,
    model: str,
    requests: npt.NDArray[np.intp],
    batches: npt.NDArray[np.intp],
    is_reference: bool,
) -> ModelStats:
    request_average = _average(stats.requests, requests, _REQUEST_SUMS)
    batch_average = _average(stats.batches, batches, _BATCH_SUMS)
    return ModelStats(
        model=model,
        requests=stats.requests.take(requests),
        batches=stats.batches.take(batches),
        request_average=request_average,
        batch_average=batch_average,
        sizes=_sizes(stats, requests, batches, (request_average, batch_average), is_reference),
        tensors=_tensors(stats, model),
        parameters=stats.parameters.get(model),
    )


def _average(rows: Rows, of: npt.NDArray[np.intp], names: tuple[str, ...]) -> Average:
    weight = rows["weight"][of]

    def values(name: str) -> Int64s:
        return (rows.duration_ps if name == "duration_ps" else rows[name])[of]

    return Average(
        count=int(weight.sum()),
        sums={name: _sum(values(name), weight) for name in names},
        per_second=throughput(rows, of),
    )


def _sum(values: Int64s, weight: Int64s) -> int:
    """The weighted sum, which may need more than 64 bits."""
    high, low = values >> 24, values & 0xFF_FFFF
    return (int((high * weight).sum()) << 24) + int((low * weight).sum())


def _sizes(
    stats: InferenceStats,
    requests: npt.NDArray[np.intp],
    batches: npt.NDArray[np.intp],
    averages: tuple[Average, Average],
    is_reference: bool,
) -> tuple[BatchSize, ...]:
    size = stats.batches["padded_size"]
    is_mine = np.zeros(len(stats.requests), np.bool_)
    is_mine[requests] = True
    links = np.flatnonzero(is_mine[stats.link_request])
    linked = stats.link_request[links]
    width = int(max(stats.batches["id"].max(initial=0), stats.link_batch.max(initial=0))) + 1
    key, wanted = stats.batches["id"][batches], stats.link_batch[links]
    if not is_reference:
        key = key + stats.batches["host"][batches] * width
        wanted = wanted + stats.requests["host"][linked] * width
    # Of equal keys the last counts: the longest.
    known, last = np.unique(key[::-1], return_index=True)
    batch_of_key = batches[::-1][last]
    if not len(known):
        return ()
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    hit = known[at] == wanted
    linked, linked_size = linked[hit], size[batch_of_key[at[hit]]]
    found = []
    for one in distinct(size[batches]).tolist():
        of_size = _average(stats.requests, linked[linked_size == one], _REQUEST_SUMS)
        own = batches[size[batches] == one]
        batches_of_size = _average(stats.batches, own, _BATCH_SUMS)
        found.append(
            BatchSize(
                one,
                _share(of_size, averages[0]),
                _share(batches_of_size, averages[1]),
                program_ids(stats.batches, own),
            )
        )
    return tuple(found)


def program_ids(batches: Rows, rows: npt.NDArray[np.intp]) -> tuple[int, ...]:
    """The programs that some batches ran, each once, from the first one on."""
    table = np.stack([batches[name][rows] for name in PROGRAMS], axis=1)
    found = dict.fromkeys(int(number) for number in table[table != -1].tolist())
    return tuple(number & (2**64 - 1) for number in found)


def _share(part: Average, whole: Average) -> Average:
    """The part with its share of the whole's rate, by count."""
    if not whole.count:
        return Average(part.count, part.sums, 0.0)
    return Average(part.count, part.sums, part.count * whole.per_second / whole.count)


def _tensors(stats: InferenceStats, model: str) -> tuple[TensorTransfers, ...]:
    tensors = stats.tensors
    if stats.models:
        tensors = tensors.take(np.flatnonzero(tensors["model"] == stats.models.index(model)))
    order = np.argsort(tensors["time_ps"], kind="stable")
    found = []
    for pattern in distinct(tensors["pattern"]).tolist():
        rows = tensors.take(order[tensors["pattern"][order] == pattern])
        places = at_percentiles(rows["weight"], TENSOR_PERCENTILES)
        times = tuple(rows["time_ps"][places].tolist())
        found.append(TensorTransfers(pattern, rows.total, times))
    return tuple(found)
