"""Our XSpace and a framework's as one."""

from podscope import wire
from podscope.profiler.joining import THREAD_MARK, join
from podscope.profiler.planes import PlaneBuilder, task_plane
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace

SECOND = 1_000_000_000
Event = tuple[str, int, int]


def space(
    start_ns: int, lines: dict[int, list[Event]], plane: str = "/host:CPU", timestamp_ns: int = 0
) -> "wire.XSpace":
    """An XSpace of events given as name, offset and duration in nanoseconds."""
    built = wire.XSpace(hostnames=["here"])
    builder = PlaneBuilder(built.planes.add(name=plane))
    for number, events in lines.items():
        line = builder.message.lines.add(id=number, timestamp_ns=timestamp_ns)
        for name, offset, duration in events:
            event = line.events.add(
                metadata_id=builder.event_id(name),
                offset_ps=offset * 1000,
                duration_ps=duration * 1000,
            )
            builder.add_stat(event, "of", name)
    built.planes.append(task_plane(start_ns, start_ns + SECOND))
    return built


def marked(start_ns: int, thread: int, line: int) -> "wire.XSpace":
    """A framework's XSpace whose line for a thread has an id of its own."""
    built = space(start_ns, {line: [("op", 50, 10)], 99: [("elsewhere", 0, 5)]})
    builder = PlaneBuilder(built.planes[0])
    event = built.planes[0].lines[0].events.add(metadata_id=builder.event_id(THREAD_MARK))
    builder.add_stat(event, "thread", thread)
    return built


def read(joined: bytes) -> tuple[XSpace, dict[int, list[Event]]]:
    """The XSpace, and the host's events in nanoseconds since its start."""
    found = XSpace.FromString(joined)
    [host] = [plane for plane in found.planes if plane.name == "/host:CPU"]
    lines = {}
    for line in host.lines:
        lines[line.id] = [
            (
                host.event_metadata[event.metadata_id].name,
                line.timestamp_ns + event.offset_ps // 1000,
                event.duration_ps // 1000,
            )
            for event in line.events
        ]
        for event in line.events:
            [stat] = event.stats
            kept = host.stat_metadata[stat.ref_value].name
            assert kept == host.event_metadata[event.metadata_id].name
    return found, lines


def start_of(plane: XPlane) -> int:
    [stat] = [
        stat
        for stat in plane.stats
        if plane.stat_metadata[stat.metadata_id].name == "profile_start_time"
    ]
    return stat.uint64_value


def test_a_marked_line_takes_our_threads_spans_and_the_mark_goes() -> None:
    own = space(SECOND + 30, {4100: [("step", 0, 100)]})
    found, lines = read(join(own, SECOND + 30, [marked(SECOND, 4100, -7).SerializeToString()]))
    assert lines == {-7: [("step", 30, 100), ("op", 50, 10)], 99: [("elsewhere", 0, 5)]}
    assert list(found.hostnames) == ["here"]
    assert all(
        kept.name != THREAD_MARK for plane in found.planes for kept in plane.event_metadata.values()
    )


def test_times_count_from_whoever_began_first() -> None:
    own = space(SECOND, {1: [("own", 5, 10)]})
    later = space(SECOND + 400, {2: [("later", 0, 10)]}, timestamp_ns=7)
    found, lines = read(join(own, SECOND, [later.SerializeToString()]))
    assert lines == {2: [("later", 407, 10)], 1: [("own", 5, 10)]}
    [task] = [plane for plane in found.planes if plane.name == "Task Environment"]
    assert start_of(task) == SECOND


def test_two_frameworks_share_a_line_of_one_id() -> None:
    own = space(SECOND, {})
    one = space(SECOND, {-7: [("outer", 0, 100), ("b", 10, 5)]}, timestamp_ns=50)
    two = space(SECOND, {-7: [("a", 55, 5)], 8: [("alone", 0, 1)]})
    _, lines = read(join(own, SECOND, [one.SerializeToString(), two.SerializeToString()]))
    assert lines[-7] == [("outer", 50, 100), ("a", 55, 5), ("b", 60, 5)]
    assert lines[8] == [("alone", 0, 1)]


def test_a_thread_that_a_framework_knows_by_number_has_our_name() -> None:
    own = space(SECOND, {1: [("own", 0, 1)], 2: [("own", 0, 1)]})
    theirs = space(SECOND, {1: [("a", 5, 5), ("b", 10, 5)], 2: [("c", 5, 5)]})
    for built, names in ((own, ["MainThread", "loader"]), (theirs, ["thread 1 (python)", "tf"])):
        for line, name in zip(built.planes[0].lines, names, strict=True):
            line.name = name
    found, _ = read(join(own, SECOND, [theirs.SerializeToString()]))
    [host] = [plane for plane in found.planes if plane.name == "/host:CPU"]
    assert {line.id: line.name for line in host.lines} == {1: "MainThread", 2: "tf"}


def test_other_planes_pass_as_they_are() -> None:
    own = space(SECOND, {1: [("own", 5, 10)]})
    device = space(SECOND, {7: [("kernel", 1, 2)]}, plane="/device:GPU:0")
    device.warnings.append("a loss")
    joined = XSpace.FromString(join(own, SECOND, [device.SerializeToString()]))
    [plane] = [plane for plane in joined.planes if plane.name == "/device:GPU:0"]
    assert plane.SerializeToString(deterministic=True) == XPlane.FromString(
        device.planes[0].SerializeToString()
    ).SerializeToString(deterministic=True)
    assert list(joined.warnings) == ["a loss"]
