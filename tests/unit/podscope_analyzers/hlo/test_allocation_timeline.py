"""Rectangles of the allocations' picture, worked by hand."""

import html
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_analyzers.hlo.allocation_timeline import rectangles, timeline_page
from podscope_analyzers.hlo.memory_usage import MemoryUsage
from podscope_analyzers.hlo.programs import Program
from podscope_protos.v1 import hlo_pb2

KIB = 1 << 10
MIB = 1 << 20
LONG = "very_long_instruction_name_that_never_fits_into_a_box"


def usage(
    sizes: list[tuple[str, int, int]], events: list[tuple[int, int]], total: int = 0
) -> MemoryUsage:
    """A program of one allocation.

    Args:
        sizes: Name, offset and size of buffers 1, 2, ….
        events: Kind (0 allocates, 1 frees) and buffer.
        total: Size of the allocation; without it, that of all buffers.
    """
    proto = hlo_pb2.HloProto(hlo_module=hlo_pb2.HloModuleProto(name="jit_f"))
    computation = proto.hlo_module.computations.add(name="main", id=1)
    assignment = proto.buffer_assignment
    one = assignment.buffer_allocations.add(size=total or sum(size for _, _, size in sizes))
    for number, (name, offset, size) in enumerate(sizes, start=1):
        shape = hlo_pb2.ShapeProto(element_type=hlo_pb2.U64)
        computation.instructions.add(name=name, id=number, opcode="fusion", shape=shape)
        buffer = assignment.logical_buffers.add(id=number, size=size)
        buffer.defined_at.instruction_id = number
        one.assigned.add(logical_buffer_id=number, offset=offset, size=size)
    trace = assignment.heap_simulator_traces.add()
    for kind, number in events:
        trace.events.add(
            kind=hlo_pb2.HeapSimulatorTrace.Event.Kind.ValueType(kind), buffer_id=number
        )
    return MemoryUsage(Program(7, proto), 0, 0)


@pytest.mark.case("2.M10")
def test_a_buffer_is_as_wide_as_it_lives_and_as_high_as_it_is_large() -> None:
    pairs = [(0, 1), (0, 2), (1, 1), (1, 2)]
    container, one, _ = rectangles(usage([(LONG, 0, MIB // 2), ("b", MIB // 2, MIB // 2)], pairs))
    assert (container.width, container.height, container.label) == (4096, 4096, "")
    assert (one.width, one.height) == (2048, 2048)
    assert one.label == LONG


@pytest.mark.case("2.M11")
def test_a_name_that_does_not_fit_is_cut() -> None:
    events = [(0, 1), (1, 1)] * 50
    _, one = rectangles(usage([(LONG, 0, MIB)], events))
    assert one.width == pytest.approx(40.96)
    assert one.label == "v..."


@pytest.mark.parametrize(
    ("height", "font"),
    [(4075.52, 14.0), (16.384, 9.8304), (4.096, 8.0)],
)
@pytest.mark.case("2.M12")
def test_small_boxes_have_small_letters(height: float, font: float) -> None:
    size = round(height / 4096 * 1_000_000)
    found = rectangles(usage([("x", 0, size)], [(0, 1), (1, 1)], total=1_000_000))[1]
    assert found.height == pytest.approx(height)
    assert found.font == pytest.approx(font)


def test_what_is_smaller_than_a_point_is_not_drawn() -> None:
    large = usage([("large", 0, MIB - 100), ("tiny", MIB - 100, 100)], [(0, 1), (0, 2), (1, 1)])
    assert [one.label for one in rectangles(large)] == ["", "large"]
    assert len(large.blocks) == 3


@given(st.lists(st.tuples(st.integers(1, 1 << 36), st.integers(1, 6)), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
@pytest.mark.case("2.M13")
def test_blocks_that_live_together_never_overlap(wanted: list[tuple[int, int]]) -> None:
    """First fit packs them into an allocation larger than 32 bits count."""
    live: list[tuple[int, int, int, int]] = []
    sizes: list[tuple[str, int, int]] = []
    events: list[tuple[int, int]] = []
    for number, (size, lives) in enumerate(wanted, start=1):
        for dying in [one for one in live if one[2] <= number]:
            live.remove(dying)
            events.append((1, dying[3]))
        offset = 0
        for begin, length, *_ in sorted(live):
            if begin - offset >= size:
                break
            offset = max(offset, begin + length)
        live.append((offset, size, number + lives, number))
        sizes.append((f"op.{number}", offset, size))
        events.append((0, number))
    total = max(offset + size for _, offset, size in sizes) + 54_344_548_352
    blocks = [block for block in usage(sizes, events, total).blocks if block.buffer]
    assert len(blocks) == len(sizes)
    for at, one in enumerate(blocks):
        assert 0 <= one.offset_bytes <= one.offset_bytes + one.size_bytes <= total
        for other in blocks[at + 1 :]:
            together = one.begin < other.end and other.begin < one.end
            apart = (
                one.offset_bytes + one.size_bytes <= other.offset_bytes
                or other.offset_bytes + other.size_bytes <= one.offset_bytes
            )
            assert apart or not together


def test_the_page_draws_every_rectangle_and_loads_nothing() -> None:
    page = timeline_page(
        usage([("a</script>", 0, MIB), ('"b"', MIB, MIB)], [(0, 1), (0, 2), (1, 1)])
    )
    assert page.count("<rect ") == 3
    assert "src=" not in page
    assert "http" not in page
    assert page.count("</script>") == 1
    graph = page[page.index("graph G {") : page.index("</script>")]
    assert html.escape("hlo_op:a</script>") in page
    assert re.findall(r'pos="([^"]*)"', graph) == [
        "2048.00,2048.00!",
        "1365.33,1024.00!",
        "2048.00,3072.00!",
    ]


def test_without_a_trace_the_page_says_so() -> None:
    assert "No memory allocation timeline" in timeline_page(usage([("a", 0, MIB)], []))
