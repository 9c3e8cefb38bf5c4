"""The XSpace as its readers see it: planes, lines, and columns made when asked for."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from podscope_analyzers.errors import XSpaceError
from podscope_analyzers.xspace.columns import (
    Columns,
    GzipTexts,
    Int32s,
    Int64s,
    StatColumn,
)
from podscope_analyzers.xspace.limits import Limits
from podscope_analyzers.xspace.metadata import (
    EVENT_METADATA,
    STAT_METADATA,
    EventMetadataTable,
    MetadataEntries,
    StatReader,
    StatValue,
)
from podscope_analyzers.xspace.sifting import Sieve, Sifted, Survey
from podscope_analyzers.xspace.wire import (
    DecodedLine,
    InnerRequest,
    InnerSpans,
    LineRequest,
    Span,
    Wire,
    WireError,
    too_many,
)
from podscope_protos.v1 import xplane_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")

PLANES: Final = frozenset({1})
LINES: Final = 3
METADATA: Final = (EVENT_METADATA, STAT_METADATA)

# A line timestamp from here on cannot be held in picoseconds beside an offset: it is a
# Unix time, and the space gets a base.
ABSOLUTE_NS: Final = 1 << 51
_LONG_LINE: Final = 4096
_KNOWN_TABLES: Final = 16


def _processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Line:
    """One line of a plane: a thread, a stream, or a row that the tracer made.

    Attributes:
        id: Often a hash, so negative as often as not; may repeat within a plane.
        display_id: 0 when the tracer set none.
        name: As stored.
        display_name: Empty when the tracer set none.
        timestamp_ns: Nanoseconds from the space's base.
        duration_ps: As stored; most tracers leave it 0.
        event_count: Events in the file.
    """

    def __init__(
        self, plane: "Plane", span: Span, header: xplane_pb2.XLine, event_count: int
    ) -> None:
        self._plane = plane
        self._span = span
        self._decoded: list[tuple[dict[str, int], DecodedLine]] = []
        self._absent: set[str] = set()
        self._survey: Survey | None = None
        # Layers ask for the same columns again and again, some for every name they look up.
        self._columns: Columns | None = None
        self.id = header.id
        self.display_id = header.display_id
        self.name = header.name
        self.display_name = header.display_name
        self.timestamp_ns = header.timestamp_ns
        self.duration_ps = header.duration_ps
        self.event_count = event_count

    def __repr__(self) -> str:
        return f"Line({self.name!r}, id={self.id}, events={self.event_count})"

    @property
    def plane(self) -> "Plane":
        """The plane that the line is of."""
        return self._plane

    def columns(self, stats: Iterable[str] = ()) -> Columns:
        """The line's events, decoded at the first call and kept.

        Args:
            stats: Names of the stats wanted; those decoded before stay.

        Raises:
            XSpaceError: an event is not valid.
        """
        known = self._plane.stat_names
        have = {name for slots, _ in self._decoded for name in slots}
        missing = sorted({name for name in stats if name in known} - have)
        absent = {name for name in stats if name not in known} - self._absent
        if missing or not self._decoded:
            self._decoded.append(self._decode(missing))
            self._columns = None
        if absent or self._columns is None:
            self._absent |= absent
            self._columns = self._joined()
        return self._columns

    def sift(self, sieve: Sieve) -> Sifted | None:
        """The events that a sieve keeps; little else of the line is in memory then.

        Returns:
            None when these would be nearly all, or when there are no compiled kernels.

        Raises:
            XSpaceError: an event is not valid.
        """
        sifter = self._plane.space.wire.sifter
        if sifter is None:
            return None
        known = self._plane.stat_names
        slots = {name: slot for slot, name in enumerate(sorted(sieve.stats & known))}
        request = self._request(slots, fields=True)
        aside = slots.get(sieve.aside, -1)
        found = self._plane.guarded(lambda: sifter.sift(request, sieve.rows, aside), line=self.name)
        if found is None:
            return None
        columns = self._columns_of([(slots, found.columns)], sieve.stats - known)
        apart = np.zeros(len(columns), np.bool_)
        if aside >= 0:
            apart = columns.stat(sieve.aside).ints() != 0
        return Sifted(
            events=found.events,
            parent=found.parent,
            between=found.between,
            apart=apart,
            columns=columns,
            outer=found.outer,
            reach_ps=found.reach_ps,
            is_nested=found.is_nested,
        )

    def survey(self, stats: frozenset[str]) -> Survey | None:
        """What a walk over the events says of them, kept; no column is in memory then.

        Args:
            stats: Names of stats of which it is told whether an event has them; those of the
                first call stay.

        Returns:
            None for a line so short that its columns tell it as fast, for one that is decoded
            already, and without compiled kernels.

        Raises:
            XSpaceError: an event is not valid.
        """
        if self._survey is None:
            rows = len(self._plane.event_metadata)
            if self.event_count < max(_LONG_LINE, rows) or self._decoded:
                return None
            names = sorted(stats & self._plane.stat_names)
            request = self._request({name: slot for slot, name in enumerate(names)}, fields=True)
            wire = self._plane.space.wire
            found = self._plane.guarded(lambda: wire.survey(request), line=self.name)
            if found is None:
                return None
            present = {name for name, has in zip(names, found.present, strict=True) if has}
            self._survey = Survey(
                found.first_ps, found.last_ps, stats, frozenset(present), found.is_natural
            )
        return self._survey

    def inner_spans(
        self, sifted: Sifted, chosen: Int64s, levels: Int32s, depth: int, moments: Int64s
    ) -> InnerSpans:
        """Events around some moments that a sieve passed over, within its outer ones.

        Those within an event that it kept are left out.

        Args:
            sifted: What the sieve left of the line.
            chosen: The outer events to look into, ascending, shape (c,).
            levels: Level below each of them, shape (c,).
            depth: Level from which on nothing is wanted.
            moments: Ascending, shape (t,).
        """
        sifter = self._plane.space.wire.sifter
        if sifter is None:
            problem = "what was sifted without kernels cannot be looked into"
            raise ValueError(problem)
        request = InnerRequest(
            line=self._request({}, fields=True),
            events=sifted.events,
            apart=sifted.apart,
            outer=sifted.outer.take(chosen),
            levels=levels,
            depth=depth,
            moments=moments,
        )
        return self._plane.guarded(lambda: sifter.inner_spans(request), line=self.name)

    def _decode(self, names: list[str]) -> tuple[dict[str, int], DecodedLine]:
        slots = {name: slot for slot, name in enumerate(names)}
        request, wire = self._request(slots, fields=not self._decoded), self._plane.space.wire
        return slots, self._plane.guarded(lambda: wire.decode(request), line=self.name)

    def _request(self, slots: Mapping[str, int], *, fields: bool) -> LineRequest:
        reader = self._plane.stat_reader
        by_id = {key: slot for name, slot in slots.items() for key in reader.ids[name]}
        return LineRequest(
            span=self._span,
            count=self.event_count,
            fields=fields,
            base_ps=self.timestamp_ns * 1000,
            metadata_ids=self._plane.event_metadata.ids,
            slots=by_id,
            slot_count=len(slots),
        )

    def _joined(self) -> Columns:
        return self._columns_of(self._decoded, self._absent)

    def _columns_of(
        self, decoded: Sequence[tuple[Mapping[str, int], DecodedLine]], absent: Iterable[str]
    ) -> Columns:
        first = decoded[0][1]
        reader, gzip = self._plane.stat_reader, self._plane.space.gzip
        stats: dict[str, StatColumn] = {
            name: StatColumn(
                kind=part.kinds[slot],
                raw=part.raws[slot],
                _payloads=part.payloads,
                _names=reader.names,
                _gzip=gzip,
            )
            for slots, part in decoded
            for name, slot in slots.items()
        }
        # A stat that the plane does not know takes no memory.
        count = len(first.start_ps)
        nothing = np.broadcast_to(np.uint8(0), (count,))
        zeros = np.broadcast_to(np.int64(0), (count,))
        for name in absent:
            stats[name] = StatColumn(nothing, zeros, first.payloads, {}, gzip)
        return Columns(
            metadata=first.metadata,
            start_ps=first.start_ps,
            duration_ps=first.duration_ps,
            occurrences=first.occurrences,
            _stats=stats,
        )

    def release(self) -> None:
        """Forgets the columns; the next ``columns`` decodes again."""
        self._decoded.clear()
        self._absent.clear()
        self._columns = None

    def check(self) -> int:
        """Reads every field of every event; how many stats they have.

        Raises:
            XSpaceError: one of them is not valid.
        """
        wire = self._plane.space.wire
        return self._plane.guarded(lambda: wire.check(self._span), line=self.name)

    def event_stats(self, event: int) -> dict[str, StatValue]:
        """All stats of one event, read now.

        Args:
            event: Index in the columns.
        """
        if not 0 <= event < self.event_count:
            problem = f"line '{self.name}' has {self.event_count} events, no event {event}"
            raise IndexError(problem)
        wire = self._plane.space.wire
        marks = self._decoded[0][1].marks if self._decoded else np.empty(0, np.int64)
        raw = self._plane.guarded(lambda: wire.event(self._span, event, marks), line=self.name)
        message = self._plane.parse(xplane_pb2.XEvent, raw, self._span, line=self.name)
        return self._plane.stat_reader.first(message.stats)


class Plane:
    """One plane: a device, the host, or a table of metadata."""

    def __init__(self, space: "XSpace", span: Span, lines_before: int) -> None:
        self._space = space
        self._span = span
        self._name: str | None = None
        wire, limits = space.wire, space.limits
        others = frozenset({*METADATA, LINES})
        header = self.parse(
            xplane_pb2.XPlane, self.guarded(lambda: wire.without(span, others)), span
        )
        self._header = header
        self._name = header.name
        self.id: int = header.id
        self.name: str = header.name
        self._check_name(self.name)
        spans = self.guarded(lambda: wire.lift(span, LINES, limits.lines - lines_before))
        self.lines: tuple[Line, ...] = tuple(self._line(line) for line in spans)

    def __repr__(self) -> str:
        return f"Plane({self.name!r}, id={self.id}, lines={len(self.lines)})"

    def _line(self, span: Span) -> Line:
        wire, limits = self._space.wire, self._space.limits
        raw, count = self.guarded(lambda: wire.line(span, limits.events))
        header = self.parse(xplane_pb2.XLine, raw, span)
        self._check_name(header.name)
        return Line(self, span, header, count)

    def _check_name(self, name: str) -> None:
        limit = self._space.limits.name_bytes
        if len(name) > limit:
            problem = f"a name is longer than {limit} bytes"
            raise XSpaceError(problem, offset=self._span[0], plane=self._name)

    @property
    def space(self) -> "XSpace":
        """The space that the plane is of."""
        return self._space

    @cached_property
    def _metadata(self) -> tuple[MetadataEntries, MetadataEntries]:
        """Entries of the events' and the stats' metadata."""
        wire = self._space.wire
        found = [self.guarded(partial(wire.entries, self._span, field)) for field in METADATA]
        self._space.count_metadata([len(keys) for keys, _, _ in found], self._span, self._name)
        events, stats = (
            MetadataEntries(field, keys, (starts, ends), wire.bytes_at, self._parse_entries)
            for field, (keys, starts, ends) in zip(METADATA, found, strict=True)
        )
        return events, stats

    def _parse_entries(self, raw: bytes, offset: int) -> xplane_pb2.XPlane:
        return self.parse(xplane_pb2.XPlane, raw, (offset, offset))

    @cached_property
    def _tables(self) -> "_Tables":
        """What the metadata say; equal devices have the same, of which all but one know it."""
        return self._space.shared(_Tables(*self._metadata, self._space.gzip))

    @property
    def stat_reader(self) -> StatReader:
        """Names of the plane's stats, and the reading of them."""
        return self._tables.stat_reader

    @property
    def event_metadata(self) -> EventMetadataTable:
        """What the plane's events are called."""
        return self._tables.event_metadata

    @cached_property
    def stats(self) -> dict[str, StatValue]:
        """The plane's own stats by name; of a name that repeats, the first."""
        return self.stat_reader.first(self._header.stats)

    @cached_property
    def stats_by_id(self) -> dict[int, StatValue]:
        """The plane's own stats by the id of their name; of an id that repeats, the first."""
        found: dict[int, StatValue] = {}
        for stat in self._header.stats:
            value = self.stat_reader.value(stat)
            if value is not None:
                found.setdefault(stat.metadata_id, value)
        return found

    @cached_property
    def stat_names(self) -> frozenset[str]:
        """Names of the plane's stat metadata."""
        return frozenset(self.stat_reader.ids)

    def line(self, name: str) -> Line | None:
        """The first line of this name."""
        return next((line for line in self.lines if line.name == name), None)

    def close(self) -> None:
        """Lets go of the lines and of the metadata, which know their plane."""
        self.lines = ()
        vars(self).pop("_metadata", None)
        vars(self).pop("_tables", None)

    def guarded(self, read: Callable[[], T], line: str | None = None) -> T:
        """Reads, naming the plane and line in the error of bad bytes."""
        try:
            return read()
        except WireError as error:
            raise XSpaceError(
                error.problem, offset=error.offset, plane=self._name, line=line
            ) from error

    def parse(self, kind: type[M], raw: bytes, span: Span, line: str | None = None) -> M:
        """A message from bytes of the plane."""
        try:
            return kind.FromString(raw)
        except DecodeError as error:
            problem = f"a message cannot be read ({error})"
            raise XSpaceError(problem, offset=span[0], plane=self._name, line=line) from error


class _Tables:
    """Names and stats of a plane's metadata, read when they are first asked for."""

    def __init__(self, events: MetadataEntries, stats: MetadataEntries, gzip: GzipTexts) -> None:
        self._events, self._stats, self._gzip = events, stats, gzip

    def equals(self, other: "_Tables") -> bool:
        """Whether the other's metadata surely are the same."""
        return self._events.equals(other._events) and self._stats.equals(other._stats)

    @cached_property
    def stat_reader(self) -> StatReader:
        return StatReader(self._stats, self._gzip)

    @cached_property
    def event_metadata(self) -> EventMetadataTable:
        return EventMetadataTable(self._events, self.stat_reader)


class XSpace:
    """What one profiler session of one host recorded.

    Attributes:
        planes: In the file's order; several may share a name.
        hostnames: Of the machines that were profiled.
        errors: What the tracers could not record.
        warnings: What they warn of.
        size_bytes: Of the XSpace, unpacked.
        base_ns: Unix time in nanoseconds that was taken off the lines' timestamps; 0 when
            the file's times are relative already, as tracers write them.
    """

    def __init__(self, wire: Wire, size: int, limits: Limits) -> None:
        self.wire = wire
        self.size_bytes = size
        self.limits = limits
        self._metadata_counts = [0, 0]
        self._known_tables: list[_Tables] = []
        self.gzip = GzipTexts(limits.value_bytes, limits.values_bytes)
        whole = (0, size)
        try:
            spans = wire.lift(whole, 1, limits.planes)
            header = xplane_pb2.XSpace.FromString(wire.without(whole, PLANES))
        except WireError as error:
            raise XSpaceError(error.problem, offset=error.offset) from error
        except DecodeError as error:
            problem = f"a message cannot be read ({error})"
            raise XSpaceError(problem, offset=0) from error
        self.hostnames: tuple[str, ...] = tuple(header.hostnames)
        self.errors: tuple[str, ...] = tuple(header.errors)
        self.warnings: tuple[str, ...] = tuple(header.warnings)
        planes: list[Plane] = []
        lines = 0
        for span in spans:
            planes.append(Plane(self, span, lines))
            lines += len(planes[-1].lines)
        self.planes: tuple[Plane, ...] = tuple(planes)
        self.base_ns = self._rebase()

    def __repr__(self) -> str:
        return f"XSpace(hostnames={self.hostnames}, planes={len(self.planes)})"

    def close(self) -> None:
        """Lets go of the planes and with them of all that was decoded."""
        for plane in self.planes:
            plane.close()
        self.planes = ()
        self._known_tables.clear()

    def _rebase(self) -> int:
        """Makes Unix times relative; tracers that did so already are left alone."""
        absolute = [line for line in self.lines if abs(line.timestamp_ns) >= ABSOLUTE_NS]
        if not absolute:
            return 0
        earliest = min(line.timestamp_ns for line in absolute)
        environment = self.plane("Task Environment")
        started = environment.stats.get("profile_start_time") if environment else None
        base = started if isinstance(started, int) and started <= earliest else earliest
        for line in absolute:
            line.timestamp_ns -= base
        if any(abs(line.timestamp_ns) >= ABSOLUTE_NS for line in absolute):
            problem = "its lines' timestamps are more than 26 days apart"
            raise XSpaceError(problem, offset=0)
        return base

    @property
    def unix_base_ns(self) -> int | None:
        """Unix time of the zero of all times, by the host's clock; None where nothing says it."""
        if self.base_ns:
            return self.base_ns
        environment = self.plane("Task Environment")
        started = environment.stats.get("profile_start_time") if environment else None
        return started if isinstance(started, int) and 0 < started < 2**62 else None

    def shared(self, tables: _Tables) -> _Tables:
        """Those of an earlier plane where they are equal, else these."""
        # A space has few planes; more than a few kinds of them are not compared with.
        known = next((one for one in self._known_tables if one.equals(tables)), tables)
        if known is tables and len(self._known_tables) < _KNOWN_TABLES:
            self._known_tables.append(tables)
        return known

    def count_metadata(self, counts: list[int], span: Span, plane: str | None) -> None:
        """Counts metadata entries of a plane, events' and stats', against the caps of the space.

        Raises:
            XSpaceError: they are too many.
        """
        caps = (self.limits.metadata, self.limits.stat_metadata)
        for at, (count, cap) in enumerate(zip(counts, caps, strict=True)):
            self._metadata_counts[at] += count
            if self._metadata_counts[at] > cap:
                problem = too_many({METADATA[at]}, cap)
                raise XSpaceError(problem, offset=span[0], plane=plane)

    @property
    def lines(self) -> list[Line]:
        """The lines of all planes."""
        return [line for plane in self.planes for line in plane.lines]

    def decode(
        self, lines: Iterable[Line], stats: Iterable[str] = (), threads: int | None = None
    ) -> None:
        """Decodes lines side by side, for ``Line.columns`` to find them ready.

        The kernels hold no interpreter lock, so threads are enough; the longest line starts
        first, or it would end last.

        Args:
            lines: Of this space.
            stats: As for ``Line.columns``.
            threads: At most so many; by default one per processor of this process.

        Raises:
            XSpaceError: an event is not valid.
        """
        wanted = frozenset(stats)
        ordered = sorted(lines, key=lambda line: -line.event_count)
        for plane in {id(line.plane): line.plane for line in ordered}.values():
            # Shared by the plane's lines: made once, before the threads.
            _ = plane.event_metadata.ids, plane.stat_names
        workers = min(threads or _processors(), len(ordered))
        if workers < 2:
            for line in ordered:
                line.columns(wanted)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
            for _ in pool.map(lambda line: line.columns(wanted), ordered):
                pass

    def plane(self, name: str) -> Plane | None:
        """The first plane of this name."""
        return next((plane for plane in self.planes if plane.name == name), None)
