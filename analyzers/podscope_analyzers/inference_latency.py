"""Requests that a serving job answered, and the latency table of the overview."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

PERCENTILES: Final = (50.0, 75.0, 90.0, 99.0, 99.9)
ALL_MODELS: Final = "ALL"


def _no_ints() -> Int64s:
    return np.zeros(0, np.int64)


@dataclass(frozen=True)
class Requests:
    """Requests as columns of shape (n,); times in picoseconds.

    Attributes:
        model: Index into ``models``; -1 when the request names none.
        device_ps: Computing on the device.
        write_ps: Copies to the device.
        read_ps: Copies from the device.
    """

    models: tuple[str, ...]
    model: Int64s
    begin_ps: Int64s
    end_ps: Int64s
    device_ps: Int64s
    write_ps: Int64s
    read_ps: Int64s

    def __len__(self) -> int:
        """How many requests."""
        return len(self.begin_ps)

    @classmethod
    def empty(cls) -> "Requests":
        """No requests."""
        return cls((), *(_no_ints() for _ in range(6)))

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {**vars(self), "models": list(self.models)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Requests":
        """The requests that ``to_state`` described."""
        return cls(**{**state, "models": tuple(state["models"])})

    @classmethod
    def combine(cls, hosts: Iterable["Requests"]) -> "Requests":
        """The requests of several hosts; equal model names are one model."""
        parts = [part for part in hosts if len(part)]
        if not parts:
            return cls.empty()
        models = tuple(dict.fromkeys(name for part in parts for name in part.models))
        renumbered = [
            np.array([*(models.index(name) for name in part.models), -1], np.int64)[part.model]
            for part in parts
        ]
        return cls(
            models,
            np.concatenate(renumbered),
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("begin_ps", "end_ps", "device_ps", "write_ps", "read_ps")
            ),
        )

    def by_model(self) -> dict[str, Int64s]:
        """Rows of every model; requests that name none count only when no model is named."""
        if not self.models:
            return {ALL_MODELS: np.arange(len(self))} if len(self) else {}
        rows = {name: np.flatnonzero(self.model == i) for i, name in enumerate(self.models)}
        return {name: found for name, found in rows.items() if len(found)}


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
    min_total_us: float = 0.0
    max_total_us: float = 0.0


def latency(requests: Requests) -> Latency:
    """Percentiles and average of the requests' latency, and what it was spent on."""
    rows = np.concatenate([_no_ints(), *requests.by_model().values()])
    if not len(rows):
        return Latency()
    total = requests.end_ps[rows] - requests.begin_ps[rows]
    rows = rows[np.argsort(total, kind="stable")]
    total = (requests.end_ps[rows] - requests.begin_ps[rows]) / 1e6
    device = requests.device_ps[rows] / 1e6
    talking = (requests.write_ps[rows] + requests.read_ps[rows]) / 1e6
    host = total - device - talking
    table = np.stack([host, device, talking, total])
    picked = [LatencyRow(p, *table[:, int(p / 100 * len(rows))].tolist()) for p in PERCENTILES]
    return Latency(
        rows=(*picked, LatencyRow(None, *table.mean(axis=1).tolist())),
        sessions_per_second=sum(
            _throughput(requests, found) for found in requests.by_model().values()
        ),
        min_total_us=float(total[0]),
        max_total_us=float(total[-1]),
    )


def _throughput(requests: Requests, rows: Int64s) -> float:
    span_ps = int(requests.end_ps[rows].max() - requests.begin_ps[rows].min())
    return len(rows) / (span_ps / 1e12) if span_ps > 0 else 0.0
