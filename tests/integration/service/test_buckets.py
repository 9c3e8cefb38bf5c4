"""A service whose profiles and results lie in a bucket: everything as with a folder."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integration.object_server import serving
from tests.integration.service.conftest import environment

from podscope_agent.simulator import Pod, write_pod
from podscope_collector.storage import Storage

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_captures_analyses_imports_and_checks_of_a_service_on_a_bucket(
    scheme: str,
    start: Callable[..., Any],
    pod: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(scheme, tmp_path) as bucket:
        root = f"{bucket.url}/team"
        variables = {**bucket.variables, "PODSCOPE_COLLECTOR_STORAGE_ROOT": root}
        podscope = start(**variables)

        capture_id = podscope.capture([*pod, "127.0.0.1:1"])
        capture = podscope.ended(capture_id)
        assert (capture["state"], capture["hosts_done"]) == ("partial", 3)
        assert capture["analysis"] == {
            "state": "done",
            "hosts_done": 3,
            "hosts_total": 3,
            "error": None,
        }
        hosts = podscope.get(f"/captures/{capture_id}/hosts")["items"][:3]
        folder = f"plugins/profile/{capture['session']}"
        for host in hosts:
            assert host["file"] == f"{folder}/{host['host']}.xplane.pb"
            content = bucket.objects[f"team/{host['file']}"]
            assert (len(content), hashlib.sha256(content).hexdigest()) == (
                host["bytes"],
                host["sha256"],
            )
            url = f"/api/v1/captures/{capture_id}/hosts/{host['host']}/xspace"
            assert podscope.http.get(url).content == content
        tools = podscope.get(f"/captures/{capture_id}/tools")["items"]
        assert {tool["state"] for tool in tools} == {"done"}
        late = podscope.get(f"/captures/{capture_id}/tools/pod_viewer")
        assert late["scope"]["hosts"] == [host["host"] for host in hosts]
        # From parts that are stored, for a parameter that nobody asked for before.
        (first, *_) = hosts
        memory = podscope.get(
            f"/captures/{capture_id}/tools/memory_viewer",
            host=first["host"],
            small_buffer_bytes="0",
        )
        assert memory["status"] == "ok"
        assert not (podscope.data_dir / "profiles").exists()

        # What others put into another folder of the bucket comes in, damaged hosts aside.
        list(write_pod(Pod(device="tpu-v5e", hosts=2, steps=4), tmp_path / "logs", "old"))
        names = []
        for number, file in enumerate(sorted((tmp_path / "logs").rglob("*.xplane.pb"))):
            run = f"2026_01_01_00_00_0{number}"
            names.append(file.name.removesuffix(".xplane.pb"))
            bucket.objects[f"others/plugins/profile/{run}/{file.name}"] = file.read_bytes()
        bucket.objects["others/plugins/profile/2026_01_01_00_00_01/bad.xplane.pb"] = b"\x0a\x7f"
        ended = _podscope(
            variables,
            "import",
            f"{bucket.url}/others",
            "--data-dir",
            str(podscope.data_dir),
            "--merge-window=30s",
            "--json",
        )
        assert ended.returncode == 5, ended.stderr
        (imported,) = json.loads(ended.stdout)
        assert (imported["hosts_done"], imported["hosts_total"]) == (2, 3)
        assert imported["problem"].startswith("bad: ")
        merged = podscope.ended(imported["capture"])
        assert (merged["state"], merged["analysis"]["state"]) == ("partial", "done")
        result = podscope.get(f"/captures/{imported['capture']}/tools/overview_page")
        assert result["scope"]["hosts"] == names
        assert ".podscope/rejected/2026_01_01_00_00_00/bad" in {
            key.removeprefix("team/") for key in bucket.objects
        }

        # The service and the command say whether the bucket can be written.
        (checked,) = [podscope.http.post("/api/v1/doctor", json={"targets": pod[:1]}).json()]
        assert (checked["storage"]["root"], checked["storage"]["state"]) == (root, "ok")
        told = _podscope(variables, "doctor", pod[0], "--logdir", root, "--json")
        assert json.loads(told.stdout)["storage"]["state"] == "ok"

        for name, text in bucket.variables.items():
            monkeypatch.setenv(name, text)
        assert capture["session"] in Storage(root).list_sessions()
        bucket.denied = True
        told = _podscope(variables, "doctor", pod[0], "--logdir", root, "--json")
        assert told.returncode == 1
        assert "permission denied" in json.loads(told.stdout)["storage"]["detail"]
        bucket.denied = False


def _podscope(variables: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "podscope", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment(**variables),
    )
