"""An XSpace made ready for analysis: events grouped into steps, derived lines added.

The prepared planes and lines answer as the XSpace's own do, and say more: the group of every
event, whether it ran eagerly, the names of steps.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.kernels import factorise, nest
from podscope_analyzers.kernels.forest import spread_kept
from podscope_analyzers.planes import (
    HOST_PLANE,
    TPU_PREFIX,
    is_derived_line,
    is_gpu,
)
from podscope_analyzers.prepared_metadata import PreparedMetadata
from podscope_analyzers.xspace import (
    Columns,
    Line,
    Plane,
    Sieve,
    Sifted,
    Survey,
    XSpace,
)
from podscope_analyzers.xspace.columns import Int32s, Int64s
from podscope_analyzers.xspace.metadata import StatValue

Int8s = NDArray[np.int8]
DerivedStat = tuple[NDArray[np.bool_], Int64s | NDArray[np.uint64] | NDArray[np.float64]]

ABSENT = -1


class GroupNames(Protocol):
    """The names of groups by id."""

    def name(self, group_id: int) -> str:
        """Name of a group; empty for an id that is none."""


class PreparedLine:
    """A line with what grouping found; derived lines are of the same kind.

    Attributes:
        plane: The plane that the line is of.
        source: The XSpace's own line; None for a derived one.
        is_stored: Whether it is that line with its events in their order.
        id: As stored, or one of the derived ids.
        event_count: Events, added ones included.
        source_events: Index of every event in the stored line, -1 for an added one, shape
            (n,); None when they are the stored events in their order.
        notable_groups: Groups of the ``notable`` events, where grouping worked on these, -1 for
            none, shape (k,).
    """

    def __init__(
        self,
        plane: "PreparedPlane",
        source: Line | None,
        *,
        name: str,
        line_id: int,
        event_count: int,
        decode: Callable[[Iterable[str]], Columns],
        display_name: str = "",
        display_id: int = 0,
        timestamp_ns: int = 0,
        source_events: Int64s | None = None,
        is_stored: bool = False,
        own_stats: Mapping[str, DerivedStat] | None = None,
    ) -> None:
        self.is_stored = is_stored
        self.plane = plane
        self.source = source
        self.id = line_id
        self.name = name
        self.display_id = display_id
        self.display_name = display_name
        self.timestamp_ns = timestamp_ns
        self.event_count = event_count
        self._decode = decode
        self.source_events = source_events
        self._group: NDArray[np.int32] | Int64s | None = None
        self._is_spread_late = False
        self._find_codes: Callable[[], Int32s] | None = None
        self._code_groups: Int64s = np.zeros(0, np.int64)
        self._codes: Int32s | None = None
        self._eager: Int8s | None = None
        self._named: tuple[Int64s, Int64s] | None = None
        self._own_stats: Mapping[str, DerivedStat] = own_stats or {}
        self._sifted: Sifted | None = None
        self._sieve: Sieve | None = None
        self.notable_groups: NDArray[np.int32] | None = None

    def __repr__(self) -> str:
        return f"PreparedLine({self.name!r}, id={self.id}, events={self.event_count})"

    @property
    def is_derived(self) -> bool:
        """Whether the line was made from other lines."""
        return is_derived_line(self.id)

    def columns(self, stats: Iterable[str] = ()) -> Columns:
        """The line's events; see ``xspace.Line.columns``."""
        return self._decode(stats)

    @property
    def notable(self) -> Sifted | None:
        """The events that the plane's sieve keeps, decoded at the first call and kept.

        None without a sieve, where it keeps nearly all, and for a line whose events are not the
        stored ones in their order.
        """
        sieve = self.plane.sieve
        if sieve is None or not self.is_stored or self.source is None or not self.event_count:
            return None
        if self._sieve is not sieve:
            self._sieve, self._sifted = sieve, self.source.sift(sieve)
        return self._sifted

    def survey(self, stats: frozenset[str]) -> Survey | None:
        """What is known of the stored events, in their order, without decoding them.

        None for other lines, and where decoding is as fast; see ``xspace.Line.survey``.
        """
        return self.source.survey(stats) if self.is_stored and self.source is not None else None

    def release(self) -> None:
        """Forgets decoded columns; the next ``columns`` decodes again."""
        self._codes = None
        if self.source is not None:
            self.source.release()

    def close(self) -> None:
        """Lets go of decoded columns, and of the way to its groups, which knows the line."""
        self.release()
        self._find_codes = None

    def event_stats(self, event: int) -> dict[str, StatValue]:
        """All stats of one event as stored; none for an added one; a derived one's own."""
        own = self._derived_stats(event)
        if self.source is None:
            return own
        at = event if self.source_events is None else int(self.source_events[event])
        return {**self.source.event_stats(at), **own} if at >= 0 else own

    def _derived_stats(self, event: int) -> dict[str, StatValue]:
        found: dict[str, StatValue] = {}
        for name, (present, values) in self._own_stats.items():
            if present[event]:
                found[name] = values[event].item()
        return found

    def set_groups(
        self,
        group: NDArray[np.int32] | Int64s,
        eager: Int8s | None = None,
        named: tuple[Int64s, Int64s] | None = None,
    ) -> None:
        """Takes what grouping found.

        Args:
            group: Group id of every event, -1 for none, shape (n,).
            eager: 1 for eager execution, 0 for none, -1 where it does not apply, shape (n,).
            named: Events that are a named step, and their groups, both of shape (k,).
        """
        self._group = group
        self._is_spread_late = False
        self._find_codes = None
        self._eager = eager
        self._named = named

    def set_notable_groups(
        self,
        group: NDArray[np.int32],
        eager: Int8s | None,
        named: tuple[Int64s, Int64s],
    ) -> None:
        """Takes what grouping found of the ``notable`` events; those of all follow from it.

        Args:
            group: As for ``set_groups``, but of the notable events, shape (k,).
            eager: As for ``set_groups``, of all events.
            named: As for ``set_groups``.
        """
        self.set_groups(group, eager, named)
        self._group = None
        self.notable_groups = group
        self._is_spread_late = True

    def _spread_notable(self) -> Int64s:
        """Groups of all events: one that is not notable has that of the event around it."""
        sifted, group = self.notable, self.notable_groups
        if sifted is None or group is None:
            problem = "only lines with notable events have groups of these"
            raise ValueError(problem)
        columns = self.columns()
        apart = None
        if sifted.apart.any():
            apart = np.zeros(len(columns), np.bool_)
            apart[sifted.events[sifted.apart]] = True
        found = nest(columns.start_ps, columns.duration_ps, apart).parent
        spread_kept(found, sifted.events, np.ascontiguousarray(group), found)
        # Whoever asks once asks again.
        self._group, self._is_spread_late = found, False
        return found.astype(np.int64)

    def find_groups(self, find: Callable[[], Int32s], groups: Int64s) -> None:
        """Takes a way to find the groups of all events, which is gone when they are asked for.

        Args:
            find: Gives the index in ``groups`` of every event, -1 for none, shape (n,).
            groups: Group ids, -1 for none, shape (k,).
        """
        self._find_codes, self._code_groups = find, groups

    def group_codes(self) -> tuple[Int32s, Int64s]:
        """A number for every event's group, and the groups, in half the memory of ``group_id``.

        Returns:
            Numbers, shape (n,), -1 for none, not to be written to; the group of each number, -1
            for none, some of them perhaps equal.
        """
        if self._find_codes is None or "group_id" in self.plane.stat_names:
            return factorise(self.group_id)
        return self._found_codes(), self._code_groups

    def _found_codes(self) -> Int32s:
        if self._codes is None and self._find_codes is not None:
            self._codes = self._find_codes()
        return np.zeros(0, np.int32) if self._codes is None else self._codes

    def fill_groups(self, group: Int64s) -> None:
        """Replaces the groups alone, shape (n,)."""
        self._group = group
        self._is_spread_late = False
        self._find_codes = None

    @property
    def _is_grouped(self) -> bool:
        """Whether preparation found its groups; else they are as stored."""
        return self._is_spread_late or self._group is not None or self._find_codes is not None

    @property
    def group_id(self) -> Int64s:
        """Group (step) of every event, -1 where there is none, shape (n,)."""
        if not self._is_grouped:
            return self._stored("group_id")
        if self._find_codes is not None:
            # The last place is for -1, no group.
            group = np.append(self._code_groups, ABSENT)[self._found_codes()]
        elif self._is_spread_late:
            group = self._spread_notable()
        else:
            group = np.asarray(self._group, np.int64)
        if "group_id" in self.plane.stat_names and self.source is not None:
            # Grouping overwrites what it finds and leaves the rest.
            return np.where(group >= 0, group, self._stored("group_id"))
        return group

    @property
    def is_eager(self) -> Int8s:
        """1 for eager execution, 0 for none, -1 where it does not apply, shape (n,)."""
        if self._eager is not None:
            return self._eager
        if self._is_grouped:
            return np.full(self.event_count, ABSENT, np.int8)
        return np.sign(self._stored("is_eager")).astype(np.int8)

    def named_steps(self) -> tuple[Int64s, Int64s, list[str]]:
        """The events that grouping found to mark a step, their steps and these' names, (k,)."""
        if self._named is None:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), []
        events, groups = self._named
        return events, groups, [self.plane.space.groups.name(int(i)) for i in groups]

    def step_names(self) -> tuple[Int32s, list[str]]:
        """Names of the steps that events themselves mark.

        Returns:
            Codes, shape (n,), -1 where the event marks no step; the table of names.
        """
        codes = np.full(self.event_count, ABSENT, np.int32)
        if not self._is_grouped:
            if "step_name" in self.plane.stat_names and self.source is not None:
                return self.columns(("step_name",)).stat("step_name").strings()
            return codes, []
        if self._named is None:
            return codes, []
        events, groups = self._named
        ids, inverse = np.unique(groups, return_inverse=True)
        codes[events] = inverse
        return codes, [self.plane.space.groups.name(int(i)) for i in ids]

    def _stored(self, stat: str) -> Int64s:
        if stat not in self.plane.stat_names or self.source is None:
            return np.full(self.event_count, ABSENT, np.int64)
        column = self.columns((stat,)).stat(stat)
        return np.where(column.present(), column.ints(), ABSENT)


class PreparedPlane:
    """A plane with its lines prepared.

    Attributes:
        source: The XSpace's own plane.
        lines: Stored lines first, derived ones after them.
        framework_span: First begin and last end of what a line of framework operations would
            show, where preparation left that line out.
        sieve: Which events of its lines are ``notable``; None where all are worked on.
    """

    def __init__(self, space: "PreparedSpace", source: Plane) -> None:
        self.space = space
        self.source = source
        self.id = source.id
        self.name = source.name
        self.lines: tuple[PreparedLine, ...] = tuple(own_line(self, line) for line in source.lines)
        self.framework_span: tuple[int, int] | None = None
        self.sieve: Sieve | None = None

    def __repr__(self) -> str:
        return f"PreparedPlane({self.name!r}, id={self.id}, lines={len(self.lines)})"

    @cached_property
    def event_metadata(self) -> PreparedMetadata:
        """What the plane's events are called."""
        return PreparedMetadata(self.source.event_metadata)

    @property
    def stats(self) -> dict[str, StatValue]:
        """The plane's own stats by name."""
        return self.source.stats

    @property
    def stat_names(self) -> frozenset[str]:
        """Names of the plane's stat metadata."""
        return self.source.stat_names

    @cached_property
    def derived_lines(self) -> "tuple[PreparedLine, ...]":
        """Lines for people to look at, made of the plane's others when they are first asked for.

        Name scopes and source lines; of GPUs also framework operations, programs and their
        operations by stream, and the launches of each step; of TPUs also offloads to the host;
        of the host the programs that its threads ran. ``lines`` has none of them.
        """
        return self.space.derive(self)

    def line(self, name: str) -> PreparedLine | None:
        """The first line of this name."""
        return next((line for line in self.lines if line.name == name), None)

    def release(self) -> None:
        """Forgets the decoded columns of all lines."""
        for line in self.lines:
            line.release()

    def close(self) -> None:
        """Lets go of all lines and of what they know."""
        for line in self.lines:
            line.close()
        self.lines = ()


class PreparedSpace:
    """An XSpace whose events know their steps.

    Attributes:
        source: The XSpace.
        planes: In the file's order.
        groups: What the groups are called.
        derive: Makes a plane's ``derived_lines``.
    """

    def __init__(self, source: XSpace) -> None:
        self.source = source
        self.derive: Callable[[PreparedPlane], tuple[PreparedLine, ...]] = _no_lines
        self.groups: GroupNames = _StoredNames()
        self.planes: tuple[PreparedPlane, ...] = tuple(
            PreparedPlane(self, plane) for plane in source.planes
        )

    def close(self) -> None:
        """Lets go of the planes.

        They know their space and their lines know them: as long as these know them back, only the
        garbage collector takes them apart, when it pleases.
        """
        for plane in self.planes:
            plane.close()
        self.planes = ()
        self.groups = _StoredNames()
        self.derive = _no_lines

    @property
    def hostnames(self) -> tuple[str, ...]:
        """Of the machines that were profiled."""
        return self.source.hostnames

    @property
    def errors(self) -> tuple[str, ...]:
        """What the tracers could not record."""
        return self.source.errors

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the tracers warn of."""
        return self.source.warnings

    @property
    def has_tpu(self) -> bool:
        """Whether there are TPU planes; GPU planes do not count beside them."""
        return any(plane.name.startswith(TPU_PREFIX) for plane in self.planes)

    @property
    def has_gpu(self) -> bool:
        """Whether there are GPU planes."""
        return any(is_gpu(plane.name) for plane in self.planes)

    @property
    def host_plane(self) -> PreparedPlane | None:
        """The plane of the host's threads."""
        return self.plane(HOST_PLANE)

    def plane(self, name: str) -> PreparedPlane | None:
        """The first plane of this name."""
        return next((plane for plane in self.planes if plane.name == name), None)


def _no_lines(_plane: PreparedPlane) -> tuple[PreparedLine, ...]:
    return ()


class _StoredNames:
    """Groups of a file that was grouped before: their names are on its events."""

    def name(self, group_id: int) -> str:
        return ""


def own_line(plane: PreparedPlane, line: Line) -> PreparedLine:
    """A stored line, as it is."""
    return PreparedLine(
        plane,
        line,
        name=line.name,
        line_id=line.id,
        event_count=line.event_count,
        decode=line.columns,
        display_name=line.display_name,
        display_id=line.display_id,
        timestamp_ns=line.timestamp_ns,
        is_stored=True,
    )
