"""What the tables of XProf's format say beside their numbers, on a small TPU capture."""

from typing import Any, cast

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import xplane_pb2

CORE = "/device:TPU:0"
SPARSE_CORE = "/device:TPU:0 SparseCore 0"


def capture(*planes: str, category: str = "") -> bytes:
    """Planes that ran one operation for 2 us, in a capture with a warning and an error."""
    space = xplane_pb2.XSpace(hostnames=["vm"], warnings=["a few lost"], errors=["counters busy"])
    for number, name in enumerate(planes, 3):
        plane = space.planes.add(name=name, id=number)
        names = ("core_details", "device_type_string", "program_id", "symbol_id", "hlo_category")
        for key, stat in enumerate(names, 1):
            plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, stat
        plane.stats.add(metadata_id=1, bytes_value=b"\x10\x01")
        plane.stats.add(metadata_id=2, str_value="TPU v6")
        metadata = plane.event_metadata[1]
        metadata.id, metadata.name = 1, "%add.1 = f32[] add()"
        metadata.stats.add(metadata_id=3, uint64_value=7)
        metadata.stats.add(metadata_id=4, uint64_value=9)
        if category:
            metadata.stats.add(metadata_id=5, str_value=category)
        kind = "Sparse Core Ops" if "SparseCore" in name else "XLA Ops"
        plane.lines.add(id=3, name=kind).events.add(metadata_id=1, duration_ps=2_000_000)
    return space.SerializeToString()


def tables(tool: str, *planes: str, category: str = "") -> list[dict[str, Any]]:
    partial = analyze_host(capture(*planes, category=category), "vm")
    return cast("list[dict[str, Any]]", run_tool_xprof(tool, [partial]))


def cells(table: dict[str, Any], column: int) -> list[Any]:
    return [row["c"][column]["v"] for row in table["rows"]]


def test_the_overview_lists_warnings_before_errors() -> None:
    diagnostics = tables("overview_page", CORE)[6]
    assert cells(diagnostics, 0) == ["WARNING", "WARNING", "ERROR"]
    assert (cells(diagnostics, 1)[0], cells(diagnostics, 1)[2]) == ("a few lost", "counters busy")


def test_the_roofline_warns_of_missing_steps_alone() -> None:
    diagnostics = tables("roofline_model", CORE)[1]
    assert cells(diagnostics, 0) == ["WARNING"]
    assert "a few lost" not in cells(diagnostics, 1)


@pytest.mark.parametrize(
    ("name", "category", "shown"),
    [
        ("add.1", "", "unknown"),
        ("add.1", "copy", "copy"),
        ("copy-done", "", "copy-done"),
        ("copy-done", "async-done", "async-done"),
    ],
)
def test_the_roofline_names_the_lack_of_a_category(name: str, category: str, shown: str) -> None:
    space = xplane_pb2.XSpace.FromString(capture(CORE, category=category))
    space.planes[0].event_metadata[1].display_name = name
    answer: Any = run_tool_xprof("roofline_model", [analyze_host(space.SerializeToString(), "vm")])
    assert dict(zip(cells(answer[0], 3), cells(answer[0], 2), strict=True))[name] == shown


@pytest.mark.parametrize(
    ("planes", "column"),
    [((CORE,), "scv0ComputeTimeMs"), ((CORE, SPARSE_CORE), "tcInfeedTimeMs")],
)
def test_a_sparse_core_is_known_by_its_plane(planes: tuple[str, ...], column: str) -> None:
    steps = tables("input_pipeline_analyzer", *planes)[1]
    assert steps["cols"][2]["id"] == column


@pytest.mark.parametrize(("category", "waits"), [("infeed", "vm:1"), ("copy", "unknown")])
def test_a_core_that_never_waits_is_not_the_one_that_waits_longest(
    category: str, waits: str
) -> None:
    space = xplane_pb2.XSpace.FromString(capture(CORE, category=category))
    (plane,) = space.planes
    plane.event_metadata[2].id, plane.event_metadata[2].name = 2, "5"
    plane.lines.add(id=1, name="Steps").events.add(metadata_id=2, duration_ps=3_000_000)
    answer: Any = run_tool_xprof(
        "input_pipeline_analyzer", [analyze_host(space.SerializeToString(), "vm")]
    )
    assert [cell["v"] for cell in answer[0]["rows"][1]["c"]] == ["Core name", waits]
