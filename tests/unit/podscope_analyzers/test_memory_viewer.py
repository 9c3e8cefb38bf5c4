"""The memory viewer on hosts as they are stored, and what it says when it cannot answer."""

import re
from collections.abc import Mapping

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.errors import ParameterError, PartialError
from podscope_analyzers.hlo.programs import Programs
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope, ToolResult
from podscope_analyzers.tools import memory_viewer
from podscope_protos.v1 import hlo_pb2


@pytest.fixture(scope="module")
def partial() -> HostPartial:
    pod = Pod(device="tpu-v5e", hosts=2, steps=3, seed=1)
    return analyze_host(build_xspace(pod, 0), "h0")


def view(partial: HostPartial, **parameters: str) -> ToolResult:
    return run_tool("memory_viewer", [partial], Scope(["h0"]), parameters)


def test_the_answer_is_the_same_from_a_stored_part(partial: HostPartial) -> None:
    read = HostPartial.from_bytes(partial.to_bytes())
    assert view(read).status == "empty"
    read = read.with_part("programs", partial.part_to_bytes("programs"))
    assert view(read).to_json() == view(partial).to_json()
    assert view(read).status == "ok"


def test_damaged_parts_are_refused(partial: HostPartial) -> None:
    packed = partial.part_to_bytes("programs")
    for damaged in (packed[:-3], b"", b"x" * 100, partial.to_bytes()):
        with pytest.raises(PartialError):
            partial.with_part("programs", damaged)
    with pytest.raises(PartialError, match="more than the limit"):
        partial.with_part("programs", packed, max_bytes=1000)
    with pytest.raises(PartialError, match="read without its programs"):
        partial.without_parts().part_to_bytes("programs")


def test_the_heap_adds_up_to_the_summary(partial: HostPartial) -> None:
    result = view(partial, small_buffer_bytes="0")
    summary = result.result["summary"]
    heap = result.tables["heap"].rows
    assert max(int(row[2] or 0) for row in heap) == summary["peak_bytes"]
    sizes = [int(row[8] or 0) for row in result.tables["peak_buffers"].rows]
    assert sum(sizes) == summary["peak_bytes"]
    ranks = [int(row[1] or 0) for row in result.tables["peak_buffers"].rows]
    assert [sizes[ranks.index(i)] for i in range(len(sizes))] == sorted(sizes, reverse=True)


def test_the_categories_of_the_peak_add_up_to_it(partial: HostPartial) -> None:
    result = view(partial)
    rows = result.tables["peak_categories"].rows
    assert {"Parameter", "Temporary"} <= {row[0] for row in rows}
    assert sum(int(row[2] or 0) for row in rows) == sum(
        int(row[8] or 0) for row in result.tables["peak_buffers"].rows
    )
    assert sum(float(row[4] or 0) for row in rows) == pytest.approx(1)


@pytest.mark.parametrize("text", ["1", "true", "True"])
def test_the_timeline_is_a_page_in_xprof_format(partial: HostPartial, text: str) -> None:
    page = run_tool_xprof("memory_viewer", [partial], {"view_memory_allocation_timeline": text})
    assert isinstance(page, str)
    assert page.count("<rect ") > 3
    blocks = view(partial).tables["blocks"].rows
    assert {f"buffer_id:{row[0]}" for row in blocks if row[0] is not None} >= set(
        re.findall(r"buffer_id:\d+", page)
    )
    plain = run_tool_xprof("memory_viewer", [partial], {"view_memory_allocation_timeline": "0"})
    assert isinstance(plain, dict)


def test_a_program_is_named_by_title_by_name_and_by_id(partial: HostPartial) -> None:
    title = view(partial).result["program"]
    name, _, number = title.removesuffix(")").partition("(")
    choices: tuple[Mapping[str, str], ...] = (
        {"module_name": title},
        {"module_name": name},
        {"program_id": number},
    )
    for parameters in choices:
        assert view(partial, **parameters).result["program"] == title


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"module_name": "nobody(1)"}, "no program 'nobody"),
        ({"program_id": "1"}, "no program with id 1"),
        ({"memory_space": "HBM"}, "memory_space must be a whole number"),
        ({"memory_space": "7"}, r"no memory space 7; there are 0 \(HBM\), 1 \(VMEM\)"),
        ({"small_buffer_bytes": "-1"}, "small_buffer_bytes must be a whole number"),
        ({"view_memory_allocation_timeline": "yes"}, "must be 0 or 1"),
        ({"modul_name": "x"}, "did you mean 'module_name'"),
    ],
)
def test_a_bad_parameter_is_named(
    partial: HostPartial, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        view(partial, **parameters)
    with pytest.raises(ParameterError, match=message):
        run_tool_xprof("memory_viewer", [partial], parameters)


def test_a_space_without_buffers_is_a_result_with_advice(partial: HostPartial) -> None:
    result = view(partial, memory_space="1")
    assert result.status == "empty"
    assert [reason.code for reason in result.reasons] == ["no_buffers"]


def test_of_several_hosts_the_first_by_name_answers(partial: HostPartial) -> None:
    other = analyze_host(build_xspace(Pod(device="cpu", hosts=1, steps=3, seed=2), 0), "a0")
    result = run_tool("memory_viewer", [partial, other], Scope(["h0", "a0"]))
    assert result.scope.hosts == ["a0"]


def test_of_many_buffers_the_largest_are_listed(
    partial: HostPartial, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = view(partial)
    monkeypatch.setattr(memory_viewer, "_MAX_ROWS", 3)
    result = view(partial)
    assert [reason.code for reason in result.reasons] == ["rows_left_out"]
    assert result.result["summary"] == everything.result["summary"]
    for table, size in (("peak_buffers", 8), ("blocks", 4)):
        kept = sorted(int(row[size] or 0) for row in result.tables[table].rows)
        assert kept == sorted(int(row[size] or 0) for row in everything.tables[table].rows)[-3:]


def test_a_capture_without_programs_has_no_reference_answer(partial: HostPartial) -> None:
    with pytest.raises(ParameterError, match="no HLO program"):
        run_tool_xprof("memory_viewer", [partial.without_parts()])


def proto(name: str, padding: int) -> bytes:
    module = hlo_pb2.HloModuleProto(name=name)
    module.computations.add(name="x" * padding)
    return hlo_pb2.HloProto(hlo_module=module).SerializeToString()


def test_small_programs_are_kept_before_large_ones() -> None:
    programs = Programs({1: proto("large", 5000), 2: proto("small", 50), 3: b"\xff"})
    state = programs.to_state(max_bytes=1000)
    read = Programs.from_state(state)
    assert (read.titles(), read.left_out) == ({2: "small(2)"}, 1)
    assert programs.largest() == 1
    assert Programs({}).largest() is None
