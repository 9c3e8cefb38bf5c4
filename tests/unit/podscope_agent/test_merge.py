import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.merge import HostPart, ProcessXSpace, merge_xspaces, merged_into_files
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace


def has_events(data: bytes) -> bool:
    return ProcessXSpace(1, data, "localhost:1").scanned.has_events


START_NS = 1_700_000_000_000_000_000


def space(*planes: XPlane, hostname: str = "h0", start_ns: int | None = None) -> XSpace:
    built = XSpace(planes=planes, hostnames=[hostname])
    if start_ns is not None:
        task = built.planes.add(name="Task Environment")
        task.stat_metadata[1].name = "profile_start_time"
        task.stats.add(metadata_id=1, uint64_value=start_ns)
    return built


def plane(name: str, *, timestamp_ns: int = 1000, events: int = 1, plane_id: int = 0) -> XPlane:
    built = XPlane(name=name, id=plane_id)
    built.event_metadata[7].name = f"op of {name}"
    line = built.lines.add(id=-5, name="line", timestamp_ns=timestamp_ns)
    for index in range(events):
        line.events.add(metadata_id=7, offset_ps=10 * index, duration_ps=4)
    return built


def metadata_plane(programs: dict[int, str], *, stat_id: int) -> XPlane:
    built = XPlane(name="/host:metadata")
    built.stat_metadata[stat_id].name = "Hlo Proto"
    for key, name in programs.items():
        built.event_metadata[key].id = key
        built.event_metadata[key].name = name
        built.event_metadata[key].stats.add(metadata_id=stat_id, bytes_value=name.encode())
    return built


def merge(*spaces: XSpace, warnings: list[str] | None = None) -> XSpace:
    processes = [
        ProcessXSpace(100 + i, s.SerializeToString(), f"localhost:{9000 + i}")
        for i, s in enumerate(spaces)
    ]
    return XSpace.FromString(merge_xspaces(processes, warnings or []).joined())


def names(merged: XSpace) -> list[str]:
    return [p.name for p in merged.planes]


def process_id(p: XPlane) -> int:
    [value] = [
        s.int64_value for s in p.stats if p.stat_metadata[s.metadata_id].name == "process_id"
    ]
    return value


def test_one_process_passes_through_untouched() -> None:
    only = space(plane("/host:CPU"), start_ns=START_NS)
    assert merge(only) == only


def test_host_planes_of_later_processes_carry_the_process() -> None:
    merged = merge(space(plane("/host:CPU")), space(plane("/host:CPU", events=3)))
    assert names(merged) == ["/host:CPU", "/host:CPU [101]"]
    assert [process_id(p) for p in merged.planes] == [100, 101]
    assert [len(p.lines[0].events) for p in merged.planes] == [1, 3]


def test_device_planes_never_collide_and_keep_a_device_together() -> None:
    one = space(plane("/device:TPU:0"), plane("/device:TPU:0 SparseCore 1", plane_id=1))
    two = space(
        plane("/device:TPU:0"), plane("/device:TPU:0 SparseCore 1", plane_id=1), hostname="h0"
    )
    merged = merge(one, two)
    assert names(merged) == [
        "/device:TPU:0",
        "/device:TPU:0 SparseCore 1",
        "/device:TPU:1",
        "/device:TPU:1 SparseCore 1",
    ]
    assert len({p.id for p in merged.planes}) == 4


def test_devices_that_do_not_collide_keep_their_names() -> None:
    merged = merge(space(plane("/device:GPU:2")), space(plane("/device:GPU:3", plane_id=3)))
    assert names(merged) == ["/device:GPU:2", "/device:GPU:3"]


def test_times_count_from_the_earliest_session_start() -> None:
    early = space(plane("/host:CPU", timestamp_ns=50), start_ns=START_NS)
    late = space(plane("/host:CPU", timestamp_ns=50), start_ns=START_NS + 2_000_000)
    for order in ([late, early], [early, late]):
        merged = merge(*order)
        starts = sorted(p.lines[0].timestamp_ns for p in merged.planes if p.lines)
        assert starts == [50, 2_000_050]


def test_programs_are_united_with_their_stats_translated() -> None:
    one = space(metadata_plane({1: "jit_a(1)"}, stat_id=4))
    two = space(metadata_plane({1: "jit_a(1)", 2: "jit_b(2)"}, stat_id=9))
    merged = merge(one, two)
    [programs] = merged.planes
    assert {k: m.name for k, m in programs.event_metadata.items()} == {1: "jit_a(1)", 2: "jit_b(2)"}
    for metadata in programs.event_metadata.values():
        hlo = metadata.stats[0]
        assert programs.stat_metadata[hlo.metadata_id].name == "Hlo Proto"
        assert hlo.bytes_value == metadata.name.encode()


def test_hostnames_are_kept_once_and_errors_say_whose_they_are() -> None:
    one, two = space(plane("/host:CPU")), space(plane("/host:CPU"))
    two.errors.append("lost the device")
    merged = merge(one, two, warnings=["localhost:9002 is missing"])
    assert list(merged.hostnames) == ["h0"]
    assert list(merged.errors) == ["localhost:9001: lost the device"]
    assert list(merged.warnings) == ["localhost:9002 is missing"]


def test_emptiness_is_judged_by_events() -> None:
    assert not has_events(space(start_ns=START_NS).SerializeToString())
    assert not has_events(space(plane("/host:CPU", events=0)).SerializeToString())
    assert has_events(space(plane("/host:CPU")).SerializeToString())
    assert not has_events(b"")


@pytest.mark.parametrize("garbage", [b"\x0a\x7f\x01", b"\xff" * 12, b"\x0b\x00", b"<html>"])
def test_garbage_is_named_as_such(garbage: bytes) -> None:
    with pytest.raises(MalformedXSpaceError):
        has_events(garbage)


events = st.tuples(st.integers(0, 2**40), st.integers(0, 2**30))
lines = st.tuples(st.integers(-(2**62), 2**62), st.lists(events, max_size=4))


@st.composite
def spaces(draw: st.DrawFn) -> XSpace:
    built = XSpace(hostnames=[draw(st.sampled_from(["a", "b"]))])
    kinds = st.sampled_from(["/host:CPU", "/device:TPU:0", "/device:TPU:1", "/device:GPU:0", "x"])
    for name in draw(st.lists(kinds, unique=True, max_size=4)):
        p = built.planes.add(name=name)
        for line_timestamp, line_events in draw(st.lists(lines, max_size=3)):
            line = p.lines.add(timestamp_ns=line_timestamp // 2)
            for offset_ps, duration_ps in line_events:
                line.events.add(offset_ps=offset_ps, duration_ps=duration_ps)
    if draw(st.booleans()):
        task = built.planes.add(name="Task Environment")
        task.stat_metadata[3].name = "profile_start_time"
        task.stats.add(metadata_id=3, uint64_value=START_NS + draw(st.integers(0, 10**9)))
    return built


@settings(max_examples=60, deadline=None)
@given(st.lists(spaces(), min_size=1, max_size=4))
def test_no_event_is_lost_and_no_two_planes_share_a_name(given_spaces: list[XSpace]) -> None:
    merged = merge(*given_spaces)
    count = sum(len(x.events) for s in given_spaces for p in s.planes for x in p.lines)
    assert sum(len(x.events) for p in merged.planes for x in p.lines) == count
    assert len(set(names(merged))) == len(merged.planes)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes_are_an_xspace_or_malformed(data: bytes) -> None:
    offset = 0
    try:
        has_events(data)
    except MalformedXSpaceError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)


def as_process(number: int, built: XSpace) -> ProcessXSpace:
    return ProcessXSpace(number, built.SerializeToString(), f"localhost:{number}")


def into_files(
    processes: list[ProcessXSpace], warnings: list[str], limit_bytes: int
) -> list[HostPart]:
    whole = merge_xspaces(processes, warnings)
    return merged_into_files(whole, processes, warnings, limit_bytes)


def test_a_profile_within_the_limit_is_one_file() -> None:
    processes = [as_process(n, space(plane("/host:CPU"))) for n in (7, 8)]
    [only] = into_files(processes, ["lost"], 10_000)
    assert only.suffix == ""
    assert only.pieces.joined() == merge_xspaces(processes, ["lost"]).joined()


def test_a_profile_above_the_limit_has_a_file_of_each_process() -> None:
    processes = [as_process(n, space(plane("/host:CPU", events=20 * n))) for n in (7, 8, 9)]
    files = into_files(processes, ["lost"], 2000)
    assert [part.suffix for part in files] == ["", "process-8", "process-9"]
    spaces = [XSpace.FromString(part.pieces.joined()) for part in files]
    assert [len(s.planes[0].lines[0].events) for s in spaces] == [140, 160, 180]
    assert spaces[0].warnings[0] == "lost"
    assert all("each of its 3 processes has a file of its own" in s.warnings[-1] for s in spaces)


def test_a_process_that_sent_nothing_has_no_file() -> None:
    processes = [as_process(n, space(plane("/host:CPU", events=200))) for n in (8, 9)]
    files = into_files([ProcessXSpace(7, b"", "localhost:7"), *processes], ["7 is lost"], 2000)
    assert [part.suffix for part in files] == ["", "process-9"]
    assert XSpace.FromString(files[0].pieces.joined()).warnings[0] == "7 is lost"


def test_planes_that_claim_to_hold_stats_and_do_not_are_malformed() -> None:
    body = b"\x12\x10Task Environment\x32\x02\x08\xff"
    with pytest.raises(MalformedXSpaceError):
        has_events(bytes([0x0A, len(body)]) + body)
