import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from podscope_agent.live.exporter import AgentMetrics, LiveFigures
from podscope_agent.live.host_cpu import CpuUse
from podscope_agent.live.model import BackendError, CaptureEnd, DeviceSample
from podscope_agent.live.nvml import NvmlBackend
from podscope_agent.live.reported import ReportedFigures
from podscope_agent.live.tpu import (
    DUTY_CYCLE,
    HBM_UTILIZATION,
    MEMORY_TOTAL,
    MEMORY_USAGE,
    TpuBackend,
)
from podscope_agent.monitor import HostUse, monitor_response
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import tpu_metrics_pb2 as wire

GIB = 2**30


class FakeLibtpu:
    """Answers as libtpu's metric service does, for two chips."""

    def __init__(self, *, listing: grpc.StatusCode | None = None) -> None:
        self.listing = listing
        self.values: dict[str, list[float | int]] = {
            MEMORY_TOTAL: [16 * GIB, 16 * GIB],
            MEMORY_USAGE: [4 * GIB, 8 * GIB],
            DUTY_CYCLE: [50.5, 100.0],
            "tpu.runtime.of.tomorrow": [1, 2],
        }

    def list_metrics(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        if self.listing is not None:
            context.abort(self.listing, "not today")
        answer = wire.ListSupportedMetricsResponse()
        for name in [*self.values, HBM_UTILIZATION]:
            answer.supported_metric.add(metric_name=name)
        return answer.SerializeToString()

    def metric(self, body: bytes, context: grpc.ServicerContext) -> bytes:
        name = wire.MetricRequest.FromString(body).metric_name
        if name not in self.values:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such metric")
        answer = wire.MetricResponse()
        answer.metric.name = name
        for chip, value in reversed(list(enumerate(self.values[name]))):
            metric = answer.metric.metrics.add()
            metric.attribute.value.int_attr = chip
            if isinstance(value, int):
                metric.gauge.as_int = value
            else:
                metric.gauge.as_double = value
        return answer.SerializeToString()


def serve(fake: FakeLibtpu) -> tuple[grpc.Server, int]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handlers = {
        "ListSupportedMetrics": grpc.unary_unary_rpc_method_handler(fake.list_metrics),
        "GetRuntimeMetric": grpc.unary_unary_rpc_method_handler(fake.metric),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.RUNTIME_METRIC_SERVICE, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


@pytest.fixture
def libtpu() -> Iterator[int]:
    server, port = serve(FakeLibtpu())
    yield port
    server.stop(None).wait()


def series(live: LiveFigures) -> dict[tuple[str, str], float]:
    text = generate_latest(AgentMetrics(live).registry).decode()
    return {
        (sample.name, sample.labels.get("chip", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_tpu_figures_become_ratios_and_bytes_per_chip(libtpu: int) -> None:
    got = series(LiveFigures("w0", [TpuBackend([f"127.0.0.1:{libtpu}"])]))
    assert got["podscope_device_duty_cycle_ratio", "0"] == pytest.approx(0.505)
    assert got["podscope_device_duty_cycle_ratio", "1"] == 1.0
    assert got["podscope_device_memory_used_bytes", "1"] == 8 * GIB
    assert got["podscope_device_memory_limit_bytes", "0"] == 16 * GIB
    # Listed, but asking for it fails: the others stay.
    assert not any(name.startswith("podscope_device_memory_bandwidth") for name, _ in got)


def test_a_process_whose_metrics_fail_does_not_hide_the_chips_of_the_others(libtpu: int) -> None:
    server, broken = serve(FakeLibtpu(listing=grpc.StatusCode.INTERNAL))
    got = TpuBackend([f"127.0.0.1:{broken}", f"127.0.0.1:{libtpu}"]).sample()
    assert [sample.chip for sample in got] == ["0", "1"]
    with pytest.raises(BackendError, match="INTERNAL"):
        TpuBackend([f"127.0.0.1:{broken}"]).sample()
    server.stop(None).wait()


def test_a_tpu_without_a_workload_is_no_error() -> None:
    server, port = serve(FakeLibtpu())
    server.stop(None).wait()
    got = series(LiveFigures("w0", [TpuBackend([f"127.0.0.1:{port}"])]))
    assert got["podscope_backend_up", ""] == 1.0
    assert got["podscope_host_memory_limit_bytes", ""] > 0


@pytest.mark.parametrize("failure", [BackendError("driver gone"), AttributeError("no such query")])
def test_a_failing_backend_costs_only_its_own_figures(libtpu: int, failure: Exception) -> None:
    class Broken:
        name = "nvml"

        def sample(self) -> list[DeviceSample]:
            raise failure

    live = LiveFigures("w0", [Broken(), TpuBackend([f"127.0.0.1:{libtpu}"])])
    text = generate_latest(AgentMetrics(live).registry).decode()
    assert 'podscope_backend_up{backend="nvml"} 0.0' in text
    assert 'podscope_backend_up{backend="tpu"} 1.0' in text
    assert 'chip="1"' in text


def test_a_capture_that_was_refused_is_counted_and_is_no_duration() -> None:
    metrics = AgentMetrics(LiveFigures("w0", []))
    metrics.record(CaptureEnd("refused"))
    metrics.record(
        CaptureEnd("done", seconds=2.5, cpu_seconds=0.1, size_bytes=7, target_seconds=0.5)
    )
    text = generate_latest(metrics.registry).decode()
    assert 'podscope_agent_captures_total{result="refused"} 1.0' in text
    assert "podscope_agent_capture_duration_seconds_count 1.0" in text
    assert "podscope_agent_capture_duration_seconds_sum 2.5" in text
    assert "podscope_agent_capture_target_seconds_total 0.5" in text


@pytest.mark.parametrize(
    ("before_s", "during_s", "ratio"),
    [(0.20, 0.25, 0.2), (0.25, 0.20, 0.0), (None, 0.25, None), (0.2, None, None), (0.2, 0, None)],
)
def test_the_overhead_is_the_share_of_the_step_that_the_capture_added(
    before_s: float | None, during_s: float | None, ratio: float | None
) -> None:
    reported = ReportedFigures()
    request = own.ReportFiguresRequest(captured_at_ns=1)
    if during_s is not None:
        request.step_time_seconds = during_s
    assert reported.take(request, before_s)
    metrics = AgentMetrics(LiveFigures("w0", []))
    metrics.count_spending(lambda: None, lambda: 0.0, lambda: reported.overhead_ratio)
    text = generate_latest(metrics.registry).decode()
    got = [line for line in text.splitlines() if line.startswith("podscope_profiling_overhead")]
    assert [float(line.split()[1]) for line in got] == (
        [] if ratio is None else [pytest.approx(ratio)]
    )


def test_the_guide_lists_what_is_exported_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(CpuUse, "ratio", lambda _use: 0.5)
    sample = DeviceSample("gpu", "0", "H100", 1, 1, 1, 1, 1, 1, 1, 1, 1, "estimated", 1, 1)
    whole = SimpleNamespace(name="whole", sample=lambda: [sample])
    metrics = AgentMetrics(LiveFigures("w0", [whole]))
    metrics.count_spending(lambda: 1.0, lambda: 1.0, lambda: 1.0)
    metrics.count_targets(lambda: {"ready": 1})
    metrics.record(CaptureEnd("done"))
    families = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    exported = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if not family.name.endswith("_created")
    }
    guide = Path(__file__).resolve().parents[3] / "docs/guide/agent.md"
    table = guide.read_text().partition("## Metrics")[2]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall("`([a-z_]+)`", row)} == exported


class FakeNvmlError(Exception):
    value = 3


class FakeNvml:
    """Recorded from a driver with one H100; the second device is a MIG parent."""

    NVMLError = FakeNvmlError
    NVML_TEMPERATURE_GPU = 0

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own names
        self.is_ready = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        if handle == 1:
            raise FakeNvmlError
        return SimpleNamespace(gpu=87, memory=40)

    def nvmlDeviceGetMemoryInfo(self, _handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=80 * GIB, used=71 * GIB, free=9 * GIB)

    def nvmlDeviceGetPowerUsage(self, _handle: int) -> int:  # noqa: N802
        return 512_300

    def nvmlDeviceGetTemperature(self, _handle: int, _sensor: int) -> int:  # noqa: N802
        return 61

    def nvmlDeviceGetName(self, _handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA H100 80GB HBM3"


def test_nvml_figures_are_in_base_units_and_a_refusal_hides_one_figure() -> None:
    first, second = NvmlBackend(FakeNvml()).sample()
    assert first == DeviceSample(
        accelerator="gpu",
        chip="0",
        model="NVIDIA H100 80GB HBM3",
        duty_cycle_ratio=0.87,
        memory_used_bytes=71 * GIB,
        memory_limit_bytes=80 * GIB,
        power_watts=512.3,
        temperature_celsius=61.0,
        peak_flops_per_second=989e12,
    )
    assert second.duty_cycle_ratio is None
    assert second.memory_used_bytes == 71 * GIB


def test_monitor_answers_in_the_words_that_scrapers_know() -> None:
    samples = [DeviceSample("tpu", "0", "TPU v5e", 0.6, matrix_unit_active_ratio=0.101)]
    host = HostUse(0.5, 1 * GIB, 2 * GIB)
    response = monitor_response(samples, level=2, with_timestamp=False, host=host)
    assert "TPU idle time (lower is better): 40.0%\n" in response.data
    assert "Utilization of TPU Matrix Units (higher is better): 10.1%\n" in response.data
    assert response.monitor_result.device_idle_time_percent == pytest.approx(40)


TPU_INFO = """
import sys
from tpu_info import device, metrics
for usage in metrics.get_chip_usage(device.TpuChip.V5E, sys.argv[1]):
    print(usage.device_id, usage.memory_usage, usage.total_memory, usage.duty_cycle_pct)
"""


def test_tpu_infos_own_reader_agrees_on_the_same_server(libtpu: int) -> None:
    """In a process of its own, as its message classes may want another protobuf."""
    pytest.importorskip("tpu_info")
    address = f"127.0.0.1:{libtpu}"
    told = subprocess.run(
        [sys.executable, "-c", TPU_INFO, address],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ).stdout
    rows = [tuple(float(text) for text in line.split()) for line in told.splitlines()]
    ours = TpuBackend([address]).sample()
    assert len(ours) == 2
    for row, sample in zip(rows, ours, strict=True):
        assert sample.duty_cycle_ratio is not None
        chip, used, limit, duty_percent = row
        assert chip == float(sample.chip)
        assert used == sample.memory_used_bytes
        assert limit == sample.memory_limit_bytes
        assert duty_percent == pytest.approx(100 * sample.duty_cycle_ratio)
