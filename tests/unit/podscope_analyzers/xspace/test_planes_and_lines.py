import gzip
import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podscope_analyzers import XSpace, XSpaceError, open_xspace
from podscope_analyzers.kernels import natural_order
from podscope_analyzers.xspace import Limits, verify
from podscope_protos.v1 import xplane_pb2


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _small() -> xplane_pb2.XSpace:
    """A host plane of two threads, every kind of stat on one event."""
    space = xplane_pb2.XSpace(hostnames=["host-3"], errors=["e"], warnings=["w1", "w2"])
    plane = space.planes.add(id=7, name="/host:CPU")
    names = ["double", "uint", "int", "text", "bytes", "ref", "gzip", "the referred name"]
    for key, name in enumerate(names, 10):
        plane.stat_metadata[key].id = key
        plane.stat_metadata[key].name = name
    plane.event_metadata[5].name = "five"
    plane.event_metadata[5].display_name = "FIVE"
    plane.event_metadata[-3].name = "minus three"
    plane.event_metadata[-3].child_id.extend([5, 9])
    plane.event_metadata[-3].stats.add(metadata_id=12, int64_value=-4)
    plane.event_metadata[-3].stats.add(metadata_id=12, int64_value=6)
    plane.stats.add(metadata_id=15, ref_value=17)
    plane.stats.add(metadata_id=13, str_value="plain")
    line = plane.lines.add(
        id=-(2**60), display_id=4, name="thread", display_name="Thread", timestamp_ns=2
    )
    event = line.events.add(metadata_id=5, offset_ps=30, duration_ps=40)
    event.stats.add(metadata_id=10, double_value=-2.5)
    event.stats.add(metadata_id=11, uint64_value=2**64 - 1)
    event.stats.add(metadata_id=12, int64_value=-(2**63))
    event.stats.add(metadata_id=13, str_value="größe")
    event.stats.add(metadata_id=14, bytes_value=b"\xff\x00")
    event.stats.add(metadata_id=15, ref_value=17)
    event.stats.add(metadata_id=16, gzip_value=gzip.compress(b"long text"))
    line.events.add(metadata_id=-3, num_occurrences=12, duration_ps=9)
    line.events.add(metadata_id=99, offset_ps=-1, duration_ps=-5)
    plane.lines.add(id=-(2**60), name="again")
    space.planes.add(name="/host:CPU")
    return space


def test_a_space_tells_its_hosts_errors_and_warnings() -> None:
    space = open_xspace(_small().SerializeToString())
    assert space.hostnames == ("host-3",)
    assert space.errors == ("e",)
    assert space.warnings == ("w1", "w2")


def test_planes_of_one_name_stay_apart_and_the_first_is_found() -> None:
    space = open_xspace(_small().SerializeToString())
    assert [plane.name for plane in space.planes] == ["/host:CPU", "/host:CPU"]
    assert space.plane("/host:CPU") is space.planes[0]
    assert space.plane("/device:TPU:0") is None


def test_a_line_keeps_its_negative_and_repeated_id() -> None:
    lines = open_xspace(_small().SerializeToString()).planes[0].lines
    assert [line.id for line in lines] == [-(2**60), -(2**60)]
    assert (lines[0].display_id, lines[0].display_name) == (4, "Thread")
    assert [line.event_count for line in lines] == [3, 0]


def test_plane_stats_read_strings_and_references_alike() -> None:
    plane = open_xspace(_small().SerializeToString()).planes[0]
    assert plane.id == 7
    assert plane.stats == {"ref": "the referred name", "text": "plain"}


def test_metadata_rows_are_in_the_order_of_signed_ids() -> None:
    table = open_xspace(_small().SerializeToString()).planes[0].event_metadata
    assert table.ids.tolist() == [-3, 5]
    assert table.names == ["minus three", "five", ""]
    assert table.display_names == ["", "FIVE", ""]
    assert table.row(5) == 1
    assert table.row(6) == table.empty_row == 2


def test_the_first_of_a_repeated_metadata_stat_is_the_one_looked_up() -> None:
    table = open_xspace(_small().SerializeToString()).planes[0].event_metadata
    assert table.stats(0) == {"int": -4}
    assert table.stat_pairs(0) == [("int", -4), ("int", 6)]
    assert table.child_ids(0) == [5, 9]
    assert table.stats(table.empty_row) == {}


def test_columns_hold_rows_starts_durations_and_occurrences() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    columns = line.columns()
    assert columns.metadata.tolist() == [1, 0, 2]
    assert columns.start_ps.tolist() == [2030, 2000, 1999]
    # A span that ends before it starts has no duration.
    assert columns.duration_ps.tolist() == [40, 9, 0]
    assert columns.occurrences.tolist() == [0, 12, 0]


def test_every_kind_of_stat_reads_by_its_own_member_only() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    columns = line.columns(("double", "uint", "int", "text", "bytes", "ref", "gzip"))
    kinds = {name: int(columns.stat(name).kind[0]) for name in sorted(columns.stat_names)}
    assert kinds == {
        "bytes": 6, "double": 2, "gzip": 8, "int": 4, "ref": 7, "text": 5, "uint": 3,
    }  # fmt: skip
    assert columns.stat("double").doubles().tolist() == [-2.5, 0.0, 0.0]
    assert columns.stat("int").doubles().tolist() == [0.0, 0.0, 0.0]
    assert columns.stat("int").ints().tolist() == [-(2**63), 0, 0]
    assert columns.stat("uint").ints().tolist() == [0, 0, 0]
    assert columns.stat("uint").ints_or_uints().view(np.uint64).tolist() == [2**64 - 1, 0, 0]
    assert columns.stat("text").present().tolist() == [True, False, False]
    for name, text in (("text", "größe"), ("ref", "the referred name"), ("gzip", "long text")):
        codes, table = columns.stat(name).strings()
        assert (codes.tolist(), table) == ([0, -1, -1], [text])
    assert columns.stat("bytes").payload(0) == b"\xff\x00"
    assert columns.stat("text").payload(0) == "größe".encode()
    assert columns.stat("int").payload(0) == b""


def test_a_number_reads_as_the_empty_text() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    codes, table = line.columns(("int",)).stat("int").strings()
    assert (codes.tolist(), table) == ([0, -1, -1], [""])


def test_a_stat_that_the_plane_does_not_know_is_absent_everywhere() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    stat = line.columns(("nobody wrote this",)).stat("nobody wrote this")
    assert stat.present().tolist() == [False] * 3
    assert stat.ints().tolist() == [0] * 3
    assert stat.strings()[0].tolist() == [-1] * 3


def test_a_stat_that_was_not_asked_for_is_a_key_error() -> None:
    columns = open_xspace(_small().SerializeToString()).planes[0].lines[0].columns(("int",))
    with pytest.raises(KeyError):
        columns.stat("text")


def test_stats_asked_for_later_join_those_decoded_before() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    before = line.columns(("int",))
    after = line.columns(("text", "int"))
    assert after.stat_names == {"int", "text"}
    assert after.start_ps is before.start_ps
    assert after.stat("int").ints().tolist() == before.stat("int").ints().tolist()


def test_released_columns_are_decoded_again() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    before = line.columns(("int",))
    line.release()
    after = line.columns()
    assert after.stat_names == frozenset()
    assert after.start_ps is not before.start_ps
    assert after.start_ps.tolist() == before.start_ps.tolist()


def test_all_stats_of_one_event_are_read_on_demand() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    expected = {
        "double": -2.5,
        "uint": 2**64 - 1,
        "int": -(2**63),
        "text": "größe",
        "bytes": b"\xff\x00",
        "ref": "the referred name",
        "gzip": "long text",
    }
    assert line.event_stats(0) == expected
    line.columns()
    assert line.event_stats(0) == expected
    assert line.event_stats(2) == {}
    with pytest.raises(IndexError, match="3 events, no event 3"):
        line.event_stats(3)


def test_any_event_of_a_long_line_is_found() -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="p")
    plane.stat_metadata[1].name = "n"
    line = plane.lines.add(name="l")
    for i in range(300):
        line.events.add(offset_ps=i).stats.add(metadata_id=1, int64_value=i)
    read = open_xspace(space.SerializeToString()).planes[0].lines[0]
    read.columns()
    assert [read.event_stats(i)["n"] for i in (0, 63, 64, 65, 191, 299)] == [
        0, 63, 64, 65, 191, 299,
    ]  # fmt: skip


def test_of_a_stat_that_repeats_on_an_event_the_first_counts() -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="p")
    # Two ids of one name are one stat.
    plane.stat_metadata[1].name = "n"
    plane.stat_metadata[2].name = "n"
    event = plane.lines.add().events.add()
    event.stats.add(metadata_id=2, int64_value=20)
    event.stats.add(metadata_id=1, int64_value=10)
    line = open_xspace(space.SerializeToString()).planes[0].lines[0]
    assert line.columns(("n",)).stat("n").ints().tolist() == [20]
    assert line.event_stats(0) == {"n": 20}


def test_the_last_member_of_a_oneof_wins() -> None:
    event = b"\x10\x05" + b"\x28\x07" + b"\x10\x06"  # offset 5, occurrences 7, offset 6
    aggregated = b"\x10\x05" + b"\x28\x07"
    plane = _field(3, _field(4, event) + _field(4, aggregated))
    columns = open_xspace(_field(1, plane)).planes[0].lines[0].columns()
    assert columns.start_ps.tolist() == [6, 0]
    assert columns.occurrences.tolist() == [0, 7]


def test_a_stat_whose_id_follows_its_value_is_read() -> None:
    metadata = _field(5, b"\x08\x03" + _field(2, _field(2, b"late")))
    stat = b"\x20\x2a" + b"\x08\x03"
    plane = metadata + _field(3, _field(4, _field(4, stat)))
    columns = open_xspace(_field(1, plane)).planes[0].lines[0].columns(("late",))
    assert columns.stat("late").ints().tolist() == [42]


def test_fields_that_nobody_knows_are_skipped_at_every_level() -> None:
    unknown = _varint(31 << 3 | 2) + b"\x03abc" + _varint(30 << 3) + b"\x85\x01"
    fixed = _varint(29 << 3 | 1) + bytes(8) + _varint(28 << 3 | 5) + bytes(4)
    event = unknown + b"\x10\x05" + fixed + _field(4, unknown + b"\x08\x03\x20\x01" + fixed)
    line = unknown + _field(2, b"name") + _field(4, event) + fixed
    metadata = _field(5, b"\x08\x03" + _field(2, _field(2, b"n")))
    plane = _field(3, line) + unknown + metadata + fixed
    raw = _field(1, plane) + unknown + fixed
    read = open_xspace(raw).planes[0].lines[0]
    assert read.name == "name"
    assert read.columns(("n",)).stat("n").ints().tolist() == [1]
    assert read.columns().start_ps.tolist() == [5]
    assert verify(raw).event_stats == 1


def test_metadata_reads_alike_before_between_and_after_lines() -> None:
    first = xplane_pb2.XPlane(name="p")
    first.event_metadata[1].name = "one"
    first.stat_metadata[1].name = "s"
    second = xplane_pb2.XPlane()
    second.event_metadata[2].name = "two"
    lines = [xplane_pb2.XPlane(), xplane_pb2.XPlane()]
    for key, part in enumerate(lines, 1):
        part.lines.add(id=key).events.add(metadata_id=key)
    a, b = first.SerializeToString(), second.SerializeToString()
    c, d = (part.SerializeToString() for part in lines)
    for order in ((a, b, c, d), (c, d, b, a), (c, a, d, b)):
        plane = open_xspace(_field(1, b"".join(order))).planes[0]
        assert plane.name == "p"
        names = [plane.event_metadata.names[line.columns().metadata[0]] for line in plane.lines]
        assert names == ["one", "two"]


def test_concatenated_spaces_read_as_one() -> None:
    raw = _small().SerializeToString()
    space = open_xspace(raw + raw)
    assert len(space.planes) == 4
    assert space.hostnames == ("host-3", "host-3")


def test_metadata_ids_far_apart_are_looked_up_without_an_array_of_their_range() -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add()
    ids = [-(2**63), -1, 0, 2**62, 2**63 - 1, *range(10**15, 10**15 + 5000, 7)]
    for key in ids:
        plane.event_metadata[key].name = str(key)
    line = plane.lines.add()
    for key in [*ids, 5, 10**15 + 1]:
        line.events.add(metadata_id=key)
    read = open_xspace(space.SerializeToString()).planes[0]
    names = [read.event_metadata.names[row] for row in read.lines[0].columns().metadata]
    assert names == [*map(str, ids), "", ""]


def test_unix_timestamps_become_relative_to_the_start_of_the_profile() -> None:
    start = 1_700_000_000_000_000_000
    space = xplane_pb2.XSpace()
    environment = space.planes.add(name="Task Environment")
    environment.stat_metadata[1].name = "profile_start_time"
    environment.stats.add(metadata_id=1, uint64_value=start)
    plane = space.planes.add(name="/device:TPU:0")
    plane.lines.add(timestamp_ns=start + 250).events.add(offset_ps=7)
    plane.lines.add(timestamp_ns=300).events.add(offset_ps=8)
    read = open_xspace(space.SerializeToString())
    assert read.base_ns == start
    assert [line.timestamp_ns for line in read.lines] == [250, 300]
    assert [line.columns().start_ps.tolist() for line in read.lines] == [[250_007], [300_008]]


def test_unix_timestamps_without_a_start_begin_at_the_earliest() -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add()
    plane.lines.add(timestamp_ns=1_700_000_000_000_000_500)
    plane.lines.add(timestamp_ns=1_700_000_000_000_000_000)
    read = open_xspace(space.SerializeToString())
    assert read.base_ns == 1_700_000_000_000_000_000
    assert [line.timestamp_ns for line in read.lines] == [500, 0]


def test_times_beyond_any_profile_are_cut_instead_of_overflowing() -> None:
    space = xplane_pb2.XSpace()
    line = space.planes.add().lines.add(timestamp_ns=2**50)
    line.events.add(offset_ps=2**63 - 1, duration_ps=2**63 - 1)
    line.events.add(offset_ps=-(2**63))
    columns = open_xspace(space.SerializeToString()).planes[0].lines[0].columns()
    assert columns.start_ps.tolist() == [2**61, -(2**61)]
    assert columns.duration_ps.tolist() == [2**61, 0]


def test_bytes_views_and_maps_read_alike(tmp_path: Path) -> None:
    raw = _small().SerializeToString()
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(raw)
    expected = open_xspace(raw).planes[0].lines[0].columns().start_ps.tolist()
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    for buffer in (memoryview(bytearray(raw)), mapped, memoryview(b"x" + raw)[1:]):
        line = open_xspace(buffer).planes[0].lines[0]
        assert line.columns().start_ps.tolist() == expected


def test_a_gzip_file_of_several_members_is_unpacked() -> None:
    raw = _small().SerializeToString()
    packed = gzip.compress(raw[:50]) + gzip.compress(raw[50:])
    assert open_xspace(packed).hostnames == ("host-3",)


def test_lines_decoded_in_threads_equal_those_decoded_one_by_one() -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add()
    plane.stat_metadata[1].name = "n"
    for key in range(12):
        line = plane.lines.add(id=key)
        for i in range(50 * key):
            line.events.add(offset_ps=i * key).stats.add(metadata_id=1, int64_value=i)
    raw = space.SerializeToString()
    threaded, single = open_xspace(raw), open_xspace(raw)
    threaded.decode(threaded.lines, ("n",), threads=4)
    for ours, theirs in zip(threaded.lines, single.lines, strict=True):
        a, b = ours.columns(("n",)), theirs.columns(("n",))
        assert a.start_ps.tolist() == b.start_ps.tolist()
        assert a.stat("n").ints().tolist() == b.stat("n").ints().tolist()


_long_events = st.lists(
    st.tuples(
        st.sampled_from([5, -3, 99, 2**40]),
        st.integers(-40, 40) | st.sampled_from([2**62, -(2**62)]),
        st.integers(-2, 9) | st.just(2**62),
        st.sampled_from([None, None, 10, 11, 77]),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_long_events, st.booleans())
def test_the_survey_of_a_long_line_says_what_its_columns_say(
    drawn: list[tuple[int, int, int, int | None, bool]], is_sorted: bool
) -> None:
    if is_sorted:
        drawn = sorted(drawn, key=lambda event: (event[1], -event[2]))
    times = -(-4096 // len(drawn))
    # Each event many times over, so that the line is long and in order where the drawn one is.
    repeated = [event for event in drawn for _ in range(times)]
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/device:TPU:0")
    plane.event_metadata[5].name, plane.event_metadata[-3].name = "five", "minus three"
    plane.stat_metadata[10].name, plane.stat_metadata[11].name = "_p", "_c"
    line = plane.lines.add(name="XLA Ops", timestamp_ns=3)
    for metadata_id, offset, duration, stat, is_aggregated in repeated:
        event = line.events.add(metadata_id=metadata_id, offset_ps=offset, duration_ps=duration)
        if is_aggregated:
            event.num_occurrences = 4
        if stat is not None:
            event.stats.add(metadata_id=stat, int64_value=1)
    raw = space.SerializeToString()
    surveyed = open_xspace(raw).planes[0].lines[0]
    found = surveyed.survey(frozenset({"_p", "_c", "nowhere"}))
    columns = open_xspace(raw).planes[0].lines[0].columns(("_p", "_c"))
    assert found is not None
    order = natural_order(columns.start_ps, columns.duration_ps)
    assert found.is_natural is (order is None)
    assert found.stats == {name for name in ("_p", "_c") if columns.stat(name).kind.any()}
    assert found.has_none(frozenset({"nowhere"}))
    assert not found.has_none(frozenset({"never asked for"}))
    assert found.rows.tolist() == np.unique(columns.metadata).tolist()
    end_ps = columns.start_ps + columns.duration_ps
    for row in found.rows.tolist():
        own = columns.metadata == row
        assert found.first_ps[row] == columns.start_ps[own].min()
        assert found.last_ps[row] == end_ps[own].max()


def test_a_short_line_and_a_decoded_one_are_not_surveyed() -> None:
    line = open_xspace(_small().SerializeToString()).planes[0].lines[0]
    assert line.survey(frozenset()) is None


def test_stats_on_all_and_on_few_events_of_a_very_long_line_are_read() -> None:
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/device:TPU:0")
    plane.stat_metadata[1].name, plane.stat_metadata[2].name = "on all", "on one"
    count = 300_000
    one = xplane_pb2.XEvent(duration_ps=1)
    one.stats.add(metadata_id=1, int64_value=7)
    last = xplane_pb2.XEvent(duration_ps=1)
    last.stats.add(metadata_id=2, int64_value=9)
    events = _field(4, one.SerializeToString()) * count + _field(4, last.SerializeToString())
    raw = _field(1, plane.SerializeToString() + _field(3, events))
    columns = open_xspace(raw).planes[0].lines[0].columns(("on all", "on one"))
    everywhere, rare = columns.stat("on all"), columns.stat("on one")
    assert everywhere.ints().sum() == 7 * count
    assert not everywhere.is_everywhere
    assert (rare.ints().sum(), rare.ints()[-1]) == (9, 9)


def test_verify_counts_what_it_walked() -> None:
    found = verify(_small().SerializeToString())
    assert (found.planes, found.lines, found.events, found.event_stats) == (2, 2, 3, 7)
    assert (found.event_metadata, found.stat_metadata) == (2, 8)
    assert (found.unnamed_events, found.unsorted_lines) == (1, 1)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(planes=1), "field 1 repeats more than 1 times"),
        (Limits(lines=1), "field 3 repeats more than 1 times"),
        (Limits(events=2), "field 4 repeats more than 2 times"),
        (Limits(metadata=1), "field 4 repeats more than 1 times"),
        (Limits(stat_metadata=7), "field 5 repeats more than 7 times"),
        (Limits(name_bytes=5), "a name is longer than 5 bytes"),
        (Limits(value_bytes=8), "unpacks to more than 8 bytes"),
        (Limits(values_bytes=8), "unpack to too many bytes in all"),
    ],
)
def test_a_file_beyond_a_cap_is_refused(limits: Limits, problem: str) -> None:
    with pytest.raises(XSpaceError, match=problem):
        _read_gzip_texts(open_xspace(_small().SerializeToString(), limits))


def _read_gzip_texts(space: XSpace) -> None:
    for line in space.lines:
        line.columns(("gzip",)).stat("gzip").strings()


def test_a_packed_file_that_grows_too_large_is_refused() -> None:
    packed = gzip.compress(bytes(50_000_000))
    with pytest.raises(XSpaceError, match="larger than 1000000 bytes"):
        open_xspace(packed, Limits(decompressed_bytes=1_000_000))
    with pytest.raises(XSpaceError, match="larger than 16777216 bytes"):
        open_xspace(packed)
