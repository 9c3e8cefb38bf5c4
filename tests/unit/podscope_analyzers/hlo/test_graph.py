"""Neighbourhoods of instructions, their drawing, and what is said of what is not shown."""

from itertools import combinations, pairwise

import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.errors import ParameterError
from podscope_analyzers.hlo import Program
from podscope_analyzers.hlo.choosing import chosen_program, find_node, required_node
from podscope_analyzers.hlo.graph.dot import dot_text
from podscope_analyzers.hlo.graph.layout import GAP_X, layered
from podscope_analyzers.hlo.graph.neighbourhood import computation_of, neighbourhood
from podscope_analyzers.hlo.graph.scene import Scene, scene
from podscope_analyzers.hlo.programs import Programs
from podscope_protos.v1 import hlo_pb2

F32 = "shape { element_type: F32 dimensions: 8 layout { minor_to_major: 0 } }"


def program(*instructions: str, more: str = "") -> Program:
    inner = " ".join(f"instructions {{ {F32} {one} }}" for one in instructions)
    module = text_format.Parse(
        'name: "m" entry_computation_id: 1 computations { name: "main" id: 1 root_id: 9 '
        f"{inner} }} {more}",
        hlo_pb2.HloModuleProto(),
    )
    return Program(7, hlo_pb2.HloProto(hlo_module=module))


def one(number: int, *operands: int, opcode: str = "add") -> str:
    return f'name: "n{number}" opcode: "{opcode}" id: {number} operand_ids: {list(operands)}'


CHAIN = program(one(1, opcode="parameter"), *(one(i, i - 1) for i in range(2, 10)))


def names(of: Program, centre: str, width: int, **page: int) -> list[str]:
    node = of.instruction(centre)
    assert node is not None
    home = computation_of(of, node.proto)
    found = neighbourhood(home, node.proto, width, **{"limit": 100, **page})
    return [neighbour.proto.name for neighbour in found.nodes]


def test_a_neighbourhood_goes_over_operands_and_users_nearest_first() -> None:
    assert names(CHAIN, "n5", 0) == ["n5"]
    assert names(CHAIN, "n5", 2) == ["n5", "n4", "n6", "n3", "n7"]


def test_what_does_not_fit_is_counted_and_comes_with_the_cursor() -> None:
    star = program(one(1, opcode="parameter"), *(one(i, 1) for i in range(2, 10)))
    node = star.instruction("n1")
    assert node is not None
    home = computation_of(star, node.proto)
    seen: set[str] = set()
    begin: int | None = 0
    while begin is not None:
        part = neighbourhood(home, node.proto, 1, limit=4, begin=begin)
        assert part.total == 9
        shown = {neighbour.proto.name for neighbour in part.nodes}
        assert "n1" in shown
        (centre,) = (n for n in part.nodes if n.proto.name == "n1")
        assert centre.users_left_out == 8 - (len(shown) - 1)
        seen |= shown
        begin = part.cursor
    assert seen == {f"n{i}" for i in range(1, 10)}


FUSED = program(
    one(1, opcode="parameter"),
    'name: "f" opcode: "fusion" fusion_kind: "kLoop" id: 2 operand_ids: [1] '
    "called_computation_ids: 2",
    one(9, 2, opcode="negate"),
    more=f"""computations {{ name: "fused" id: 2 root_id: 12
        instructions {{ {F32} name: "p" opcode: "parameter" id: 11 }}
        instructions {{ {F32} name: "e" opcode: "exponential" id: 12 operand_ids: 11 }} }}""",
)


def drawn(of: Program, centre: str, *, opens: bool, limit: int = 100) -> Scene:
    node = of.instruction(centre)
    assert node is not None
    around = neighbourhood(computation_of(of, node.proto), node.proto, 3, limit=limit)
    return scene(of, around, opens_fusions=opens, limit=limit)


def test_a_fusion_is_opened_in_its_place() -> None:
    closed = drawn(FUSED, "f", opens=False)
    assert [n.neighbour.proto.name for n in closed.nodes] == ["f", "n1", "n9"]
    opened = drawn(FUSED, "f", opens=True)
    inside = [n for n in opened.nodes if n.group == "f"]
    assert [n.neighbour.proto.name for n in inside] == ["p", "e"]
    (group,) = opened.groups
    assert (group.fusion.proto.name, group.computation, group.instructions) == ("f", "fused", 2)
    for node in inside:
        assert group.box.x < node.box.x
        assert node.box.x + node.box.width < group.box.x + group.box.width
        assert group.box.y < node.box.y
        assert node.box.y + node.box.height < group.box.y + group.box.height
    assert {(e.source, e.target) for e in opened.edges} == {("n1", "f"), ("f", "n9"), ("p", "e")}


def test_a_fusion_that_would_be_too_much_stays_closed() -> None:
    assert drawn(FUSED, "f", opens=True, limit=4).groups == []


graphs = st.integers(1, 40).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.sets(
            st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] < e[1]),
            max_size=80,
        ),
    )
)


@given(graphs)
def test_operands_are_above_their_users_and_boxes_apart(
    graph: tuple[int, set[tuple[int, int]]],
) -> None:
    count, edges = graph
    listed = sorted(edges)
    sizes = {i: (80.0 + 10 * (i % 7), 30.0 + 5 * (i % 3)) for i in range(count)}
    layout = layered(sizes, listed)
    for (source, target), points in zip(listed, layout.paths, strict=True):
        assert layout.rank[source] < layout.rank[target]
        assert layout.y[source] + sizes[source][1] < layout.y[target]
        ys = [y for _, y in points]
        assert ys == sorted(ys)
        assert (points[0][1], points[-1][1]) == (ys[0], layout.y[target])
    for a, b in combinations(range(count), 2):
        if layout.rank[a] == layout.rank[b]:
            left, right = sorted((a, b), key=lambda i: layout.x[i])
            assert layout.x[left] + sizes[left][0] + GAP_X <= layout.x[right] + 1e-6
    assert all(0 <= layout.x[i] <= layout.width - sizes[i][0] + 1e-6 for i in range(count))


def test_the_same_graph_gets_the_same_places() -> None:
    sizes = dict.fromkeys(range(30), (100.0, 40.0))
    edges = [(i // 2, i) for i in range(1, 30)]
    assert layered(sizes, edges) == layered(sizes, edges)


def test_a_chain_is_a_straight_line() -> None:
    layout = layered(dict.fromkeys(range(5), (100.0, 40.0)), list(pairwise(range(5))))
    assert len(set(layout.x.values())) == 1
    assert [layout.rank[i] for i in range(5)] == [0, 1, 2, 3, 4]


def test_a_loop_of_edges_is_drawn_too() -> None:
    layout = layered({0: (100.0, 40.0), 1: (100.0, 40.0)}, [(0, 1), (1, 0)])
    assert len(layout.paths) == 2


def test_names_are_found_as_people_write_them() -> None:
    for name in ("%n5", "N5", " n5 "):
        node = find_node(CHAIN, name)
        assert node is not None
        assert node.name == "n5"
    assert isinstance(find_node(CHAIN, "MAIN"), hlo_pb2.HloComputationProto)


def test_an_unknown_name_is_refused_with_what_is_near() -> None:
    with pytest.raises(ParameterError, match=r"no instruction 'n55' in m\(7\); the nearest: n5"):
        required_node(CHAIN, "n55")
    programs = Programs({7: CHAIN.proto.SerializeToString()})
    with pytest.raises(ParameterError, match=r"no program 'mm'; there are m\(7\)"):
        chosen_program(programs, {"module_name": "mm"})
    with pytest.raises(ParameterError, match="program_id must be a whole number"):
        chosen_program(programs, {"program_id": "seven"})


def test_a_name_in_two_programs_asks_which() -> None:
    other = Program(8, hlo_pb2.HloProto.FromString(CHAIN.proto.SerializeToString()))
    other.proto.hlo_module.name = "other"
    programs = Programs({i: p.proto.SerializeToString() for i, p in ((7, CHAIN), (8, other))})
    with pytest.raises(ParameterError, match=r"in several programs.*m\(7\), other\(8\)"):
        chosen_program(programs, {}, "n5")
    found = chosen_program(programs, {"program_id": "8"}, "n5")
    assert found is not None
    assert found.title == "other(8)"


def test_dot_draws_fusions_open_or_closed() -> None:
    node = required_node(FUSED, "n9")
    opened = dot_text(FUSED, node, 2)
    assert "Fused expression for <b>f</b><br/>loop fusion<br/>kind=kLoop" in opened
    assert "<b>e</b><br/>exponential<br/>f32[8]" in opened
    closed = dot_text(FUSED, node, 2, opens_fusions=False)
    assert "<b>f</b><br/>fusion:kLoop<br/>kind=kLoop<br/>f32[8]" in closed
    assert "exponential" not in closed


def test_computations_that_call_each_other_end() -> None:
    calling = (
        'computations { name: "c" id: 3 root_id: 20 instructions { name: "k" opcode: "call" id: 20 '
        "called_computation_ids: 3 } }"
    )
    loop = program(
        one(1, opcode="parameter"),
        'name: "n9" opcode: "call" id: 9 operand_ids: [1] called_computation_ids: 3',
        more=calling,
    )
    assert dot_text(loop, required_node(loop, "n9"), 5).count("subgraph") == 1


def test_instructions_that_many_paths_lead_to_are_gone_on_from_once() -> None:
    layers = [range(10 * layer, 10 * layer + 4) for layer in range(1, 25)]
    woven = program(
        *(one(i, opcode="parameter") for i in layers[0]),
        *(one(i, *before) for before, layer in pairwise(layers) for i in layer),
    )
    drawn = dot_text(woven, required_node(woven, "n10"), 30)
    # Of the last layer's four, each has a box, and the line to each of them says its name.
    assert all(f"<b>n{i}</b>" in drawn for layer in layers[1:] for i in layer)


def test_places_that_nothing_stands_at_are_passed_over() -> None:
    # A parameter before the first, a part before a tuple's first, and a part of nothing.
    broken = program(
        one(1, opcode="constant"),
        one(2, opcode="get-tuple-element") + " tuple_index: -7",
        one(3, 1, opcode="call") + " called_computation_ids: 2",
        one(9, 2, 3),
        more=f'computations {{ name: "inner" id: 2 root_id: 12 instructions {{ {F32} '
        f"{one(11, opcode='parameter')} parameter_number: -2 }} instructions {{ {F32} "
        f"{one(12, 11)} }} }}",
    )
    drawn = dot_text(broken, required_node(broken, "n9"), 3)
    assert "tuple-element -7 of" in drawn
    assert "<b>Parameter -2</b>" in drawn


def test_a_box_tells_what_was_noted_on_a_sharding() -> None:
    sharded = program(
        one(1, opcode="parameter"),
        f"{one(9, 1)} sharding {{ type: MANUAL metadata {{ op_name: 'f' }} }}",
    )
    drawn = dot_text(sharded, required_node(sharded, "n9"), 1)
    assert "sharding={manual metadata={op_name=&quot;f&quot;}}" in drawn
