"""Results that the service stores are those that ``podscope analyze`` prints: advice included."""

import json
from pathlib import Path
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.clocks import HostClock
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import MissingHost, Scope
from podscope_analyzers.tools import roofline_model
from podscope_collector.analyses.jobs import (
    analyze_stored_host,
    merge_stored_hosts,
    reduce_stored_capture,
)
from podscope_collector.analyses.pod_states import StoredPartial
from podscope_collector.storage import Storage

SESSION = "2026_01_01_00_00_00_000"
POD = Pod(device="gpu-h100", hosts=2, steps=6, seed=5, input_bound=0.4, slow_host=1)
NAMES = ("h0", "h1")
INLINE = 1 << 30


def _bodies(found: dict[str, Any]) -> dict[str, Any]:
    return {result["tool"]: result["body"] for result in found["results"]}


def test_stored_results_have_the_advice_and_losses_of_the_tools(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    hosts = [analyze_host(build_xspace(POD, n), name) for n, name in enumerate(NAMES)]
    stored = []
    for n, name in enumerate(NAMES):
        storage.put_xspace(SESSION, name, build_xspace(POD, n))
        found = analyze_stored_host(str(tmp_path), SESSION, name, "id", INLINE)
        stored.append(StoredPartial(name, found["partial_file"], found["partial_digest"]))
        scope = Scope(hosts=[name], session=SESSION, capture="id")
        bodies = _bodies(found)
        assert bodies.keys() == {t.name for t in TOOLS.values() if t.scope != "all_hosts"}
        for tool, body in bodies.items():
            expected = run_tool(tool, [hosts[n]], scope).to_json()
            assert body == json.loads(json.dumps(expected)), tool
    files = merge_stored_hosts(str(tmp_path), SESSION, stored, [])["files"]
    reduced = reduce_stored_capture(
        str(tmp_path), SESSION, "id", NAMES, [("h2", "deadline")], files, INLINE
    )
    missing = [MissingHost("h2", "deadline")]
    scope = Scope(hosts=list(NAMES), session=SESSION, capture="id", missing_hosts=missing)
    bodies = _bodies(reduced)
    for tool, body in bodies.items():
        expected = run_tool(tool, hosts, scope).to_json()
        assert body == json.loads(json.dumps(expected)), tool
    codes = {advice["code"] for advice in bodies["overview_page"]["advice"]}
    assert {"input_bound", "straggler"} <= codes
    assert [advice["code"] for advice in bodies["input_pipeline_analyzer"]["advice"]]


def test_a_tool_that_fails_costs_no_other_tool_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        message = "cannot convert float infinity to integer"
        raise OverflowError(message)

    monkeypatch.setattr(roofline_model, "analyze", fails)
    storage = Storage(str(tmp_path))
    stored = []
    for n, name in enumerate(NAMES):
        storage.put_xspace(SESSION, name, build_xspace(POD, n))
        found = analyze_stored_host(str(tmp_path), SESSION, name, "id", INLINE)
        stored.append(StoredPartial(name, found["partial_file"], found["partial_digest"]))
    sentence = (
        "roofline_model cannot take this profile (OverflowError: cannot convert float infinity to "
        "integer); the other tools' results are complete"
    )
    assert sentence in found["warnings"]
    of_hosts = {tool.name for tool in TOOLS.values() if tool.scope != "all_hosts"}
    assert _bodies(found).keys() == of_hosts - {"roofline_model"}
    files = merge_stored_hosts(str(tmp_path), SESSION, stored, [])["files"]
    reduced = reduce_stored_capture(str(tmp_path), SESSION, "id", NAMES, [], files, INLINE)
    assert reduced["failed"] == [sentence]
    of_all = {tool.name for tool in TOOLS.values() if tool.scope != "host"}
    assert _bodies(reduced).keys() == of_all - {"roofline_model"}
    assert reduced["pod_viewer_rows"]


def test_clocks_that_the_capture_measured_reach_the_results(tmp_path: Path) -> None:
    pod = Pod(device="tpu-v5e", hosts=2, steps=6, seed=3, slow_host=1, clock_skew_ms=2000)
    storage = Storage(str(tmp_path))
    stored = []
    for n, name in enumerate(NAMES):
        storage.put_xspace(SESSION, name, build_xspace(pod, n))
        found = analyze_stored_host(str(tmp_path), SESSION, name, "id", INLINE)
        stored.append(StoredPartial(name, found["partial_file"], found["partial_digest"]))
    clocks = [(name, pod.clock_offset_ns(n), 10_000) for n, name in enumerate(NAMES)]
    files = merge_stored_hosts(str(tmp_path), SESSION, stored, [])["files"]
    reduced = reduce_stored_capture(str(tmp_path), SESSION, "id", NAMES, [], files, INLINE, clocks)
    hosts = [analyze_host(build_xspace(pod, n), name) for n, name in enumerate(NAMES)]
    scope = Scope(
        hosts=list(NAMES),
        session=SESSION,
        capture="id",
        clocks={name: HostClock(offset_ns, error_ns) for name, offset_ns, error_ns in clocks},
    )
    body = _bodies(reduced)["pod_viewer"]
    assert body == json.loads(json.dumps(run_tool("pod_viewer", hosts, scope).to_json()))
    assert body["result"]["straggler"]["stragglers"][0]["arrival"]["basis"] == "clocks"
    ends = reduced["common_ends"]
    assert ends["basis"] == "collective_ends"
    # The second host is slow, and its clock was right all the same.
    assert ends["difference_ns"] == pytest.approx(dict.fromkeys(NAMES, 0), abs=2)
