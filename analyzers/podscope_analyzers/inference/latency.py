"""The latency table of the overview."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.inference.percentiles import at_percentiles
from podscope_analyzers.inference.stats import InferenceStats, Int64s, Rows

PERCENTILES: Final = (50.0, 75.0, 90.0, 99.0, 99.9)


@dataclass(frozen=True)
class LatencyRow:
    """One row of the latency table, microseconds.

    Attributes:
        percentile: None for the average.
    """

    percentile: float | None
    host_us: float
    device_us: float
    communication_us: float
    total_us: float


@dataclass(frozen=True)
class Latency:
    """Latency of the requests of all models.

    Attributes:
        rows: One per percentile, then the average; none without requests.
        sessions_per_second: Requests answered, summed over the models.
    """

    rows: tuple[LatencyRow, ...] = ()
    sessions_per_second: float = 0.0


def latency(stats: InferenceStats) -> Latency:
    """Percentiles and average of the requests' latency, and what it was spent on."""
    requests, by_model = stats.requests, stats.model_rows(stats.requests)
    rows = np.concatenate([np.zeros(0, np.intp), *by_model.values()])
    if not len(rows):
        return Latency()
    rows = rows[np.argsort(requests.duration_ps[rows], kind="stable")]
    chosen = requests.take(rows)
    total = chosen.duration_ps / 1e6
    device = chosen["device_ps"] / 1e6
    talking = (chosen["write_ps"] + chosen["read_ps"]) / 1e6
    table = np.stack([total - device - talking, device, talking, total])
    weight = chosen["weight"]
    places = at_percentiles(weight, PERCENTILES)
    average = (table * weight).sum(axis=1) / weight.sum()
    picked = zip(PERCENTILES, places.tolist(), strict=True)
    return Latency(
        rows=(
            *(LatencyRow(percentile, *table[:, at].tolist()) for percentile, at in picked),
            LatencyRow(None, *average.tolist()),
        ),
        sessions_per_second=sum(throughput(requests, found) for found in by_model.values()),
    )


def throughput(rows: Rows, of: Int64s) -> float:
    """How many rows a second, from the first begin to the last end; 0 for no rows.

    Rows that all begin and end at one moment are infinitely many, as the reference has it.
    """
    if not len(of):
        return 0.0
    span_ps = int(rows["end_ps"][of].max()) - int(rows["begin_ps"][of].min())
    count = int(rows["weight"][of].sum())
    return count / (span_ps / 1e12) if span_ps > 0 else float("inf")
