"""Opens and verifies the bytes of an XSpace."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from mmap import mmap

import numpy as np

from podscope_analyzers.errors import CompilerMissingError, XSpaceError
from podscope_analyzers.kernels.compiled import are_at_hand
from podscope_analyzers.xspace.compiled import STRUCTURE, CompiledWire
from podscope_analyzers.xspace.formats import START, describe_text, recognise
from podscope_analyzers.xspace.limits import DEFAULT_LIMITS, Limits
from podscope_analyzers.xspace.space import XSpace
from podscope_analyzers.xspace.wire import PortableWire, Wire


@cache
def _has_compiler() -> bool:
    return find_spec("numba") is not None


def _wire(view: memoryview, limits: Limits, *, may_compile: bool) -> Wire:
    is_small = len(view) <= limits.portable_bytes
    if _has_compiler() and (may_compile or not is_small or are_at_hand(STRUCTURE)):
        return CompiledWire(view)
    if not is_small:
        raise CompilerMissingError(len(view), limits.portable_bytes)
    return PortableWire(view)


def unpack(buffer: bytes | memoryview | mmap, limits: Limits = DEFAULT_LIMITS) -> memoryview:
    """The bytes of an XSpace that may be packed with gzip or zstd; a view where they are not.

    Raises:
        XSpaceError: they are no XSpace, or cannot be unpacked.
    """
    return recognise(memoryview(buffer).cast("B"), limits)


def open_xspace(
    buffer: bytes | memoryview | mmap, limits: Limits = DEFAULT_LIMITS, *, may_compile: bool = True
) -> XSpace:
    """Reads the structure of an XSpace; events are decoded when their columns are asked for.

    Args:
        buffer: The file's bytes, plain or packed with gzip or zstd (which takes Python 3.14, or
            ``backports.zstd``). They are read in place and must neither change nor go away: a
            file that others may still write to is copied first.
        limits: Caps on what is read of a file that is not trusted.
        may_compile: Whether kernels that this machine does not have yet are worth the seconds that
            compiling them takes. Without them the structure of a file up to
            ``limits.portable_bytes`` is read nearly as fast, and decoding events takes a hundred
            times as long.

    Raises:
        XSpaceError: the bytes are not a valid XSpace; the message names what they are.
        CompilerMissingError: there is no numba, and the file is too large to do without.
    """
    view = unpack(buffer, limits)
    try:
        return XSpace(_wire(view, limits, may_compile=may_compile), len(view), limits)
    except XSpaceError as error:
        problem = describe_text(bytes(view[:START]))
        if problem is None:
            raise
        raise XSpaceError(problem, offset=0) from error


@dataclass(frozen=True)
class Verification:
    """What a walk over every byte of an XSpace found.

    Attributes:
        size_bytes: Of the XSpace, unpacked.
        events: On all lines.
        event_stats: On all events.
        event_metadata: Entries, on all planes.
        stat_metadata: Entries, on all planes.
        unnamed_events: Events whose metadata the plane does not have.
        unsorted_lines: Lines whose events are not in order of time.
    """

    size_bytes: int
    planes: int
    lines: int
    events: int
    event_stats: int
    event_metadata: int
    stat_metadata: int
    unnamed_events: int
    unsorted_lines: int


def verify(buffer: bytes | memoryview | mmap, limits: Limits = DEFAULT_LIMITS) -> Verification:
    """Reads every field of every message once.

    Args:
        buffer: As for ``open_xspace``.
        limits: As for ``open_xspace``.

    Raises:
        XSpaceError: something in the bytes is not valid, with the plane and line it is in.
    """
    space = open_xspace(buffer, limits)
    event_stats = unnamed = unsorted = 0
    for plane in space.planes:
        table = plane.event_metadata
        table.check()
        _ = plane.stats
        for line in plane.lines:
            event_stats += line.check()
            columns = line.columns()
            unnamed += int(np.count_nonzero(columns.metadata == table.empty_row))
            unsorted += bool(np.any(columns.start_ps[1:] < columns.start_ps[:-1]))
            line.release()
    return Verification(
        size_bytes=space.size_bytes,
        planes=len(space.planes),
        lines=len(space.lines),
        events=sum(line.event_count for line in space.lines),
        event_stats=event_stats,
        event_metadata=sum(plane.event_metadata.empty_row for plane in space.planes),
        stat_metadata=sum(len(plane.stat_reader.names) for plane in space.planes),
        unnamed_events=unnamed,
        unsorted_lines=unsorted,
    )
