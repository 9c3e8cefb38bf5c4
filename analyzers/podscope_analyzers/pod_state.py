"""The partials of all hosts of a capture, combined as far as no later host can change it.

Results of a thousand hosts are made from this state without reading a thousand partials. It is a
list of segments: bytes that are written once and mapped into memory. A host that comes late adds a
segment of its own, which holds its rows and the operations of all hosts so far; nothing that was
written before is touched. What depends on all hosts at once (their order, the steps that they have
in common) is not in it, and made when it is read; so hosts may come in any order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from mmap import mmap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from podscope_analyzers.blocks import Blocks, pack_blocks
from podscope_analyzers.errors import PartialError
from podscope_analyzers.lazy import lazily
from podscope_analyzers.op_metrics.pod_ops import PodOps, merge
from podscope_analyzers.op_metrics.pod_step_times import PodStepTimes
from podscope_analyzers.partials import (
    PARTIAL_VERSION,
    PARTS,
    PLAIN,
    SECTIONS,
    HostPartial,
    from_plain,
    section_kind,
)
from podscope_analyzers.pipeline import ADD_CORES, Joint, combined_stats
from podscope_analyzers.steps import PodSteps, StepDatabase

if TYPE_CHECKING:
    from podscope_analyzers.capture_stats import CaptureStats
    from podscope_analyzers.op_metrics.database import OpDatabase
    from podscope_analyzers.steps import StepIntersection
    from podscope_analyzers.steps.alignment import Alignment
    from podscope_analyzers.steps.database import Int64s

POD_STATE_VERSION: Final = 1
MAX_SEGMENTS: Final = 32
"""Of more, reading all of them costs more than making one of them."""

# Rows of so many hosts are gathered at once.
_BATCH: Final = 64
# Not of the hosts' rows: joined to columns, or of no use to the whole.
_JOINED: Final = frozenset({*ADD_CORES, "steps", "summary"})
_ROWS: Final = tuple(name for name in SECTIONS if name not in _JOINED)


@dataclass(frozen=True)
class PodHost:
    """A host in the state.

    Attributes:
        host: Its name in the capture.
        digest: Of the partial that the state holds of it; told by the caller.
    """

    host: str
    digest: str


class PodState:
    """The combined state of some hosts.

    Args:
        segments: What ``newest`` gave, the oldest first.

    Raises:
        PartialError: a segment is damaged, of another version, or the list is not whole.
    """

    def __init__(self, segments: Sequence[bytes | memoryview | mmap]) -> None:
        self._buffers = tuple(segments)
        self._segments = [_Segment(buffer) for buffer in segments]
        at = 0
        for segment in self._segments:
            if segment.first_host != at:
                msg = "the stored combined result lacks a segment; it is made again"
                raise PartialError(msg)
            at += len(segment.hosts)

    @classmethod
    def of(cls, partials: Iterable[tuple[HostPartial, str]]) -> "PodState":
        """The state of some hosts, in any order; each is read once, when its turn comes.

        Args:
            partials: Each with its digest.
        """
        return cls([]).with_hosts(partials)

    @property
    def hosts(self) -> tuple[PodHost, ...]:
        """The hosts in it, in the order in which they came."""
        return tuple(host for segment in self._segments for host in segment.hosts)

    @property
    def segments(self) -> int:
        """How many segments it has."""
        return len(self._segments)

    @property
    def newest(self) -> memoryview:
        """The bytes of the segment that the last hosts added."""
        return memoryview(self._buffers[-1])

    def verify(self) -> None:
        """Read every byte.

        Raises:
            PartialError: some are not as they were written.
        """
        for segment in self._segments:
            segment.verify()

    def with_hosts(self, partials: Iterable[tuple[HostPartial, str]]) -> "PodState":
        """The same with more hosts, which add one segment.

        Raises:
            PartialError: one of the hosts is in it already.
        """
        known = {host.host for host in self.hosts}
        first = len(known)
        arriving = _Arriving(self._segments[-1].ops if self._segments else None)
        remaining = iter(partials)
        while some := list(islice(remaining, _BATCH)):
            for one, _ in some:
                if one.host in known:
                    msg = f"{one.host} is already in the combined result; it is made again"
                    raise PartialError(msg)
                known.add(one.host)
            arriving.add(some, [host.host for host in self.hosts])
        return PodState([*self._buffers, arriving.packed(first)])

    def stats(
        self, *, keep_incomplete_steps: bool = False, with_step_times: bool = True
    ) -> "CaptureStats":
        """The stats of all its hosts, as ``pipeline.combine`` makes them of their partials."""
        joint = Joint(
            ops={name: partial(self._database, name, with_step_times) for name in ADD_CORES},
            steps=self._common_steps,
            compared=lambda: self._compared,
            has_incomplete=lambda: bool(self._steps.cut_steps().any()),
            step_numbers=self._step_numbers if with_step_times else None,
        )
        return combined_stats(
            self._ordered_partials, joint, keep_incomplete_steps=keep_incomplete_steps
        )

    @cached_property
    def _order(self) -> "Int64s":
        """Numbers of the hosts by name."""
        names = [host.host for host in self.hosts]
        return np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)

    @cached_property
    def _ordered_partials(self) -> list[HostPartial]:
        every = [one for segment in self._segments for one in segment.partials()]
        return [every[number] for number in self._order.tolist()]

    def _database(self, name: str, with_step_times: bool) -> "OpDatabase":
        ops = self._segments[-1].ops(name).database()
        if not with_step_times or self._compared is not None:
            return ops
        by_host = PodStepTimes.concatenate([one.step_times(name) for one in self._segments])
        found = self._complete_steps
        # The intersection is in the order of names, the columns are in that of arrival.
        first = np.empty(len(self._order), np.int64)
        first[self._order] = found.first_step
        return replace(ops, step_times=by_host.common(ops, first, found.step_count))

    @cached_property
    def _complete_steps(self) -> "StepIntersection":
        return self._steps.intersection(self._order, keep_incomplete=False)

    @cached_property
    def _compared(self) -> "tuple[StepDatabase, Alignment] | None":
        return self._steps.compared(self._order) if len(self._order) > 1 else None

    def _step_numbers(self) -> "list[Int64s]":
        if self._compared is not None:
            return [np.zeros(0, np.int64)] * len(self._order)
        return self._steps.step_numbers(self._order, self._complete_steps)

    @cached_property
    def _steps(self) -> PodSteps:
        return PodSteps.concatenate([segment.steps for segment in self._segments])

    def _common_steps(self, keep_incomplete: bool) -> StepDatabase:
        if len(self._order) == 1:
            own = self._steps.host(0)
            return own if keep_incomplete else own.without_incomplete_steps()
        return self._steps.common(self._order, keep_incomplete=keep_incomplete)


class _Segment:
    """One segment as it is read."""

    def __init__(self, buffer: bytes | memoryview | mmap) -> None:
        self._blocks = Blocks(buffer)
        about = self._blocks.state("about")
        versions = (about.get("version"), about.get("partial_version"))
        if versions != (POD_STATE_VERSION, PARTIAL_VERSION):
            msg = f"the stored combined result has version {versions}; it is made again"
            raise PartialError(msg)
        self.first_host = int(about["first_host"])
        self.hosts = tuple(PodHost(*host) for host in about["hosts"])
        self._states: dict[str, list[Any]] = {}
        self._ops: dict[str, PodOps] = {}

    def verify(self) -> None:
        """Check every block."""
        self._blocks.verify()

    def ops(self, name: str) -> PodOps:
        """Operations of this segment's hosts and of all before."""
        if name not in self._ops:
            self._ops[name] = PodOps.from_state(self._blocks.state(name))
        return self._ops[name]

    def step_times(self, name: str) -> PodStepTimes:
        """Times by step of this segment's hosts."""
        return PodStepTimes.from_state(self._blocks.state(f"{name}.steps"))

    @cached_property
    def steps(self) -> PodSteps:
        """Steps of this segment's hosts."""
        return PodSteps.from_state(self._blocks.state("steps"))

    def partials(self) -> Iterator[HostPartial]:
        """This segment's hosts, each section read when it is asked for."""
        for at, host in enumerate(self.hosts):
            yield lazily(
                HostPartial,
                {
                    **{name: partial(self._section, name, at) for name in _ROWS},
                    **{name: partial(self._row, name, at) for name in PLAIN},
                    **dict.fromkeys(PARTS, _nothing),
                    "steps": partial(self._own_steps, at),
                    "host": partial(str, host.host),
                },
            )

    def _rows(self, name: str) -> list[Any]:
        if name not in self._states:
            self._states[name] = self._blocks.state(name)["hosts"]
        return self._states[name]

    def _section(self, name: str, at: int) -> Any:
        return section_kind(name).from_state(self._rows(name)[at])

    def _row(self, name: str, at: int) -> Any:
        return from_plain(name, self._rows(name)[at])

    def _own_steps(self, at: int) -> StepDatabase:
        return self.steps.host(at)


class _Arriving:
    """Hosts on their way into a segment."""

    def __init__(self, before: Callable[[str], PodOps] | None) -> None:
        self._ops = {} if before is None else {name: before(name) for name in ADD_CORES}
        self._hosts: list[PodHost] = []
        self._steps: list[PodSteps] = []
        self._step_times: dict[str, list[PodStepTimes]] = {name: [] for name in ADD_CORES}
        self._rows: dict[str, list[Any]] = {name: [] for name in (*_ROWS, *PLAIN)}

    def add(self, partials: Sequence[tuple[HostPartial, str]], before: Sequence[str]) -> None:
        """Some hosts more, after those that are in older segments."""
        first = len(before) + len(self._hosts)
        self._hosts += [PodHost(one.host, digest) for one, digest in partials]
        names = [*before, *(host.host for host in self._hosts)]
        rank = np.empty(len(names), np.int64)
        rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        for name, add_cores in ADD_CORES.items():
            databases = [(first + n, getattr(one, name)) for n, (one, _) in enumerate(partials)]
            some = PodOps.of_hosts(databases, rank, add_cores=add_cores)
            if name in self._ops:
                some = merge([self._ops[name], some], rank, add_cores=add_cores)
            self._ops[name] = some
            by_step = PodStepTimes.of([(getattr(one, name), one.steps) for one, _ in partials])
            self._step_times[name].append(by_step)
        self._steps.append(PodSteps.of([one.steps for one, _ in partials]))
        for one, _ in partials:
            plain = one.plain_state()
            for name, rows in self._rows.items():
                rows.append(plain[name] if name in plain else getattr(one, name).to_state())

    def packed(self, first_host: int) -> bytes:
        """The segment's bytes."""
        about = {
            "version": POD_STATE_VERSION,
            "partial_version": PARTIAL_VERSION,
            "first_host": first_host,
            "hosts": [[host.host, host.digest] for host in self._hosts],
        }
        empty = PodOps.of_hosts([], np.zeros(0, np.int64), add_cores=True)
        steps = PodSteps.concatenate(self._steps or [PodSteps.of([])])
        step_times = {
            name: PodStepTimes.concatenate(parts or [PodStepTimes.of([])])
            for name, parts in self._step_times.items()
        }
        return pack_blocks(
            {
                "about": about,
                **{name: self._ops.get(name, empty).to_state() for name in ADD_CORES},
                **{f"{name}.steps": times.to_state() for name, times in step_times.items()},
                "steps": steps.to_state(),
                **{name: {"hosts": rows} for name, rows in self._rows.items()},
            }
        )


def _nothing() -> None:
    return None
