"""Commands that read profiles read them from buckets too, as they read folders."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.object_server import ObjectServer, serving

from podscope.cli import main
from podscope_agent.simulator import Pod, write_pod
from podscope_agent.simulator.process import serve
from podscope_collector.captured_hosts import CapturedHost
from podscope_collector.captures.keeping import Keeper
from podscope_collector.profiles import find_runs
from podscope_collector.storage import Storage

OLD, NEW = "2026_01_01_00_00_00", "2026_01_01_00_00_30"
HOSTS = 3

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log folder with two runs of three hosts, one of which is slow in the newer."""
    logs = tmp_path_factory.mktemp("logs")
    list(write_pod(Pod(device="tpu-v5e", hosts=HOSTS, steps=6, seed=3), logs, OLD))
    list(write_pod(Pod(device="tpu-v5e", hosts=HOSTS, steps=6, seed=3, slow_host=1), logs, NEW))
    Keeper(Storage(str(logs)), NEW).note_hosts([CapturedHost("w9", "refused")])
    return logs


@pytest.fixture(params=["s3", "gs"])
def bucket(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, logs: Path
) -> Iterator[ObjectServer]:
    """The same below ``team/logs`` of a bucket."""
    with serving(request.param, tmp_path) as server:
        for name, text in server.variables.items():
            monkeypatch.setenv(name, text)
        for file in logs.rglob("*"):
            if file.is_file():
                server.objects[f"team/logs/{file.relative_to(logs)}"] = file.read_bytes()
        yield server


@pytest.fixture
def podscope(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*args: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run


def _files(logs: Path, run: str) -> list[Path]:
    return sorted((logs / "plugins" / "profile" / run).glob("*.xplane.pb"))


def test_analyze_says_of_a_bucket_what_it_says_of_the_same_folder(
    bucket: ObjectServer, logs: Path, podscope: Command
) -> None:
    url = f"{bucket.url}/team/logs"
    host = _files(logs, NEW)[1].name
    for below in ("", "/plugins/", f"/plugins/profile/{NEW}", f"/plugins/profile/{NEW}/{host}"):
        for tool in (("--tool", "pod_viewer"), ("--tool", "overview_page", "--format", "json"), ()):
            code, out, err = podscope("analyze", f"{url}{below}", *tool)
            assert (code, out) == podscope("analyze", f"{logs}{below}", *tool)[:2], err
            assert code == 0
    assert "w9" in podscope("analyze", url, "--tool", "pod_viewer", "--format", "json")[1]
    assert f"2 runs in {url}; this is the newest, {NEW}" in podscope("analyze", url)[2]


def test_only_what_is_asked_for_is_read(
    bucket: ObjectServer, logs: Path, podscope: Command
) -> None:
    name = _files(logs, OLD)[2].name.removesuffix(".xplane.pb")
    asked = (f"{bucket.url}/team/logs", "--run", OLD, "--host", name)
    assert podscope("analyze", *asked, "--tool", "framework_op_stats")[0] == 0
    key = f"team/logs/plugins/profile/{OLD}/{name}.xplane.pb"
    assert [read for read in bucket.reads if read.endswith(".pb")] == [key]


def test_a_folder_of_a_bucket_is_compared_with_one_of_this_machine(
    bucket: ObjectServer, logs: Path, podscope: Command
) -> None:
    runs = ("--run", OLD, "--other-run", NEW, "--tool", "pod_viewer", "--json")
    here = podscope("diff", logs, logs, *runs)
    assert here[0] == 0
    assert podscope("diff", f"{bucket.url}/team/logs", logs, *runs)[:2] == here[:2]


def test_a_damaged_host_of_a_bucket_costs_only_itself(
    bucket: ObjectServer, logs: Path, podscope: Command
) -> None:
    first, second, third = _files(logs, NEW)
    folder = f"team/logs/plugins/profile/{NEW}"
    bucket.objects[f"{folder}/{second.name}"] = second.read_bytes()[:-9]
    bucket.objects[f"{folder}/{third.name}"] = b""
    code, _, err = podscope("analyze", f"{bucket.url}/team/logs", "--tool", "pod_viewer")
    assert code == 5
    assert f"left out {second.name.removesuffix('.xplane.pb')}" in err
    assert f"{bucket.url}/{folder}/{third.name} is empty" in err
    assert first.name.removesuffix(".xplane.pb") not in err


def test_what_is_not_there_or_not_allowed_is_one_line_and_exit_code_3(
    bucket: ObjectServer, podscope: Command
) -> None:
    missing = f"{bucket.url}/team/logs/none.xplane.pb"
    for place in (f"{bucket.url}/team/none", missing, f"{bucket.url.partition(':')[0]}://"):
        code, out, err = podscope("analyze", place)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert place in err
    bucket.denied = True
    code, out, err = podscope("analyze", f"{bucket.url}/team/logs")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "permission denied" in err


def test_packed_profiles_and_runs_of_several_jobs_are_found_as_in_a_folder(
    bucket: ObjectServer, logs: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(logs, tmp_path / "copy"))
    for job in ("a", "b"):
        shutil.copytree(logs / "plugins", copy / job / "train" / "plugins")
    shutil.rmtree(copy / "plugins")
    bucket.objects.clear()
    for file in copy.rglob("*.xplane.pb"):
        bucket.objects[f"{file.relative_to(copy)}.gz"] = b"x"
        bucket.objects[str(file.relative_to(copy).with_name("._w.xplane.pb"))] = b"of macOS"
    found = find_runs(bucket.url)
    wanted = [file.name.removesuffix(".xplane.pb") for file in _files(logs, OLD)]
    assert [run.session for run in found] == [OLD, NEW] * 2
    assert [[file.host for file in run.files] for run in found] == [wanted] * 4


def test_a_capture_into_a_bucket_says_the_command_that_reads_it(
    bucket: ObjectServer, podscope: Command
) -> None:
    with serve(Pod(device="cpu", hosts=2, steps=3)) as pod:
        place = f"{bucket.url}/new"
        code, out, err = podscope("capture", *pod.addresses, "--duration=200ms", "--logdir", place)
    assert code == 0, err
    assert f"podscope analyze {place}\n" in out
    code, out, _ = podscope("analyze", place, "--tool", "framework_op_stats", "--format", "json")
    assert code == 0
    names = sorted(address.replace(":", "_") for address in pod.addresses)
    assert json.loads(out)["scope"]["hosts"] == names
    assert Storage(place).list_hosts(Storage(place).list_sessions()[0]) == names


def test_a_bucket_of_folders_without_profiles_is_given_up_after_a_bounded_search(
    bucket: ObjectServer, podscope: Command
) -> None:
    bucket.page = 1000
    bucket.objects.clear()
    for first in range(60):
        for second in range(60):
            bucket.objects[f"{first}/{second}/x"] = b""
    code, out, err = podscope("analyze", bucket.url)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert f"{bucket.url} has more than 2,000 folders" in err
    assert "name a folder nearer to the profiles" in err
    # The bucket, the place for runs in each of its folders, and folders until 2,000 were found.
    assert len(bucket.listed) == 1 + 1 + 60 + 33
