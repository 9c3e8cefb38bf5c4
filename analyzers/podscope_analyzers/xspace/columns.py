"""Events of one line as columns: one array per field, one pair of arrays per stat."""

import io
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from podscope_analyzers.errors import XSpaceError

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
UInt8s = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

# Kinds of a stat's value: the field numbers of XStat's oneof.
ABSENT: Final = 0
DOUBLE: Final = 2
UINT64: Final = 3
INT64: Final = 4
STRING: Final = 5
BYTES: Final = 6
REF: Final = 7
GZIP: Final = 8


class Payloads(Protocol):
    """Where the text and bytes of stats are: the column holds handles to them."""

    def value(self, handle: int) -> bytes:
        """The bytes behind one handle."""

    def factorise(self, handles: Int64s) -> tuple[Int32s, list[bytes]]:
        """Equal payloads numbered from 0 in order of appearance.

        Returns:
            A code per handle, shape (n,), and the distinct payloads, one per code.
        """

    def number(self, ids: Int64s) -> tuple[Int32s, list[int]]:
        """Equal ids numbered from 0 in order of appearance.

        Returns:
            A code per id, shape (n,), and the distinct ids, one per code.
        """


def unpack_gzip(packed: bytes, limit: int) -> bytes:
    """The bytes that a gzip stat value holds.

    Raises:
        XSpaceError: not gzip, cut short, or more than ``limit`` bytes unpacked.
    """
    import gzip

    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            unpacked = stream.read(limit + 1)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        problem = f"a compressed stat value cannot be unpacked ({error})"
        raise XSpaceError(problem, offset=0) from error
    if len(unpacked) > limit:
        problem = f"a compressed stat value unpacks to more than {limit} bytes"
        raise XSpaceError(problem, offset=0)
    return unpacked


def decode_text(text: bytes) -> str:
    """Text of a stat.

    Raises:
        XSpaceError: not UTF-8.
    """
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        problem = "a string stat is not UTF-8; the file was changed after it was captured"
        raise XSpaceError(problem, offset=0) from error


class GzipTexts:
    """Unpacks the compressed stat values of one XSpace, up to a size in all.

    Args:
        value_bytes: Most that one value may unpack to.
        total_bytes: Most that all distinct values may unpack to together.
    """

    def __init__(self, value_bytes: int, total_bytes: int) -> None:
        self._value_bytes = value_bytes
        self._total_bytes = total_bytes
        self._seen: set[int] = set()

    def unpack(self, packed: bytes) -> bytes:
        """The bytes of a value.

        Raises:
            XSpaceError: not gzip, cut short, or beyond one of the two sizes.
        """
        unpacked = unpack_gzip(packed, self._value_bytes)
        if hash(packed) not in self._seen:
            self._seen.add(hash(packed))
            self._total_bytes -= len(unpacked)
        if self._total_bytes < 0:
            problem = "the compressed stat values unpack to too many bytes in all"
            raise XSpaceError(problem, offset=0)
        return unpacked


@dataclass(frozen=True)
class StatColumn:
    """One stat of every event of a line.

    Attributes:
        kind: Field number of the value's member, shape (n,): 0 absent, 2 double, 3 uint64,
            4 int64, 5 string, 6 bytes, 7 reference to a stat's name, 8 gzip string.
        raw: The value, shape (n,): a double's and a uint64's bits, an int64, the id that a
            reference names, or a handle to a string's or bytes' payload.
    """

    kind: UInt8s
    raw: Int64s
    _payloads: Payloads = field(repr=False)
    _names: Mapping[int, str] = field(repr=False)
    _gzip: GzipTexts = field(repr=False)

    @property
    def _is_absent(self) -> bool:
        """Whether no event carries the stat; the raw values are all 0 then."""
        return not self.kind.any()

    def present(self) -> Bools:
        """Which events carry the stat, shape (n,)."""
        present: Bools = self.kind != ABSENT
        return present

    @cached_property
    def _only_kind(self) -> int:
        """The kind of all events, ABSENT too; -1 where there are several."""
        if not self.kind.size or self.kind.max() != self.kind.min():
            return -1
        return int(self.kind[0])

    @property
    def is_everywhere(self) -> bool:
        """Whether every event carries the stat, told without an array of the events' size."""
        return self._only_kind > ABSENT or bool(self.kind.size and self.kind.all())

    def ints(self) -> Int64s:
        """The int64 member, 0 where another or none is set, shape (n,); not to be written to."""
        if self._only_kind in (INT64, ABSENT):
            return self.raw
        return np.where(self.kind == INT64, self.raw, 0)

    def ints_or_uints(self) -> Int64s:
        """The int64 or uint64 member, 0 where neither is set, shape (n,).

        A uint64 of 2**63 or more wraps to the int64 of the same bits: numpy would turn a mix
        of the two types into float64 and lose digits. Not to be written to.
        """
        if self._only_kind in (INT64, UINT64, ABSENT):
            return self.raw
        return np.where((self.kind == INT64) | (self.kind == UINT64), self.raw, 0)

    def doubles(self) -> npt.NDArray[np.float64]:
        """The double member, 0.0 where another or none is set, shape (n,)."""
        return np.where(self.kind == DOUBLE, self.raw.view(np.float64), 0.0)

    def strings(self) -> tuple[Int32s, list[str]]:
        """The text of every event as codes into a table of distinct texts.

        A string, a gzip string and a reference's name are text; any other member reads as
        the empty text.

        Returns:
            Codes, shape (n,), -1 where the stat is absent; the table.

        Raises:
            XSpaceError: a text is not UTF-8.
        """
        codes = np.full(self.kind.shape, -1, dtype=np.int32)
        table: dict[str, int] = {}
        if self._is_absent:
            return codes, []
        for kind in range(DOUBLE, GZIP + 1):
            where = np.flatnonzero(self.kind == kind)
            if not where.size:
                continue
            local, texts = self._texts(kind, self.raw[where])
            renumbered = [table.setdefault(text, len(table)) for text in texts]
            codes[where] = np.asarray(renumbered, dtype=np.int32)[local]
        return codes, list(table)

    def _texts(self, kind: int, raw: Int64s) -> tuple[Int32s, list[str]]:
        if kind == REF:
            codes, ids = self._payloads.number(raw)
            return codes, [self._names.get(i, "") for i in ids]
        if kind in (STRING, GZIP):
            codes, payloads = self._payloads.factorise(raw)
            if kind == GZIP:
                payloads = [self._gzip.unpack(p) for p in payloads]
            return codes, [decode_text(p) for p in payloads]
        return np.zeros(raw.shape, dtype=np.int32), [""]

    def of(self, events: npt.NDArray[np.intp]) -> "StatColumn":
        """The stat of some events, in their order."""
        return replace(self, kind=self.kind[events], raw=self.raw[events])

    def payload(self, event: int) -> bytes:
        """The bytes of one event's string or bytes value; empty for any other kind."""
        if self.kind[event] in (STRING, BYTES):
            return self._payloads.value(int(self.raw[event]))
        return b""


@dataclass(frozen=True)
class Columns:
    """The events of one line, in the file's order.

    Attributes:
        metadata: Row of the plane's event metadata, shape (n,), int32.
        start_ps: Picoseconds from the space's base, shape (n,), int64:
            ``line.timestamp_ns * 1000`` plus the event's offset.
        duration_ps: Picoseconds, shape (n,), int64; never negative.
        occurrences: How often an aggregated event happened, shape (n,), int64; 0 for an
            event with a time of its own.
    """

    metadata: Int32s
    start_ps: Int64s
    duration_ps: Int64s
    occurrences: Int64s
    _stats: Mapping[str, StatColumn] = field(repr=False)

    def __len__(self) -> int:
        return len(self.start_ps)

    @property
    def stat_names(self) -> frozenset[str]:
        """The stats that were decoded."""
        return frozenset(self._stats)

    def stat(self, name: str) -> StatColumn:
        """One decoded stat.

        Raises:
            KeyError: the stat was not asked for in ``Line.columns``.
        """
        return self._stats[name]

    def of(self, events: npt.NDArray[np.intp]) -> "Columns":
        """Some events, in their order.

        Args:
            events: Their indices, shape (k,).
        """
        return Columns(
            self.metadata[events],
            self.start_ps[events],
            self.duration_ps[events],
            self.occurrences[events],
            {name: stat.of(events) for name, stat in self._stats.items()},
        )
