"""The graph viewer on hosts as they are stored."""

import base64
import json

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.hlo.custom_calls import custom_call_text
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope, ToolResult
from podscope_protos.v1 import hlo_pb2


@pytest.fixture(scope="module")
def partial() -> HostPartial:
    return analyze_host(build_xspace(Pod(device="tpu-v5e", hosts=2, steps=3, seed=1), 0), "h0")


def view(partial: HostPartial, **parameters: str) -> ToolResult:
    return run_tool("graph_viewer", [partial], Scope(["h0"]), parameters)


def reference(partial: HostPartial, **parameters: str) -> object:
    return run_tool_xprof("graph_viewer", [partial], parameters)


def test_it_begins_at_the_instruction_with_the_most_self_time(partial: HostPartial) -> None:
    found = view(partial)
    stats = run_tool("hlo_stats", [partial], Scope(["h0"])).tables["instructions"]
    at = {column.id: place for place, column in enumerate(stats.columns)}
    rows = [row for row in stats.rows if row[at["program_id"]] == found.result["program_id"]]
    dearest = max(rows, key=lambda row: float(row[at["total_self_time_us"]] or 0))
    assert found.result["node"]["name"] == dearest[at["hlo_op_name"]]
    assert found.result["node"]["self_time_ps"] == pytest.approx(
        float(dearest[at["total_self_time_us"]] or 0) * 1e6
    )


def test_nodes_tell_what_they_took_and_adjacent_ones_too(partial: HostPartial) -> None:
    found = view(partial, graph_width="2")
    names = {row[0] for row in found.tables["nodes"].rows}
    groups = {row[0] for row in found.tables["fusions"].rows}
    edges = found.tables["edges"].rows
    assert edges
    assert {name for row in edges for name in row[:2]} <= names | groups
    node = found.result["node"]
    adjacent = found.tables["adjacent"].rows
    assert adjacent
    operands = {row[1] for row in adjacent if row[0] == "operand"}
    assert all(f"{name}" in node["short_text"] for name in operands)
    assert any(row[4] is not None for row in [*adjacent, *found.tables["fusions"].rows]) or (
        node["self_time_ps"] > 0
    )


def test_text_comes_in_parts(partial: HostPartial) -> None:
    whole = str(reference(partial, type="long_txt"))
    lines: list[str] = []
    cursor: str | None = "0"
    while cursor is not None:
        part = view(partial, type="long_txt", limit="7", cursor=cursor).result["text"]
        assert part["begin"] == len(lines)
        lines += part["lines"]
        cursor = part["cursor"]
    assert "\n".join(lines) == whole
    node = view(partial).result["node"]["name"]
    text = view(partial, type="long_txt", node_name=node).result["text"]
    assert text["lines"][text["node_line"]].split(" = ")[0].split()[-1] == f"%{node}"


def test_a_part_of_a_graph_says_where_the_rest_is(partial: HostPartial) -> None:
    whole = view(partial, graph_width="9", merge_fusion="1").result["graph"]
    found = view(partial, graph_width="9", merge_fusion="1", limit="2")
    assert found.result["graph"]["left_out"] == whole["instructions"] - 2
    assert found.result["graph"]["cursor"] == "2"
    assert [reason.code for reason in found.reasons] == ["nodes_left_out"]


@pytest.mark.case("2.G5")
def test_the_references_formats(partial: HostPartial) -> None:
    node = view(partial).result["node"]["name"]
    dot = str(reference(partial, type="graph", node_name=node, format="dot"))
    assert dot.startswith("digraph G {")
    assert view(partial, node_name=node, format="dot").result["dot"] == dot
    page = str(reference(partial, type="graph", node_name=node, format="html"))
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    names = reference(partial, type="adj_nodes", node_name=f"%{node}")
    assert isinstance(names, dict)
    ours = view(partial, type="adj_nodes", node_name=node).tables["adjacent"].rows
    assert names["operand_names"] == [row[1] for row in ours if row[0] == "operand"]
    assert names["consumer_names"] == [row[1] for row in ours if row[0] == "user"]


@pytest.mark.case("2.G6")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "must be given a type"),
        ({"type": "abcd"}, "unknown type 'abcd'"),
        ({"type": "graph"}, "node_name should not be empty"),
        ({"type": "graph", "node_name": "nobody"}, "no instruction 'nobody'"),
        ({"type": "graph", "node_name": "x", "module_name": "y"}, "no program 'y'"),
        ({"type": "json"}, "type json is not given; pb and pbtxt"),
        ({"type": "custom_call"}, "node_name should not be empty"),
    ],
)
def test_what_the_reference_refuses_is_refused(
    partial: HostPartial, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        reference(partial, **parameters)


def test_a_program_as_bytes_is_the_program_as_text(partial: HostPartial) -> None:
    packed = reference(partial, type="pb")
    assert isinstance(packed, bytes)
    assert str(hlo_pb2.HloProto.FromString(packed)) == reference(partial, type="pbtxt")


def _custom_call(config: bytes) -> hlo_pb2.HloInstructionProto:
    return hlo_pb2.HloInstructionProto(
        name="kernel.1",
        opcode="custom-call",
        custom_call_target="tpu_custom_call",
        backend_config=config,
    )


def _kernel(body: bytes) -> bytes:
    packed = base64.b64encode(body).decode()
    return json.dumps({"custom_call_config": {"body": packed, "needs_layout": True}}).encode()


def test_the_kernel_of_a_custom_call_is_shown_as_far_as_it_is_text() -> None:
    text = custom_call_text(_custom_call(_kernel(b"module { func.func @add() }")))
    assert text.endswith("\n\nmodule { func.func @add() }\n")
    assert '"needs_layout": true' in text
    assert "body" not in text
    bytecode = custom_call_text(_custom_call(_kernel(b"ML\xefR\x01\0vector.load\0\xff\0tpu\0")))
    assert "MLIR bytecode of 24 bytes" in bytecode
    assert bytecode.splitlines()[-2:] == ["vector.load", "tpu"]
    assert custom_call_text(_custom_call(b"opaque")) == "opaque"


def test_only_a_custom_call_that_carries_something_has_a_kernel(partial: HostPartial) -> None:
    node = view(partial).result["node"]["name"]
    with pytest.raises(ParameterError, match="type custom_call is for custom calls"):
        reference(partial, type="custom_call", node_name=node)
    with pytest.raises(ParameterError, match="carries no kernel: it calls tpu_custom_call"):
        custom_call_text(_custom_call(b""))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"graph_width": "-1"}, "graph_width must be a whole number"),
        ({"graph_width": "101"}, "graph_width is at most 100"),
        ({"show_metadata": "yes"}, "show_metadata must be 0 or 1"),
        ({"format": "png"}, "unknown format 'png'; beside the graph there is dot"),
        ({"limit": "1001"}, "limit is at most 1000"),
        ({"program_id": "1"}, "no program with id 1"),
        ({"nod_name": "x"}, "did you mean 'node_name'"),
    ],
)
def test_a_bad_parameter_is_named(
    partial: HostPartial, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        view(partial, **parameters)


@pytest.mark.case("2.G1", "2.G2")
def test_the_width_is_three_and_fusions_are_open_by_default(partial: HostPartial) -> None:
    default = view(partial).result
    assert (default["graph_width"], default["merge_fusion"], default["dot"]) == (3, False, None)
    given = view(partial, graph_width="10", merge_fusion="1", show_metadata="1").result
    assert (given["graph_width"], given["merge_fusion"]) == (10, True)


@pytest.mark.case("2.G3", "2.G4")
def test_metadata_is_in_texts_when_it_is_wanted(partial: HostPartial) -> None:
    for kind in ("short_txt", "long_txt"):
        assert "metadata={" not in str(reference(partial, type=kind))
        assert "metadata={" in str(reference(partial, type=kind, show_metadata="1"))
    assert "%" not in str(reference(partial, type="short_txt"))


def test_a_capture_without_programs_says_so(partial: HostPartial) -> None:
    empty = view(partial.without_parts())
    assert (empty.status, [reason.code for reason in empty.reasons]) == ("empty", ["no_hlo"])


def test_one_run_is_estimated_and_unknown_calls_are_not(partial: HostPartial) -> None:
    node = view(partial).result["node"]
    assert node["estimated_flops"] > 0
    assert node["estimated_bytes"] > 0
    programs = partial.programs
    assert programs is not None
    calls = [
        (str(program.id), one.name)
        for program in programs
        for one in program.by_id.values()
        if one.opcode == "custom-call"
    ]
    for program_id, name in calls[:1]:
        unknown = view(partial, program_id=program_id, node_name=name).result["node"]
        assert unknown["estimated_flops"] is None
