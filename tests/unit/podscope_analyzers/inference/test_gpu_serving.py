"""What requests to a server on GPUs were spent on, by its kernels and copies."""

from typing import Any

import pytest

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope

GPU = "/device:GPU:0"


@pytest.fixture
def host(serving_host: Any) -> HostPartial:
    """Two requests of 100 us: copy in, kernel, copy out; of the second a gap before its kernel."""
    made = serving_host()
    for number, (begin, gap) in enumerate(((1000.0, 0.0), (2000.0, 15.0))):
        made.event("SessionRun", begin, 100, {"_r": 1, "model_id": "m:1"})
        stages = (
            ("MemcpyH2D", 10.0, 8.0),
            ("matmul_kernel", 18.0 + gap, 40.0),
            ("MemcpyD2H", 58.0 + gap, 5.0),
        )
        for stage, (name, at, took) in enumerate(stages):
            about = {"correlation_id": 10 * number + stage + 1}
            made.event("cuLaunchKernel", begin + 4 + stage, 0.5, about)
            made.event(name, begin + at, took, about, thread="stream", plane=GPU)
    return analyze_host(made.bytes(), "h0")


def _rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    names = [column["id"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def test_requests_on_gpus_are_split_by_their_kernels_and_copies(host: HostPartial) -> None:
    stored = HostPartial.from_bytes(host.to_bytes())
    result = run_tool("inference_profile", [stored], Scope(["h0"]))
    assert [reason.code for reason in result.reasons] == []
    first, second = sorted(_rows(result.result["requests"]), key=lambda row: row["request_id"])
    for row, gap in ((first, 0.0), (second, 15.0)):
        assert row["latency_us"] == pytest.approx(100)
        assert row["host_preprocess_us"] == pytest.approx(10)
        assert row["host_to_device_us"] == pytest.approx(8)
        assert row["device_compute_us"] == pytest.approx(40)
        assert row["device_to_host_us"] == pytest.approx(5)
        # From the end of the last computation, what is copied aside.
        assert row["host_postprocess_us"] == pytest.approx(100 - 58 - gap - 5)
        assert row["idle_us"] == pytest.approx(gap)
        assert row["host_runtime_us"] is None


def test_the_overview_has_the_devices_share_and_the_reference_has_none(host: HostPartial) -> None:
    overview = run_tool("overview_page", [host], Scope(["h0"])).result
    average = _rows(overview["inference"])[-1]
    assert average["device_us"] == pytest.approx(40)
    assert average["communication_us"] == pytest.approx(13)
    tables: Any = run_tool_xprof("inference_profile", [host])
    names = [column["id"] for column in tables[1]["cols"]]
    for row in tables[1]["rows"]:
        shown = dict(zip(names, (cell.get("v") for cell in row["c"]), strict=True))
        assert float(shown["device_compute"]) == 0
        assert float(shown["data_transfer_h2d"]) == 0
    reference: Any = run_tool_xprof("overview_page", [host])
    latency = reference[4]
    at = [column["id"] for column in latency["cols"]].index("deviceTimeMs")
    assert {row["c"][at]["v"] for row in latency["rows"]} == {0.0}
