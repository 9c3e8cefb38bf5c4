import contextlib
import gzip
import importlib
import json
import random
import sys
import zipfile
from io import BytesIO
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podscope_analyzers import XSpaceError, open_xspace
from podscope_analyzers.xspace import Limits, StatValue, XSpace, verify
from podscope_analyzers.xspace.compiled import CompiledWire
from podscope_analyzers.xspace.wire import PortableWire
from podscope_protos.v1 import xplane_pb2

_relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _exact(stats: dict[str, StatValue]) -> dict[str, StatValue | tuple[str]]:
    """Stats whose doubles compare by their digits: one NaN never equals another."""
    return {
        name: (value.hex(),) if isinstance(value, float) else value for name, value in stats.items()
    }


def _contents(space: XSpace) -> list[Any]:
    """Everything that a reader can see of a space, comparable."""
    found: list[Any] = [space.hostnames, space.errors, space.warnings, space.base_ns]
    for plane in space.planes:
        table, names = plane.event_metadata, sorted(plane.stat_names)
        rows = [(_exact(table.stats(row)), table.child_ids(row)) for row in range(len(table))]
        found += [plane.id, plane.name, _exact(plane.stats), table.ids.tolist(), table.names, rows]
        for line in plane.lines:
            columns = line.columns(names)
            found += [line.id, line.name, line.display_id, line.display_name]
            found += [line.timestamp_ns, line.event_count, line.check()]
            found += [columns.metadata.tolist(), columns.start_ps.tolist()]
            found += [columns.duration_ps.tolist(), columns.occurrences.tolist()]
            for name in names:
                stat = columns.stat(name)
                codes, texts = stat.strings()
                found += [stat.kind.tolist(), stat.ints_or_uints().tolist(), stat.ints().tolist()]
                found += [stat.doubles().tobytes(), codes.tolist(), texts]
                found += [[stat.payload(i) for i in range(line.event_count)]]
            found += [_exact(line.event_stats(i)) for i in range(line.event_count)]
    return found


def _compiled(raw: bytes) -> list[Any]:
    return _contents(XSpace(CompiledWire(memoryview(raw)), len(raw), Limits()))


def _portable(raw: bytes) -> list[Any]:
    return _contents(XSpace(PortableWire(memoryview(raw)), len(raw), Limits()))


_int64 = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3), st.sampled_from([127, 128, 2**31, 2**35])
)
_uint64 = st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 3))
_id = st.one_of(st.integers(-2, 5), _int64)
_text = st.text(max_size=12)
_unknown = st.sampled_from([b"", b"\xfa\x01\x03abc", b"\xf0\x01\x85\x01", b"\xe9\x01" + bytes(8)])


@st.composite
def _stats(draw: st.DrawFn) -> xplane_pb2.XStat:
    stat = xplane_pb2.XStat(metadata_id=draw(_id))
    match draw(st.integers(0, 7)):
        case 1:
            stat.double_value = draw(st.floats(allow_nan=False))
        case 2:
            stat.uint64_value = draw(_uint64)
        case 3:
            stat.int64_value = draw(_int64)
        case 4:
            stat.str_value = draw(_text)
        case 5:
            stat.bytes_value = draw(st.binary(max_size=12))
        case 6:
            stat.ref_value = draw(_uint64)
        case 7:
            stat.gzip_value = gzip.compress(draw(_text).encode(), mtime=0)
    stat.MergeFromString(draw(_unknown))
    return stat


@st.composite
def _events(draw: st.DrawFn) -> xplane_pb2.XEvent:
    event = xplane_pb2.XEvent(metadata_id=draw(_id), duration_ps=draw(_int64))
    match draw(st.integers(0, 2)):
        case 1:
            event.offset_ps = draw(_int64)
        case 2:
            event.num_occurrences = draw(_int64)
    event.stats.extend(draw(st.lists(_stats(), max_size=3)))
    event.MergeFromString(draw(_unknown))
    return event


@st.composite
def _lines(draw: st.DrawFn) -> xplane_pb2.XLine:
    line = xplane_pb2.XLine(
        id=draw(_id),
        display_id=draw(_id),
        name=draw(_text),
        display_name=draw(_text),
        timestamp_ns=draw(st.integers(-(2**50), 2**50)),
    )
    line.events.extend(draw(st.lists(_events(), max_size=4)))
    line.MergeFromString(draw(_unknown))
    return line


@st.composite
def _planes(draw: st.DrawFn) -> bytes:
    """An XPlane's bytes, its parts in any order."""
    head = xplane_pb2.XPlane(id=draw(_id), name=draw(_text))
    head.stats.extend(draw(st.lists(_stats(), max_size=2)))
    for key in draw(st.lists(_id, max_size=5)):
        head.stat_metadata[key].name = draw(st.one_of(st.sampled_from("ab"), _text))
    names = xplane_pb2.XPlane()
    for key in draw(st.lists(_id, max_size=4)):
        names.event_metadata[key].name = draw(_text)
        names.event_metadata[key].child_id.extend(draw(st.lists(_int64, max_size=2)))
        names.event_metadata[key].stats.extend(draw(st.lists(_stats(), max_size=2)))
    lines = [xplane_pb2.XPlane(lines=[line]) for line in draw(st.lists(_lines(), max_size=3))]
    parts = [part.SerializeToString() for part in (head, names, *lines)]
    return b"".join(draw(st.permutations([*parts, draw(_unknown)])))


@st.composite
def spaces(draw: st.DrawFn) -> bytes:
    """A valid XSpace's bytes."""
    space = xplane_pb2.XSpace(hostnames=draw(st.lists(_text, max_size=2)))
    for plane in draw(st.lists(_planes(), max_size=3)):
        space.planes.append(xplane_pb2.XPlane.FromString(plane))
    return space.SerializeToString() + draw(_unknown)


@_relaxed
@given(spaces())
def test_the_compiled_reader_equals_the_protobuf_one(raw: bytes) -> None:
    assert _compiled(raw) == _portable(raw)


@settings(_relaxed, max_examples=300)
@given(spaces(), st.data())
def test_damaged_bytes_are_refused_or_read_as_protobuf_reads_them(
    raw: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            at = data.draw(st.integers(0, len(damaged) - 1))
            damaged[at] = data.draw(st.integers(0, 255))
    try:
        ours = _compiled(bytes(damaged))
    except XSpaceError:
        return
    assert ours == _portable(bytes(damaged))
    xplane_pb2.XSpace.FromString(bytes(damaged))


def _sample() -> bytes:
    space = xplane_pb2.XSpace(hostnames=["h"])
    plane = space.planes.add(name="/host:CPU")
    plane.event_metadata[1].name = "step"
    plane.stat_metadata[1].name = "text"
    line = plane.lines.add(id=-1, name="main", timestamp_ns=1)
    for i in range(3):
        event = line.events.add(metadata_id=1, offset_ps=i, duration_ps=200)
        event.stats.add(metadata_id=1, str_value="abc")
        event.stats.add(metadata_id=1, double_value=1.5)
    return space.SerializeToString()


def test_a_file_cut_at_any_byte_is_refused_unless_protobuf_accepts_it() -> None:
    raw = _sample()
    accepted = 0
    for end in range(len(raw)):
        try:
            verify(raw[:end])
        except XSpaceError:
            continue
        xplane_pb2.XSpace.FromString(raw[:end])
        accepted += 1
    # Only between two fields of the space itself: behind its plane.
    assert accepted == 1


def test_thousands_of_random_mutations_neither_crash_nor_hang() -> None:
    random_bytes = random.Random(20)
    raw = _sample()
    outcomes = {True: 0, False: 0}
    for _ in range(4000):
        mutated = bytearray(raw)
        for _ in range(random_bytes.randrange(1, 6)):
            at = random_bytes.randrange(len(mutated))
            match random_bytes.randrange(3):
                case 0:
                    mutated[at] = random_bytes.randrange(256)
                case 1:
                    del mutated[at : at + random_bytes.randrange(1, 5)]
                case _:
                    mutated[at:at] = random_bytes.randbytes(random_bytes.randrange(1, 5))
        try:
            verify(bytes(mutated))
        except XSpaceError:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
    assert min(outcomes.values()) > 100


def test_the_error_says_where_the_bytes_are_wrong() -> None:
    raw = bytearray(_sample())
    at = raw.index(b"abc")
    raw[at - 1] = 100
    with pytest.raises(XSpaceError, match="plane '/host:CPU', line 'main'") as caught:
        verify(bytes(raw))
    assert (caught.value.plane, caught.value.line) == ("/host:CPU", "main")
    assert abs(caught.value.offset - at) < 8


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        (b"\x08" + b"\xff" * 9 + b"\x02", "more than 64 bits"),
        (b"\x08" + b"\xff" * 10 + b"\x01", "more than 64 bits"),
        (b"\x08\x80", "cut off"),
        (b"\x0b\x0c", "wire type 3"),
        (b"\x0e", "wire type 6"),
        (b"\x00\x01", "no valid number"),
        (b"\xff\xff\xff\xff\x7f\x01", "no valid number"),
        (b"\x22\x05ab", "beyond its message"),
        (b"\x22\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "beyond its message"),
        (b"\x09\x00", "beyond its message"),
        (b"\x22\x03\x2a\x01\xff", "not UTF-8"),
        (b"\x22\x05\x2a\x03\xed\xa0\x80", "not UTF-8"),
    ],
)
def test_each_kind_of_bad_field_is_named(event: bytes, problem: str) -> None:
    line = b"\x22" + bytes([len(event)]) + event
    plane = b"\x1a" + bytes([len(line)]) + line
    with pytest.raises(XSpaceError, match=problem):
        verify(b"\x0a" + bytes([len(plane)]) + plane)


def _zip() -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("host.xplane.pb", _sample())
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (b"hello, this is a log\nwith lines\n" * 20, "text file"),
        (json.dumps({"traceEvents": []}).encode(), "JSON"),
        (gzip.compress(json.dumps({"traceEvents": []}).encode(), mtime=0), "JSON"),
        (b"\n<html><body>503</body></html>", "HTML"),
        (b'\n{"traceEvents": []}', "JSON"),
        (b'"name","duration"\n"step",3\n', "text file"),
        (_zip(), "zip archive"),
        (b"\x89PNG\r\n\x1a\n" + bytes(60), "PNG"),
        (b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f" + bytes(56), "Riegeli"),
        (b"\x7fELF" + bytes(60), "ELF"),
        (bytes(100), "byte 0x00"),
        (b"\x28\xb5\x2f\xfd" + bytes(20), "cannot be unpacked"),
        (gzip.compress(_sample(), mtime=0)[:-9], "cannot be unpacked"),
        (b"\x1f\x8bnot gzip at all", "cannot be unpacked"),
    ],
)
def test_a_file_of_another_kind_is_named(content: bytes, what: str) -> None:
    with pytest.raises(XSpaceError, match=what):
        open_xspace(content)


def _zstd() -> Any:
    with contextlib.suppress(ImportError):
        return importlib.import_module("compression.zstd")
    return importlib.import_module("backports.zstd")


def test_a_space_packed_with_zstd_is_read_and_a_damaged_one_refused() -> None:
    raw, zstd = _sample(), _zstd()
    packed = zstd.compress(raw[:50]) + zstd.compress(raw[50:])
    assert verify(packed) == verify(raw)
    for cut in range(4, len(packed), 7):
        with pytest.raises(XSpaceError):
            verify(packed[:cut])
    with pytest.raises(XSpaceError, match="larger than"):
        open_xspace(zstd.compress(bytes(50_000_000)))


def test_without_a_module_for_zstd_what_to_do_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = _zstd().compress(_sample())
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(XSpaceError, match=r"pip install 'podscope\[collector\]'"):
        open_xspace(packed)


def test_a_space_whose_bytes_are_all_letters_is_no_text_file() -> None:
    raw = xplane_pb2.XSpace(hostnames=["host-00001"]).SerializeToString()
    assert raw.decode().replace("\n", "").isprintable()
    assert open_xspace(raw).hostnames == ("host-00001",)


def test_a_file_whose_bytes_were_replaced_in_text_mode_is_refused() -> None:
    space = xplane_pb2.XSpace()
    space.planes.add(name="p").stats.add(metadata_id=1, bytes_value=bytes(range(256)))
    damaged = space.SerializeToString().decode(errors="replace").encode()
    with pytest.raises(XSpaceError):
        verify(damaged)
    with pytest.raises(DecodeError):
        xplane_pb2.XSpace.FromString(damaged)


def test_a_compressed_stat_with_a_damaged_body_is_refused() -> None:
    packed = bytearray(
        gzip.compress(b"text that is long enough to refer back to itself" * 4, mtime=0)
    )
    packed[16:24] = b"\xff" * 8
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    plane.stat_metadata[1].name = "long"
    plane.stats.add(metadata_id=1, gzip_value=bytes(packed))
    with pytest.raises(XSpaceError, match="cannot be unpacked"):
        _ = open_xspace(space.SerializeToString()).planes[0].stats
