import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_agent.merge import ProcessXSpace, merge_xspaces
from podscope_agent.programs import FreeNumbers
from podscope_protos.v1.xplane_pb2 import XEventMetadata, XPlane, XSpace, XStat

HLO_STAT, NUMBER_STAT = 3, 9


def metadata_plane(programs: dict[int, str], *, own_stat: bool = True) -> XPlane:
    """As JAX writes it: the keys of the entries are not the numbers of the programs."""
    built = XPlane(name="/host:metadata")
    built.stat_metadata[HLO_STAT].name = "Hlo Proto"
    built.stat_metadata[NUMBER_STAT].name = "program_id"
    for index, (number, hlo) in enumerate(programs.items()):
        key = index + 1 if own_stat else number
        entry = built.event_metadata[key]
        entry.id, entry.name = key, f"jit_f({number})"
        entry.stats.add(metadata_id=HLO_STAT, bytes_value=hlo.encode())
        if own_stat:
            entry.stats.add(metadata_id=NUMBER_STAT, uint64_value=number)
    return built


def host_plane(*events: list[XStat], stat_id: int = 5) -> XPlane:
    built = XPlane(name="/host:CPU")
    built.stat_metadata[stat_id].name = "program_id"
    built.stat_metadata[stat_id + 1].name = "note"
    line = built.lines.add(id=1, timestamp_ns=1000)
    for index, stats in enumerate(events):
        line.events.add(metadata_id=1, offset_ps=10 * index, duration_ps=4, stats=stats)
    line.display_name = "a field behind the events"
    return built


def merge(*spaces: XSpace) -> XSpace:
    processes = [
        ProcessXSpace(100 + n, s.SerializeToString(), f"localhost:{9000 + n}")
        for n, s in enumerate(spaces)
    ]
    return XSpace.FromString(merge_xspaces(processes).joined())


def hlo_by_number(space: XSpace) -> dict[int, str]:
    """What readers know a host's programs by."""
    found: dict[int, str] = {}
    for plane in space.planes:
        if plane.name != "/host:metadata":
            continue
        stats = {key: entry.name for key, entry in plane.stat_metadata.items()}
        for key, entry in plane.event_metadata.items():
            told = {stats[s.metadata_id]: s for s in entry.stats}
            number = told["program_id"].uint64_value if "program_id" in told else key
            assert entry.name == f"jit_f({number})"
            assert entry.id == key
            assert number not in found
            found[number] = told["Hlo Proto"].bytes_value.decode()
    return found


def numbers(plane: XPlane) -> list[int]:
    ids = {key for key, entry in plane.stat_metadata.items() if entry.name == "program_id"}
    return [
        s.int64_value + s.uint64_value
        for line in plane.lines
        for e in line.events
        for s in e.stats
        if s.metadata_id in ids
    ]


@pytest.mark.parametrize("own_stat", [True, False])
@pytest.mark.parametrize("member", ["int64_value", "uint64_value"])
@pytest.mark.parametrize("number", [0, 1, 127, 128, 40_000, 2**62])
def test_two_programs_of_one_number_are_told_apart(
    number: int, member: str, *, own_stat: bool
) -> None:
    def process(hlo: str) -> XSpace:
        stat = XStat(metadata_id=5)
        setattr(stat, member, number)
        metadata = metadata_plane({number: hlo}, own_stat=own_stat)
        return XSpace(planes=[host_plane([stat]), metadata])

    merged = merge(process("one"), process("two"), process("one"), process("three"))
    programs = hlo_by_number(merged)
    named = [programs[n] for plane in merged.planes[:4] for n in numbers(plane)]
    assert named == ["one", "two", "one", "three"]
    assert not merged.warnings


def test_what_refers_to_an_untold_program_never_names_anothers() -> None:
    one = XSpace(planes=[host_plane([XStat(metadata_id=5, int64_value=7)])])
    two = XSpace(planes=[host_plane([XStat(metadata_id=5, int64_value=7)])])
    one.planes.append(metadata_plane({7: "one"}))
    merged = merge(one, two)
    assert hlo_by_number(merged) == {7: "one"}
    assert numbers(merged.planes[0]) == [7]
    assert numbers(merged.planes[1]) != [7]


def test_names_and_stats_of_event_metadata_follow() -> None:
    def process(hlo: str) -> XSpace:
        device = XPlane(name="/device:TPU:0")
        device.stat_metadata[2].name = "program_id"
        device.stat_metadata[4].name = "flops"
        flops = XStat(metadata_id=4, int64_value=7)
        number = XStat(metadata_id=2, uint64_value=7)
        device.event_metadata[1].CopyFrom(XEventMetadata(id=1, name="jit_f(7)"))
        device.event_metadata[2].CopyFrom(
            XEventMetadata(id=2, name="%fusion.7", display_name="fusion.7", stats=[flops, number])
        )
        device.event_metadata[3].CopyFrom(XEventMetadata(id=3, name="sum(7)", stats=[flops]))
        return XSpace(planes=[device, metadata_plane({7: hlo})])

    merged = merge(process("one"), process("two"))
    programs = hlo_by_number(merged)
    first, second = merged.planes[:2]
    assert first.event_metadata == process("one").planes[0].event_metadata
    module, op, other = (second.event_metadata[key] for key in (1, 2, 3))
    [flops, number] = op.stats
    assert programs[number.uint64_value] == "two"
    assert module.name == f"jit_f({number.uint64_value})"
    assert flops.int64_value == 7
    assert other == process("two").planes[0].event_metadata[3]


def test_tables_that_are_no_programs_are_kept_once_and_keep_out_of_the_way() -> None:
    def process(table: str) -> XSpace:
        plane = metadata_plane({1: "the same"})
        plane.event_metadata[2].id = 2
        plane.event_metadata[2].name = f"SYMBOLS:{table}"
        return XSpace(planes=[plane])

    [plane] = merge(process("a"), process("b"), process("b")).planes
    names = sorted(entry.name for entry in plane.event_metadata.values())
    assert names == ["SYMBOLS:a", "SYMBOLS:b", "jit_f(1)"]


def test_bytes_that_only_look_like_a_number_stay() -> None:
    look_alike = XStat(metadata_id=5, int64_value=7).SerializeToString()
    field = b"\x22" + bytes([len(look_alike)]) + look_alike
    texts = [XStat(metadata_id=6, bytes_value=field), XStat(metadata_id=5, int64_value=7)]

    def process(hlo: str) -> XSpace:
        return XSpace(planes=[host_plane(texts, texts), metadata_plane({7: hlo})])

    merged = merge(process("one"), process("two"))
    for event in merged.planes[1].lines[0].events:
        assert event.stats[0].bytes_value == field
        assert event.stats[1].int64_value != 7


def test_a_line_that_ends_within_an_event_passes_as_it_came() -> None:
    stat = XStat(metadata_id=5, int64_value=7)
    whole = XSpace(planes=[metadata_plane({7: "two"}), host_plane([], [stat])])
    damaged = bytearray(whole.SerializeToString())
    event = whole.planes[1].lines[0].events[1].SerializeToString()
    at = damaged.index(event)
    damaged[at - 1] += 100
    one = XSpace(planes=[metadata_plane({7: "one"})])
    processes = [
        ProcessXSpace(1, one.SerializeToString(), "localhost:1"),
        ProcessXSpace(2, bytes(damaged), "localhost:2"),
    ]
    assert bytes(event) in merge_xspaces(processes).joined()


def test_free_numbers_take_as_many_bytes_while_there_are_any() -> None:
    free = FreeNumbers([*range(120), 300])
    assert [free.like(5) for _ in range(9)] == [*range(120, 128), 128]
    assert free.like(300) == 129
    assert free.like(2**40) == 2**35


values = st.one_of(
    st.builds(lambda n: XStat(metadata_id=5, int64_value=n), st.integers(0, 140)),
    st.builds(lambda n: XStat(metadata_id=5, uint64_value=n), st.integers(0, 140)),
    st.builds(lambda d: XStat(metadata_id=6, double_value=d), st.floats(allow_nan=False)),
    st.builds(lambda b: XStat(metadata_id=6, bytes_value=b), st.binary(max_size=200)),
    st.builds(lambda n: XStat(metadata_id=6, int64_value=n), st.integers(-(2**63), 2**63 - 1)),
)
hlo = st.sampled_from(["a", "b", "c"])
processes = st.builds(
    lambda programs, events: XSpace(planes=[metadata_plane(programs), host_plane(*events)]),
    st.dictionaries(st.integers(0, 140), hlo, max_size=140),
    st.lists(st.lists(values, max_size=4), max_size=6),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(processes, min_size=2, max_size=3))
def test_every_event_names_the_program_that_it_named(given_spaces: list[XSpace]) -> None:
    merged = merge(*given_spaces)
    programs = hlo_by_number(merged)
    host_planes = [plane for plane in merged.planes if plane.name.startswith("/host:CPU")]
    # Of an untold program's number only the first process can be sure; see the test above.
    for index, (before, plane) in enumerate(zip(given_spaces, host_planes, strict=True)):
        own = hlo_by_number(before)
        for old, new in zip(numbers(before.planes[1]), numbers(plane), strict=True):
            if old in own:
                assert programs[new] == own[old]
            elif index == 0:
                assert new == old
        for old_line, line in zip(before.planes[1].lines, plane.lines, strict=True):
            for old_event, event in zip(old_line.events, line.events, strict=True):
                for old_stat, stat in zip(old_event.stats, event.stats, strict=True):
                    if stat.metadata_id == 5:
                        stat.CopyFrom(old_stat)
            assert line == old_line
