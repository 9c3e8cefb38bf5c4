"""What every instruction costs on a GPU equals what the reference's own analysis says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import hlo_pb2, xplane_pb2

PROGRAM: Final = 7
DURATION_PS: Final = 1_000_000
WRITTEN: Final = sorted((Path(__file__).parent / "hlo").glob("*.hlo"))
Reference = Callable[[bytes], Any]


@pytest.fixture(scope="session")
def xprof_hlo_stats(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """XProf's hlo_stats of an XSpace."""
    converter = pytest.importorskip("xprof.convert.raw_to_tool_data")
    folders = tmp_path_factory.mktemp("xprof_hlo_stats")

    def answer(space: bytes) -> Any:
        # It keeps what it found beside the file: every space has a folder of its own.
        folder = folders / str(len(list(folders.iterdir())))
        folder.mkdir()
        (folder / "host.xplane.pb").write_bytes(space)
        found, _ = converter.xspace_to_tool_data(
            [str(folder / "host.xplane.pb")], "hlo_stats", {"use_saved_result": False}
        )
        return json.loads(found)

    return answer


def ran_on_a_gpu(module: hlo_pb2.HloModuleProto) -> bytes:
    """A capture in which every instruction of a program ran for a microsecond on a GPU."""
    space = xplane_pb2.XSpace(hostnames=["host"])
    programs = space.planes.add(name="/host:metadata")
    programs.stat_metadata[1].id = 1
    programs.stat_metadata[1].name = "Hlo Proto"
    metadata = programs.event_metadata[PROGRAM]
    metadata.id, metadata.name = PROGRAM, f"{module.name}({PROGRAM})"
    serialised = hlo_pb2.HloProto(hlo_module=module).SerializeToString()
    metadata.stats.add(metadata_id=1, bytes_value=serialised)
    device = space.planes.add(name="/device:GPU:0", id=1)
    for number, name in enumerate(("hlo_op", "hlo_module", "program_id"), start=1):
        device.stat_metadata[number].id = number
        device.stat_metadata[number].name = name
    line = device.lines.add(id=1, name="Stream #1", timestamp_ns=1000)
    names = [one.name for c in module.computations for one in c.instructions]
    for number, name in enumerate(names, start=1):
        device.event_metadata[number].id = number
        device.event_metadata[number].name = f"kernel {number}"
        event = line.events.add(
            metadata_id=number, offset_ps=2 * number * DURATION_PS, duration_ps=DURATION_PS
        )
        event.stats.add(metadata_id=1, str_value=name)
        event.stats.add(metadata_id=2, str_value=module.name)
        event.stats.add(metadata_id=3, uint64_value=PROGRAM)
    return space.SerializeToString()


def rows(table: Any) -> dict[str, dict[str, Any]]:
    """Rows by instruction, without their rank: all of them took the same time."""
    ids = [column["id"] for column in table["cols"]]
    found = (dict(zip(ids, (c["v"] for c in row["c"]), strict=True)) for row in table["rows"])
    return {row["hlo_op_name"]: {k: v for k, v in row.items() if k != "rank"} for row in found}


def assert_equal(module: hlo_pb2.HloModuleProto, reference: Reference, label: str) -> int:
    space = ran_on_a_gpu(module)
    expected = rows(reference(space))
    got = rows(run_tool_xprof("hlo_stats", [analyze_host(space, "host")]))
    assert set(got) == set(expected)
    for name, row in expected.items():
        for column, value in row.items():
            if isinstance(value, float):
                assert got[name][column] == pytest.approx(value, rel=1e-9), (label, name, column)
            else:
                assert got[name][column] == value, (label, name, column)
    return len(got)


def test_programs_of_jax_cost_what_the_reference_says(
    jax_programs: Path, xprof_hlo_stats: Reference
) -> None:
    compared = 0
    for file in sorted(jax_programs.glob("*.pb")):
        module = hlo_pb2.HloModuleProto.FromString(file.read_bytes())
        compared += assert_equal(module, xprof_hlo_stats, file.name)
    assert compared > 3000


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.stem)
def test_written_modules_cost_what_the_reference_says(
    file: Path, xprof_hlo_stats: Reference
) -> None:
    parse = pytest.importorskip("jaxlib._hlo").hlo_module_from_text
    serialised = parse(file.read_text()).as_serialized_hlo_module_proto()
    assert_equal(hlo_pb2.HloModuleProto.FromString(serialised), xprof_hlo_stats, file.stem)
