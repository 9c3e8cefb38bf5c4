"""What is known of the requests of a host, or of several, small enough to keep and to combine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

ALL_MODELS: Final = "ALL"
MAX_HOST_ROWS: Final = 4096
"""Requests, batches and tensor transfers kept of a host, each."""
MAX_ROWS: Final = 250_000
"""Likewise of all hosts together; beyond, every host keeps its share."""
MAX_MODELS: Final = 256
MAX_PATTERNS: Final = 256
MAX_PROGRAMS: Final = 8
"""Programs kept of a batch, and told of it."""

REQUEST_TIMES: Final = (
    "delay_ps",
    "preprocess_ps",
    "formation_ps",
    "runtime_ps",
    "write_ps",
    "read_ps",
    "device_ps",
    "postprocess_ps",
    "idle_ps",
)
REQUEST_COLUMNS: Final = (
    "id", "host", "model", "begin_ps", "end_ps", "size", *REQUEST_TIMES, "weight",
)  # fmt: skip
PROGRAMS: Final = tuple(f"program_{n}" for n in range(MAX_PROGRAMS))
BATCH_COLUMNS: Final = (
    "id", "host", "model", "begin_ps", "end_ps", "delay_ps", "padding", "padded_size",
    "device_ps", *PROGRAMS, "weight",
)  # fmt: skip
TENSOR_COLUMNS: Final = ("model", "pattern", "time_ps", "weight")


@dataclass(frozen=True)
class Rows:
    """Columns of one length, by name."""

    columns: Mapping[str, Int64s]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.columns["weight"])

    def __getitem__(self, name: str) -> Int64s:
        """One column, shape (n,)."""
        return self.columns[name]

    @classmethod
    def of(cls, names: Sequence[str], columns: Mapping[str, npt.ArrayLike]) -> "Rows":
        """Rows of some columns; what is not given is 0, the weight 1."""
        count = len(np.asarray(next(iter(columns.values()))))
        full = {name: np.zeros(count, np.int64) for name in names}
        full["weight"] = np.ones(count, np.int64)
        for name, values in columns.items():
            full[name] = np.asarray(values, np.int64)
        return cls(full)

    @classmethod
    def none(cls, names: Sequence[str]) -> "Rows":
        """No rows."""
        return cls.of(names, {"weight": np.zeros(0, np.int64)})

    @property
    def duration_ps(self) -> Int64s:
        """End less begin, shape (n,)."""
        return self["end_ps"] - self["begin_ps"]

    @property
    def total(self) -> int:
        """How many there were, those left out too."""
        return int(self["weight"].sum())

    def take(self, rows: npt.NDArray[np.intp]) -> "Rows":
        """Some of the rows."""
        return Rows({name: values[rows] for name, values in self.columns.items()})

    def with_column(self, name: str, values: Int64s) -> "Rows":
        """The same with one column replaced."""
        return Rows({**self.columns, name: values})

    @classmethod
    def join(cls, parts: Sequence["Rows"]) -> "Rows":
        """The rows of several, one after the other."""
        return cls(
            {name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns}
        )


def by_duration(rows: Rows) -> npt.NDArray[np.intp]:
    """Rows by duration, then by begin; equal ones stay in their order."""
    return np.lexsort((rows["begin_ps"], rows.duration_ps))


def sampled(order: npt.NDArray[np.intp], rows: Rows, limit: int) -> tuple[Int64s, Int64s]:
    """Which of ordered rows stay when there are too many, and what each stands for.

    The last half of what may stay is kept as it is: the slow end of a distribution is where
    each row counts. Of the rest every k-th stays and stands for its neighbours.

    Args:
        order: All rows of one distribution, ascending.
        rows: With their weights.
        limit: How many may stay.

    Returns:
        The rows that stay, in order, and their weights.
    """
    weight = rows["weight"][order]
    if len(order) <= limit:
        return order, weight
    exact = max(limit // 2, 1)
    head, tail = order[:-exact], order[-exact:]
    slots = np.arange(len(head)) * max(limit - exact, 1) // len(head)
    first = np.flatnonzero(np.diff(slots, prepend=-1))
    middle = (first + np.append(first[1:], len(head)) - 1) // 2
    sums = np.add.reduceat(weight[:-exact], first)
    return np.concatenate([head[middle], tail]), np.concatenate([sums, weight[-exact:]])


@dataclass(frozen=True)
class BatchingParameters:
    """How a model's server was told to batch."""

    num_batch_threads: int = 0
    batch_timeout_micros: int = 0
    max_batch_size: int = 0
    max_enqueued_batches: int = 0
    allowed_batch_sizes: str = ""


@dataclass(frozen=True)
class InferenceStats:
    """Requests, batches and transfers of tensors.

    Attributes:
        models: Names, by index. A row's model is -1 when it names none.
        requests: Rows of ``REQUEST_COLUMNS``: times are exclusive, what has a higher priority
            wins. ``id`` is the group. A row of weight 0 only widens the span of its model.
        batches: Rows of ``BATCH_COLUMNS``; ids of programs from the first that ran, -1 for no more.
        link_request: Row of the request of every pair of a request and a batch, shape (k,).
        link_batch: The batch's id, on the request's host, shape (k,).
        patterns: Which tensors were transferred together.
        tensors: Rows of ``TENSOR_COLUMNS``, one per request or batch that transferred some.
        parameters: By model, where the server told.
        is_device_known: Whether any host has TPUs, of which the reference tells the times.
        is_gpu_known: Whether any host has GPUs, of which it tells none.
    """

    models: tuple[str, ...] = ()
    requests: Rows = field(default_factory=lambda: Rows.none(REQUEST_COLUMNS))
    batches: Rows = field(default_factory=lambda: Rows.none(BATCH_COLUMNS))
    link_request: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    link_batch: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    patterns: tuple[str, ...] = ()
    tensors: Rows = field(default_factory=lambda: Rows.none(TENSOR_COLUMNS))
    parameters: Mapping[str, BatchingParameters] = field(default_factory=dict)
    is_device_known: bool = False
    is_gpu_known: bool = False

    def as_reference(self) -> "InferenceStats":
        """The same as the reference has them: without what GPUs did for the requests."""
        if not self.is_gpu_known or self.is_device_known:
            return self
        return replace(
            self,
            requests=_zeroed(self.requests, _DEVICE_TIMES),
            batches=_zeroed(self.batches, ("device_ps",)),
        )

    @property
    def is_sampled(self) -> bool:
        """Whether rows stand for more than themselves."""
        return any(bool((rows["weight"] != 1).any()) for rows in (self.requests, self.batches))

    def model_rows(self, rows: Rows) -> dict[str, npt.NDArray[np.intp]]:
        """Rows of every model, by duration; without any named model all are of one.

        Rows that name none count only when no model is named.
        """
        order = by_duration(rows)
        if not self.models:
            return {ALL_MODELS: order}
        model = rows["model"][order]
        return {name: order[model == index] for index, name in enumerate(self.models)}

    def bounded(self, limit: int) -> "InferenceStats":
        """The same with at most so many requests and batches, and as many tensor transfers."""
        if max(len(self.requests), len(self.batches), len(self.tensors)) <= limit:
            return self
        requests, kept = _thin(self.requests, self.model_rows(self.requests), limit)
        batches, _ = _thin(self.batches, self.model_rows(self.batches), limit)
        place = np.full(len(self.requests), -1, np.int64)
        place[kept] = np.arange(len(kept))
        links = np.flatnonzero(place[self.link_request] >= 0)
        tensors = self.tensors
        if len(tensors) > limit:
            order = np.argsort(tensors["time_ps"], kind="stable")
            rows, weight = sampled(order, tensors, limit)
            tensors = tensors.take(rows).with_column("weight", weight)
        return replace(
            self,
            requests=requests,
            batches=batches,
            link_request=place[self.link_request[links]],
            link_batch=self.link_batch[links],
            tensors=tensors,
        )

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {
            "models": list(self.models),
            "requests": dict(self.requests.columns),
            "batches": dict(self.batches.columns),
            "link_request": self.link_request,
            "link_batch": self.link_batch,
            "patterns": list(self.patterns),
            "tensors": dict(self.tensors.columns),
            "parameters": [[name, vars(told)] for name, told in self.parameters.items()],
            "is_device_known": self.is_device_known,
            "is_gpu_known": self.is_gpu_known,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "InferenceStats":
        """The stats that ``to_state`` described."""
        return cls(
            models=tuple(state["models"]),
            requests=Rows({name: state["requests"][name] for name in REQUEST_COLUMNS}),
            batches=Rows({name: state["batches"][name] for name in BATCH_COLUMNS}),
            link_request=state["link_request"],
            link_batch=state["link_batch"],
            patterns=tuple(state["patterns"]),
            tensors=Rows({name: state["tensors"][name] for name in TENSOR_COLUMNS}),
            parameters={name: BatchingParameters(**told) for name, told in state["parameters"]},
            is_device_known=bool(state["is_device_known"]),
            # Hosts of before this was told say nothing of their GPUs.
            is_gpu_known=bool(state.get("is_gpu_known", False)),
        )

    @classmethod
    def combine(cls, hosts: Iterable["InferenceStats"]) -> "InferenceStats":
        """The stats of several hosts; equal models and patterns are one."""
        parts = list(hosts)
        limit = max(MAX_ROWS // max(len(parts), 1), 64)
        parts = [part.bounded(limit) for part in parts] if len(parts) > 1 else parts
        if len(parts) == 1:
            return parts[0]
        models = tuple(dict.fromkeys(name for part in parts for name in part.models))
        patterns = tuple(dict.fromkeys(name for part in parts for name in part.patterns))
        combined = cls(models=models, patterns=patterns)
        if not parts:
            return combined
        model_of = {name: index for index, name in enumerate(models)}
        pattern_of = {name: index for index, name in enumerate(patterns)}
        requests, batches, tensors, links = [], [], [], []
        first = 0
        for host, part in enumerate(parts):
            # The last one is for rows without a model.
            renumbered = np.array([*(model_of[name] for name in part.models), -1], np.int64)
            known = len(part.models) > 0

            def of_host(rows: Rows, host: int = host) -> Rows:
                return rows.with_column("host", np.full(len(rows), host, np.int64))

            def named(rows: Rows, known: bool = known, new: Int64s = renumbered) -> Rows:
                return rows.with_column("model", new[rows["model"]]) if known else rows

            requests.append(of_host(named(part.requests)))
            batches.append(of_host(named(part.batches)))
            pattern = np.array([pattern_of[name] for name in part.patterns] or [0], np.int64)
            tensors.append(
                named(part.tensors).with_column("pattern", pattern[part.tensors["pattern"]])
            )
            links.append(part.link_request + first)
            first += len(part.requests)
        return replace(
            combined,
            requests=Rows.join(requests),
            batches=Rows.join(batches),
            link_request=np.concatenate(links),
            link_batch=np.concatenate([part.link_batch for part in parts]),
            tensors=Rows.join(tensors),
            parameters={k: v for part in parts for k, v in part.parameters.items()},
            is_device_known=any(part.is_device_known for part in parts),
            is_gpu_known=any(part.is_gpu_known for part in parts),
        )


_DEVICE_TIMES = ("preprocess_ps", "write_ps", "read_ps", "device_ps", "postprocess_ps", "idle_ps")


def _zeroed(rows: Rows, columns: Iterable[str]) -> Rows:
    for name in columns:
        rows = rows.with_column(name, np.zeros(len(rows), np.int64))
    return rows


def _thin(
    rows: Rows, by_model: Mapping[str, npt.NDArray[np.intp]], limit: int
) -> tuple[Rows, npt.NDArray[np.intp]]:
    """At most so many rows, each model's share of them, and which they are."""
    total = sum(len(found) for found in by_model.values())
    if total <= limit:
        return rows, np.arange(len(rows))
    kept: list[Int64s] = []
    weights: list[Int64s] = []
    for found in by_model.values():
        if not len(found):
            continue
        chosen, weight = sampled(found, rows, max(limit * len(found) // total, 4))
        # What begins first and ends last says how long all of them took.
        ends = np.array([found[rows["begin_ps"][found].argmin()],
                         found[rows["end_ps"][found].argmax()]])  # fmt: skip
        extra = np.setdiff1d(ends, chosen)
        kept += [chosen, extra]
        weights += [weight, np.zeros(len(extra), np.int64)]
    place = np.concatenate(kept).astype(np.intp)
    return rows.take(place).with_column("weight", np.concatenate(weights)), place
