"""Annotations on a host's threads: spans that people and runtimes named, and no framework knows.

Operations of frameworks, of input pipelines and of compiled programs have results of their own, and
the frames of the Python tracer are no annotations; what is left is summed by name.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.kernels import natural_order, nest
from podscope_analyzers.kernels.groups import sum_groups
from podscope_analyzers.op_metrics.host import STAGE_ID
from podscope_analyzers.op_names import PYTHON_FRAME, OpCategory, parse_op_name
from podscope_analyzers.plane_views import OpLine, OpSpace, notable_columns
from podscope_analyzers.planes import HOST_PLANE

Int64s = npt.NDArray[np.int64]

MAX_NAMES: Final = 1000
"""Names kept of a host, and of all hosts together."""

# No runtime says which of its spans are its own. These are what XLA, PJRT, JAX and TensorFlow
# write; whatever else they write counts as the program's.
_RUNTIME: Final = re.compile(
    r".*::|end: |Pjit|PJRT_|PjRt|TFE_|Eager|Wait for |Handle |Allocate|Acquire |Release |"
    r"(?:Parallel\w+|Prefetch)(?:Produce|Consume)$|Memory(?:Dea|A)llocation$|"
    r"Enqueue\w*Program$|DoEnqueue|CompleteCallbacks|ExecutorDoneCallback|ParseArguments$|"
    r"DevicePut|shard_args$|cpp_pjit|FunctionRun$|ValidateInputType|BlockUntilReady$|ScheduleWork$|"
    r"(?:hip|cu|cuda)[A-Z]\w+$|Memcpy|LoadProgram$|MapDmaBuffer$|ReadSyncFlag$|"
    r"\w+:XLA [GTC]PU module"
)


@dataclass(frozen=True)
class Annotations:
    """Annotations by name, shape (n,) each.

    Attributes:
        names: What they are called.
        occurrences: How often.
        time_ps: Sum of the durations, over all threads.
        self_ps: The same less what the thread recorded within.
        max_ps: The longest one.
    """

    names: tuple[str, ...]
    occurrences: Int64s
    time_ps: Int64s
    self_ps: Int64s
    max_ps: Int64s

    def __len__(self) -> int:
        """How many names."""
        return len(self.names)

    @property
    def is_runtime(self) -> npt.NDArray[np.bool_]:
        """Which names are known to be a runtime's, shape (n,)."""
        return np.array([_RUNTIME.match(name) is not None for name in self.names], np.bool_)

    @classmethod
    def empty(cls) -> "Annotations":
        """None."""
        return cls((), *(np.zeros(0, np.int64) for _ in range(4)))

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {**vars(self), "names": list(self.names)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Annotations":
        """The annotations that ``to_state`` described."""
        return cls(**{**state, "names": tuple(state["names"])})

    @classmethod
    def combine(cls, parts: Iterable["Annotations"]) -> "Annotations":
        """Annotations of several hosts, or threads, by name."""
        given = [part for part in parts if len(part)]
        if not given:
            return cls.empty()
        rows: dict[str, int] = {}
        place = np.array(
            [rows.setdefault(name, len(rows)) for part in given for name in part.names], np.intp
        )
        longest = np.zeros(len(rows), np.int64)
        np.maximum.at(longest, place, np.concatenate([part.max_ps for part in given]))

        def total(columns: list[Int64s]) -> Int64s:
            sums = np.zeros(len(rows), np.int64)
            np.add.at(sums, place, np.concatenate(columns))
            return sums

        every = cls(
            names=tuple(rows),
            occurrences=total([part.occurrences for part in given]),
            time_ps=total([part.time_ps for part in given]),
            self_ps=total([part.self_ps for part in given]),
            max_ps=longest,
        )
        return every._cut()

    def _cut(self) -> "Annotations":
        """The program's first, then the runtimes', each by self time; not more than are kept."""
        by_name = sorted(range(len(self)), key=self.names.__getitem__)
        rank = np.empty(len(self), np.int64)
        rank[by_name] = np.arange(len(self))
        order = np.lexsort((rank, -self.self_ps, self.is_runtime))[:MAX_NAMES]
        return Annotations(
            tuple(self.names[row] for row in order.tolist()),
            self.occurrences[order],
            self.time_ps[order],
            self.self_ps[order],
            self.max_ps[order],
        )


def host_annotations(space: OpSpace) -> Annotations:
    """The annotations on the threads of one host."""
    found = []
    for plane in space.planes:
        if plane.name != HOST_PLANE:
            continue
        names = plane.event_metadata.names
        is_frame = np.array([name.startswith(PYTHON_FRAME) for name in names], np.bool_)
        is_named = np.array([_is_annotation(name) for name in names], np.bool_)
        found += [
            _line_annotations(line, names, is_frame, is_named)
            for line in plane.lines
            if not line.is_derived
        ]
    return Annotations.combine(found)


def _is_annotation(name: str) -> bool:
    if not name or name.startswith(PYTHON_FRAME):
        return False
    return parse_op_name(name).category == OpCategory.UNKNOWN


def _line_annotations(
    line: OpLine,
    names: list[str],
    is_frame: npt.NDArray[np.bool_],
    is_named: npt.NDArray[np.bool_],
) -> Annotations:
    columns = notable_columns(line, ("hlo_op", STAGE_ID))
    rows = np.flatnonzero(~is_frame[columns.metadata])
    # A repeated event that was only counted has no time.
    rows = rows[columns.occurrences[rows] == 0]
    start, duration = columns.start_ps[rows], columns.duration_ps[rows]
    order = natural_order(start, duration)
    if order is not None:
        rows, start, duration = rows[order], start[order], duration[order]
    counts = is_named[columns.metadata[rows]]
    for stat in ("hlo_op", STAGE_ID):
        counts &= ~columns.stat(stat).present()[rows]
    codes = np.where(counts, columns.metadata[rows], -1).astype(np.int32)
    sums = sum_groups(codes, len(names), duration, nest(start, duration).self_ps)
    longest = np.zeros(len(names), np.int64)
    np.maximum.at(longest, codes[counts], duration[counts])
    used = np.flatnonzero(sums.occurrences)
    return Annotations(
        tuple(names[row] for row in used.tolist()),
        sums.occurrences[used],
        sums.time_ps[used],
        sums.self_ps[used],
        longest[used],
    )
