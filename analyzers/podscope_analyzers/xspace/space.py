"""The XSpace as its readers see it: planes, lines, and columns made when asked for."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from podscope_analyzers.errors import XSpaceError
from podscope_analyzers.xspace.columns import Columns, StatColumn
from podscope_analyzers.xspace.limits import Limits
from podscope_analyzers.xspace.metadata import EventMetadataTable, StatReader, StatValue
from podscope_analyzers.xspace.wire import (
    DecodedLine,
    LineRequest,
    Span,
    Wire,
    WireError,
)
from podscope_protos.v1 import xplane_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")

PLANES: Final = frozenset({1})
LINES: Final = 3
METADATA: Final = frozenset({4, 5})

# A line timestamp from here on cannot be held in picoseconds beside an offset: it is a
# Unix time, and the space gets a base.
ABSOLUTE_NS: Final = 1 << 51


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
        self._absent.update(name for name in stats if name not in known)
        if missing or not self._decoded:
            self._decoded.append(self._decode(missing))
        return self._joined()

    def _decode(self, names: list[str]) -> tuple[dict[str, int], DecodedLine]:
        slots = {name: slot for slot, name in enumerate(names)}
        reader = self._plane.stat_reader
        by_id = {key: slot for name, slot in slots.items() for key in reader.ids[name]}
        request = LineRequest(
            span=self._span,
            count=self.event_count,
            fields=not self._decoded,
            base_ps=self.timestamp_ns * 1000,
            metadata_ids=self._plane.event_metadata.ids,
            slots=by_id,
            slot_count=len(slots),
        )
        wire = self._plane.space.wire
        return slots, self._plane.guarded(lambda: wire.decode(request), line=self.name)

    def _joined(self) -> Columns:
        first = self._decoded[0][1]
        reader, limits = self._plane.stat_reader, self._plane.space.limits
        stats: dict[str, StatColumn] = {
            name: StatColumn(
                kind=part.kinds[slot],
                raw=part.raws[slot],
                _payloads=part.payloads,
                _names=reader.names,
                _gzip_limit=limits.value_bytes,
            )
            for slots, part in self._decoded
            for name, slot in slots.items()
        }
        # A stat that the plane does not know takes no memory.
        nothing = np.broadcast_to(np.uint8(0), (self.event_count,))
        zeros = np.broadcast_to(np.int64(0), (self.event_count,))
        for name in self._absent:
            stats[name] = StatColumn(nothing, zeros, first.payloads, {}, limits.value_bytes)
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
        others = METADATA | {LINES}
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
    def _metadata(self) -> xplane_pb2.XPlane:
        wire, limit = self._space.wire, self._space.limits.metadata
        raw = self.guarded(lambda: wire.only(self._span, METADATA, limit))
        return self.parse(xplane_pb2.XPlane, raw, self._span)

    @cached_property
    def stat_reader(self) -> StatReader:
        """Names of the plane's stats, and the reading of them."""
        return StatReader(self._metadata, self._space.limits)

    @cached_property
    def event_metadata(self) -> EventMetadataTable:
        """What the plane's events are called."""
        return EventMetadataTable(self._metadata, self.stat_reader)

    @cached_property
    def stats(self) -> dict[str, StatValue]:
        """The plane's own stats by name; of a name that repeats, the first."""
        return self.stat_reader.first(self._header.stats)

    @cached_property
    def stat_names(self) -> frozenset[str]:
        """Names of the plane's stat metadata."""
        return frozenset(self.stat_reader.ids)

    def line(self, name: str) -> Line | None:
        """The first line of this name."""
        return next((line for line in self.lines if line.name == name), None)

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
        with ThreadPoolExecutor(workers, thread_name_prefix="decode") as pool:
            for _ in pool.map(lambda line: line.columns(wanted), ordered):
                pass

    def plane(self, name: str) -> Plane | None:
        """The first plane of this name."""
        return next((plane for plane in self.planes if plane.name == name), None)
