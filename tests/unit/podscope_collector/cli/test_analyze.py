import csv
import gzip
import io
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscope.cli import main
from podscope_agent.simulator import Pod, write_pod
from podscope_analyzers.result import Column, Table
from podscope_collector.captured_hosts import CapturedHost
from podscope_collector.captures.keeping import Keeper
from podscope_collector.csv_text import csv_text
from podscope_collector.storage import Storage
from podscope_protos.v1 import xplane_pb2

HOSTS = 3


Podscope = Callable[..., Any]


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log folder with one run of three TPU hosts, the second of them slow."""
    logs = tmp_path_factory.mktemp("simulated")
    list(write_pod(Pod(device="tpu-v5e", hosts=HOSTS, steps=6, seed=3, slow_host=1), logs))
    return logs


@pytest.fixture
def logs(simulated: Path, tmp_path: Path) -> Path:
    """The log folder, to be damaged at will."""
    return Path(shutil.copytree(simulated, tmp_path / "logs"))


def _files(logs: Path) -> list[Path]:
    return sorted(logs.rglob("*.xplane.pb"))


def test_a_log_folder_a_run_folder_and_a_file_are_understood(
    podscope: Podscope, simulated: Path
) -> None:
    files = _files(simulated)
    names = [file.name.removesuffix(".xplane.pb") for file in files]
    whole = ("--tool", "pod_viewer", "--format", "json")
    for path in (simulated, simulated / "plugins", files[0].parent):
        scope = podscope(path, *whole).json()["scope"]
        assert scope["hosts"] == names
        assert scope["session"] == files[0].parent.name
    alone = podscope(files[2], *whole).json()["scope"]
    assert (alone["hosts"], alone["session"]) == ([names[2]], None)


def test_a_log_folder_with_a_folder_per_job_is_understood(
    podscope: Podscope, logs: Path, tmp_path: Path
) -> None:
    deep = tmp_path / "deep"
    (deep / "job" / "train").mkdir(parents=True)
    (logs / "plugins").rename(deep / "job" / "train" / "plugins")
    ended = podscope(deep, "--tool", "overview_page", "--format", "json")
    assert (ended.code, len(ended.json()["scope"]["hosts"])) == (0, HOSTS)


def test_the_newest_run_is_taken_and_another_on_request(podscope: Podscope, logs: Path) -> None:
    (run,) = (logs / "plugins" / "profile").iterdir()
    older = run.rename(run.with_name("2026_11_20_09_00_00"))
    newer = Path(shutil.copytree(older, older.with_name("2026_11_21_09_00_00")))
    os.utime(_files(older)[0])
    ended = podscope(logs, "--tool", "overview_page", "--format", "json")
    assert ended.json()["scope"]["session"] == newer.name
    assert "2 runs" in ended.err
    ended = podscope(logs, "--run", older.name, "--tool", "overview_page", "--format", "json")
    assert ended.json()["scope"]["session"] == older.name
    assert ended.err == ""
    ended = podscope(logs, "--run", "2026_11_20_09_00_01")
    assert (ended.code, ended.out) == (3, "")
    assert "did you mean '2026_11_20_09_00_00'?" in ended.err


def test_one_host_can_be_chosen(podscope: Podscope, simulated: Path) -> None:
    name = _files(simulated)[1].name.removesuffix(".xplane.pb")
    one = podscope(simulated, "--host", name, "--tool", "overview_page", "--format", "json").json()
    assert one["scope"]["hosts"] == [name]
    ended = podscope(simulated, "--host", name + "x")
    assert ended.code == 3
    assert f"did you mean '{name}'?" in ended.err


def test_the_slow_host_is_named_for_people(podscope: Podscope, simulated: Path) -> None:
    name = _files(simulated)[1].name.removesuffix(".xplane.pb")
    for args in ((), ("--tool", "overview_page")):
        ended = podscope(simulated, *args)
        assert ended.code == 0
        assert f"The other hosts wait for {name}" in ended.out


def test_without_a_tool_every_tool_and_host_is_listed(podscope: Podscope, simulated: Path) -> None:
    found = podscope(simulated, "--format", "json").json()
    assert [host["step_count"] for host in found["hosts"]] == [6] * HOSTS
    states = {tool["name"]: tool["status"] for tool in found["tools"]}
    assert states["pod_viewer"] == "ok"
    assert states["kernel_stats"] == "empty"


def test_xprof_format_is_the_shape_of_xprofs_data_route(
    podscope: Podscope, simulated: Path
) -> None:
    tables = podscope(simulated, "--tool", "overview_page", "--format", "xprof").json()
    assert len(tables) == 7
    assert tables[2]["p"]["is_training"] in {"true", "false"}


def test_what_xprof_answers_as_a_page_is_printed_as_it_is(
    podscope: Podscope, simulated: Path
) -> None:
    timeline = ("--param", "view_memory_allocation_timeline=true")
    page = podscope(simulated, "--tool", "memory_viewer", "--format", "xprof", *timeline).out
    assert page.startswith("<!DOCTYPE html>")


def test_csv_of_one_table_is_text_and_of_several_a_zip(
    podscope: Podscope, simulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = (simulated, "--tool", "pod_viewer", "--format", "csv")
    text = podscope(*args, "--table", "hosts").out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["is_straggler"] for row in rows] == ["false", "true", "false"]
    written = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", written)
    with pytest.raises(SystemExit):
        main(["analyze", *map(str, args)])
    written.flush()
    with zipfile.ZipFile(io.BytesIO(written.buffer.getvalue())) as archive:
        names = ("steps", "hosts", "slowest", "collectives", "arrivals", "channels", "cores")
        assert set(archive.namelist()) == {f"{name}.csv" for name in names}
        assert archive.read("hosts.csv").decode() == text


def test_a_cell_that_a_spreadsheet_would_run_is_quoted() -> None:
    columns = (Column("name", "Name", "string"), Column("n", "N", "number"))
    cells = ["=cmd|'/c calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "plain", "-5", 'a "quoted", cell']
    text = csv_text(Table(columns, [*((cell, -1.5) for cell in cells), (None, None)]))
    read = list(csv.reader(io.StringIO(text)))
    assert read[0] == ["name", "n"]
    assert [row[0] for row in read[1:]] == [
        "'=cmd|'/c calc'!A0",
        "'+1+1",
        "'-2+3",
        "'@SUM(A1)",
        "plain",
        "-5",
        'a "quoted", cell',
        "",
    ]
    assert [row[1] for row in read[1:]] == ["-1.5"] * 7 + [""]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--tool", "pod_viewr"], "no tool 'pod_viewr'; did you mean 'pod_viewer'?"),
        (["--tool", "pod_viewer", "--param", "stp=3"], "pod_viewer has no parameter 'stp'"),
        (["--tool", "pod_viewer", "--param", "step"], "write key=value"),
        (["--param", "a=b"], "name it with --tool"),
        (["--format", "xprof"], "name it with --tool"),
        (["--tool", "pod_viewer", "--format", "csv", "--table", "host"], "did you mean 'hosts'?"),
    ],
)
def test_wrong_use_gives_one_line_and_exits_2(
    podscope: Podscope, simulated: Path, args: list[str], message: str
) -> None:
    ended = podscope(simulated, *args)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("folder", ["nothing", "empty"])
def test_a_missing_path_and_a_folder_without_profiles_exit_3(
    podscope: Podscope, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "empty" / "plugins" / "profile" / "run").mkdir(parents=True)
    ended = podscope(tmp_path / folder)
    assert (ended.code, ended.out, ended.err.count("\n")) == (3, "", 1)
    assert "give a profile, a run folder" in ended.err


@pytest.mark.parametrize("damage", ["empty", "truncated", "foreign", "flipped"])
def test_a_damaged_file_gives_one_line_and_exits_4(
    podscope: Podscope, logs: Path, damage: str
) -> None:
    file = _files(logs)[0]
    content = file.read_bytes()
    damaged = {
        "empty": b"",
        "truncated": content[: len(content) // 2],
        "foreign": b"PK\x03\x04" + bytes(range(256)) * 10,
        "flipped": content[:50] + bytes(b ^ 0xFF for b in content[50:90]) + content[90:],
    }
    file.write_bytes(damaged[damage])
    ended = podscope(file, "--tool", "overview_page")
    assert (ended.code, ended.out, ended.err.count("\n")) == (4, "", 1)
    assert file.name in ended.err or file.name.removesuffix(".xplane.pb") in ended.err


def test_packed_profiles_are_found_in_a_run_and_an_unpacked_one_goes_before_its_copy(
    podscope: Podscope, logs: Path
) -> None:
    plain = podscope(logs, "--tool", "pod_viewer", "--format", "json").json()
    first, second, third = _files(logs)
    for file in (first, second):
        Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
    first.unlink()
    Path(f"{third}.gz").write_bytes(b"not the one that is read")
    packed = podscope(logs, "--tool", "pod_viewer", "--format", "json").json()
    assert packed == plain
    alone = podscope(f"{first}.gz", "--tool", "pod_viewer", "--format", "json").json()
    assert alone["scope"]["hosts"] == plain["scope"]["hosts"][:1]


def test_a_riegeli_file_is_refused_by_name(podscope: Podscope, tmp_path: Path) -> None:
    run = tmp_path / "plugins" / "profile" / "run"
    run.mkdir(parents=True)
    start = bytes.fromhex("83af70d10d884a3f")
    (run / "worker0.xplane.riegeli").write_bytes(start + bytes(100))
    for path in (tmp_path, run / "worker0.xplane.riegeli"):
        ended = podscope(path, "--tool", "overview_page")
        assert (ended.code, ended.out) == (4, "")
        assert ended.err.startswith(
            "podscope: worker0: not a valid XSpace: this is a Riegeli file, which this version "
            "does not read; capture the host again as .xplane.pb; it was damaged"
        )


def test_a_bad_host_costs_only_itself_and_exits_5(podscope: Podscope, logs: Path) -> None:
    files = _files(logs)
    files[0].write_bytes(b"")
    files[2].write_bytes(files[2].read_bytes()[:-1000])
    ended = podscope(logs, "--tool", "overview_page", "--format", "json")
    assert ended.code == 5
    names = [file.name.removesuffix(".xplane.pb") for file in files]
    scope = ended.json()["scope"]
    assert scope["hosts"] == [names[1]]
    assert scope["missing_hosts"] == [
        {"host": names[0], "reason": "empty_profile"},
        {"host": names[2], "reason": "invalid_xspace"},
    ]
    assert [line.split(":")[1].split()[-1] for line in ended.err.splitlines()] == [
        names[0],
        names[2],
    ]


def test_no_good_host_at_all_exits_4(podscope: Podscope, logs: Path) -> None:
    for file in _files(logs):
        file.write_bytes(b"")
    ended = podscope(logs)
    assert (ended.code, ended.out) == (4, "")
    assert ended.err.count("\n") == HOSTS


def test_text_for_people_goes_through_a_pipe_without_colours_and_cuts_nothing(
    podscope: Podscope, simulated: Path
) -> None:
    ended = podscope(simulated, "--tool", "pod_viewer", "--table", "steps")
    assert "\x1b" not in ended.out
    assert "…" not in ended.out
    assert len([line for line in ended.out.splitlines() if "sim-tpu" in line]) == HOSTS * 4 * 6


def test_the_overview_for_people_reads_as_an_answer(podscope: Podscope, simulated: Path) -> None:
    result = podscope(simulated, "--tool", "overview_page", "--format", "json").json()["result"]
    lines = podscope(simulated, "--tool", "overview_page").out.splitlines()
    assert lines[1] == result["bottleneck"]["statement"]
    assert any(line.startswith("Step time ") for line in lines)
    at = lines.index("Where it goes") + 1
    shares = lines[at : lines.index("", at)]
    parts = {part["category"]: part["ratio"] for part in result["breakdown"] if part["ratio"]}
    assert {line.rsplit(maxsplit=1)[0].replace(" ", "_") for line in shares} == set(parts)
    percents = [float(line.split()[-1].rstrip("%")) for line in shares]
    assert percents == sorted(percents, reverse=True)
    assert percents[0] == round(100 * max(parts.values()), 1)
    assert not any("category=" in line for line in lines)


def test_a_captured_folder_tells_its_clocks_and_why_hosts_are_missing(
    podscope: Podscope, logs: Path
) -> None:
    files = _files(logs)
    names = [file.name.removesuffix(".xplane.pb") for file in files]
    known = [CapturedHost(name, None, 1_000 * at, 50) for at, name in enumerate(names)]
    keeper = Keeper(Storage(str(logs)), files[0].parent.name)
    keeper.note_hosts([*known, CapturedHost("gone", "deadline")])
    ended = podscope(logs, "--tool", "pod_viewer", "--format", "json")
    # All that is there could be read.
    assert ended.code == 0
    result = ended.json()
    assert result["scope"]["missing_hosts"] == [{"host": "gone", "reason": "deadline"}]
    clocks = result["result"]["clocks"]
    assert (clocks["host_count"], clocks["largest_error_us"], clocks["apart_us"]) == (3, 0.05, 2.0)
    assert "hosts_missing" in {advice["code"] for advice in result["advice"]}
    # One host alone is compared with nobody, and lacks nobody.
    alone = podscope(logs, "--tool", "pod_viewer", "--host", names[0], "--format", "json").json()
    assert alone["scope"]["missing_hosts"] == []
    assert alone["result"]["clocks"] is None


def test_the_pod_viewer_names_the_late_host_before_anything_else(
    podscope: Podscope, simulated: Path
) -> None:
    slow = _files(simulated)[1].name.removesuffix(".xplane.pb")
    lines = podscope(simulated, "--tool", "pod_viewer").out.splitlines()
    assert lines[1].startswith(f"{slow} holds the others back: ")
    assert "what takes longer is compute" in lines[1]
    (title,) = [at for at, line in enumerate(lines) if line.startswith("Hosts by own work")]
    # Below the heading the slowest host is first.
    assert lines[title + 2].startswith(slow)
    alone = podscope(_files(simulated)[0], "--tool", "pod_viewer").out
    assert "One host alone" in alone


@pytest.mark.parametrize("tool", ["memory_profile", "roofline_model"])
def test_lines_to_a_pipe_do_not_end_in_blanks(
    podscope: Podscope, simulated: Path, tool: str
) -> None:
    lines = podscope(simulated, "--tool", tool).out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if line.endswith(" ")] == []


@pytest.mark.case("2.T2")
def test_the_digits_of_a_count_are_grouped(podscope: Podscope, tmp_path: Path) -> None:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/device:TPU:0", id=1)
    for number, name in enumerate(("program_id", "symbol_id", "hlo_category"), start=1):
        plane.stat_metadata[number].id, plane.stat_metadata[number].name = number, name
    operation = plane.event_metadata[1]
    operation.id, operation.name, operation.display_name = 1, "%copy.1 = f32[] copy()", "copy.1"
    operation.stats.add(metadata_id=1, uint64_value=7)
    operation.stats.add(metadata_id=2, uint64_value=1)
    operation.stats.add(metadata_id=3, str_value="copy")
    line = plane.lines.add(id=1, name="XLA Ops", timestamp_ns=1)
    for number in range(6789):
        line.events.add(metadata_id=1, offset_ps=number * 2000, duration_ps=1000)
    file = tmp_path / "vm.xplane.pb"
    file.write_bytes(space.SerializeToString())
    shown = podscope(file, "--tool", "overview_page").out
    (row,) = (text.split() for text in shown.splitlines() if "copy.1" in text)
    assert "6,789" in row
