"""What is kept of a host's tf.data pipelines: iterators, and every call of the pipelines' roots."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

SLOW_CALL_PS: Final = 50_000_000
"""A pipeline that takes longer for an element keeps a fast device waiting."""

_ASYNC: Final = frozenset(
    {
        "Prefetch",
        "ParallelInterleave",
        "ParallelMap",
        "ParseExample",
        "MapAndBatch",
        "DataService",
        "LegacyParallelInterleave",
        "ParallelBatch",
    }
)


_VERSION: Final = re.compile(r"V\d+\Z")


def without_version(name: str) -> str:
    """An iterator's kind without the version of its operation (``ParallelMapV2``)."""
    return _VERSION.sub("", name)


@dataclass(frozen=True)
class Iterator:
    """One node of a pipeline.

    Attributes:
        id: As traced; 0 for all whose id the reference cannot read.
        parent_id: The iterator that asks it for elements; 0 for none.
        long_name: With the iterators above it (``Iterator::Prefetch::Range``).
    """

    id: int
    parent_id: int
    long_name: str

    @property
    def name(self) -> str:
        """Its kind alone (``Range``)."""
        return self.long_name.rsplit("::", maxsplit=1)[-1]

    @property
    def is_async(self) -> bool:
        """Whether the reference knows that it works ahead: of first versions alone."""
        return self.name in _ASYNC

    @property
    def works_ahead(self) -> bool:
        """Whether it works on threads of its own."""
        return without_version(self.name) in _ASYNC


@dataclass(frozen=True)
class Pipeline:
    """The calls of one root iterator, the longest first.

    Attributes:
        name: ``Host:<n>`` or ``Device:<n>``, numbered by kind.
        is_device: Whether it feeds a device from a buffer of the device's own.
        duration_ps: Of every call, shape (c,).
        entries: Rows of the stats' columns of call i are ``entries[i]`` to ``entries[i + 1]``.
    """

    root_id: int
    name: str
    is_device: bool
    duration_ps: Int64s
    entries: Int64s

    @property
    def min_latency_ps(self) -> int:
        """The fastest call."""
        return int(self.duration_ps[-1])

    @property
    def max_latency_ps(self) -> int:
        """The slowest call."""
        return int(self.duration_ps[0])

    @property
    def average_latency_ps(self) -> int:
        """Mean over the calls, rounded down."""
        return int(self.duration_ps.sum()) // len(self.duration_ps)

    @property
    def slow_calls(self) -> int:
        """Calls above the threshold."""
        return int((self.duration_ps > SLOW_CALL_PS).sum())


@dataclass(frozen=True)
class TfDataStats:
    """The tf.data pipelines of one host.

    One row of the columns is one iterator in one call of a root; of shape (e,).

    Attributes:
        iterators: By id.
        root_ids: Root of each call, shape (c,); calls of a root are together, longest first.
        is_device: Of each call, shape (c,).
        call_ps: Duration of each call, shape (c,).
        entries: Where each call's rows begin, shape (c + 1,).
        iterator_ids: Of each row.
        start_ps: First call of the iterator for this root call.
        duration_ps: Sum over its calls.
        self_ps: The same without the iterators below it.
        calls: How often it was called.
        is_blocking: Whether the root call waited for it.
        is_complete: Whether every call was looked at.
    """

    iterators: Mapping[int, Iterator]
    root_ids: Int64s
    is_device: Bools
    call_ps: Int64s
    entries: Int64s
    iterator_ids: Int64s
    start_ps: Int64s
    duration_ps: Int64s
    self_ps: Int64s
    calls: Int64s
    is_blocking: Bools
    is_complete: bool = True

    @classmethod
    def empty(cls, iterators: Mapping[int, Iterator] | None = None) -> "TfDataStats":
        """No calls."""

        def none() -> Int64s:
            return np.zeros(0, np.int64)

        flags = np.zeros(0, np.bool_)
        return cls(
            iterators or {},
            none(),
            flags,
            none(),
            np.zeros(1, np.int64),
            none(),
            none(),
            none(),
            none(),
            none(),
            flags,
        )

    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines by ascending id of their roots."""
        found = []
        numbers = {True: 0, False: 0}
        first = np.flatnonzero(np.diff(self.root_ids, prepend=self.root_ids[:1] - 1))
        bounds = [*first.tolist(), len(self.root_ids)]
        for begin, end in pairwise(bounds):
            is_device = bool(self.is_device[begin])
            kind = "Device" if is_device else "Host"
            found.append(
                Pipeline(
                    root_id=int(self.root_ids[begin]),
                    name=f"{kind}:{numbers[is_device]}",
                    is_device=is_device,
                    duration_ps=self.call_ps[begin:end],
                    entries=self.entries[begin : end + 1],
                )
            )
            numbers[is_device] += 1
        return tuple(found)

    def bottleneck(self, begin: int, end: int) -> tuple[int, int]:
        """The iterator that a call waited for longest, and its self time; zeros for none.

        Args:
            begin: First of the call's rows.
            end: After the last of them.
        """
        own = np.where(self.is_blocking[begin:end], self.self_ps[begin:end], 0)
        if not len(own) or own.max() <= 0:
            return 0, 0
        row = int(own.argmax())
        return int(self.iterator_ids[begin + row]), int(own[row])

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        named = [[one.id, one.parent_id, one.long_name] for one in self.iterators.values()]
        return {**vars(self), "iterators": named}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "TfDataStats":
        """The stats that ``to_state`` described."""
        named = {
            int(own): Iterator(int(own), int(parent), str(name))
            for own, parent, name in state["iterators"]
        }
        return cls(**{**state, "iterators": named})
