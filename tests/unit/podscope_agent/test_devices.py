import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest

from podscope_agent.live import nvml as nvml_module
from podscope_agent.live.chips import tpu_chips
from podscope_agent.live.exporter import AgentMetrics, LiveFigures
from podscope_agent.live.model import CaptureEnd, DeviceSample
from podscope_agent.live.nvml import NvmlBackend
from podscope_agent.live.peaks import peak_flops_per_second
from podscope_agent.live.reported import ReportedFigures
from podscope_agent.live.tpu import TpuBackend
from podscope_agent.monitor import HostUse, monitor_response
from podscope_protos.v1 import agent_service_pb2 as own

GIB = 2**30
NO_PERMISSION, LOST = 4, 15


class NvmlError(Exception):
    def __init__(self, value: int) -> None:
        self.value = value


class MetricsGet:
    def __init__(self) -> None:
        self.sample1 = self.sample2 = 0.0
        self.version = self.numMetrics = 0
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(3)]


class HopperNvml:
    """An H200 with hardware counters, a partitioned one, and one that may not be read."""

    NVMLError = NvmlError
    NVML_TEMPERATURE_GPU = 0
    NVML_ERROR_GPU_IS_LOST = LOST
    NVML_GPM_METRICS_GET_VERSION = 1
    c_nvmlGpmMetricsGet_t = MetricsGet  # noqa: N815 - NVML's own name

    def __init__(self) -> None:
        self.tensor_percent: list[float] = [0.0, 25.0, 50.0]
        self.is_lost = False
        self.freed: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        answers: Mapping[str, Any] = {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: 3,
            "nvmlDeviceGetHandleByIndex": self._handle,
            "nvmlDeviceGetUtilizationRates": self._utilization,
            "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
                total=(141 if isinstance(handle, int) else 18) * GIB, used=7 * GIB
            ),
            "nvmlDeviceGetPowerUsage": lambda _handle: 650_500,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _handle: 12_345_678,
            "nvmlDeviceGetTemperature": lambda _handle, _sensor: 55,
            "nvmlDeviceGetName": lambda _handle: "NVIDIA H200",
            "nvmlDeviceGetMigMode": lambda handle: [int(handle == 1), 0],
            "nvmlDeviceGetMaxMigDeviceCount": lambda _handle: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._instance,
            "nvmlGpmQueryDeviceSupport": lambda _handle: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": lambda: SimpleNamespace(percent=self.tensor_percent.pop(0)),
            "nvmlGpmSampleGet": lambda _handle, sample: sample,
            "nvmlGpmSampleFree": self.freed.append,
            "nvmlGpmMetricsGet": self._metrics,
        }
        return answers[name]

    def _handle(self, index: int) -> int:
        if self.is_lost:
            raise NvmlError(LOST)
        if index == 2:
            raise NvmlError(NO_PERMISSION)
        return index

    def _utilization(self, handle: int) -> Any:
        if handle == 1:
            raise NvmlError(NO_PERMISSION)
        return SimpleNamespace(gpu=90, memory=1)

    def _instance(self, _handle: int, number: int) -> str:
        if number > 1:
            raise NvmlError(6)
        return f"mig{number}"

    def _metrics(self, asked: MetricsGet) -> MetricsGet:
        for metric in asked.metrics[: asked.numMetrics]:
            if metric.metricId == 5:
                metric.value = asked.sample2.percent  # type: ignore[attr-defined]  # as sampled
            else:
                metric.nvmlReturn = 3
        return asked


def test_hardware_counters_of_two_readings_become_flops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_module, "_GPM_APART_S", 0.0)
    fake = HopperNvml()
    backend = NvmlBackend(fake)
    assert backend.sample()[0].matrix_unit_active_ratio is None
    whole = backend.sample()[0]
    assert whole.matrix_unit_active_ratio == 0.25
    # A quarter of the time at the dense bfloat16 peak of 989 TFLOP/s.
    assert whole.flops_per_second == pytest.approx(247.25e12)
    assert whole.flops_source == "estimated"
    assert whole.memory_bandwidth_utilization_ratio is None
    assert whole.energy_joules == pytest.approx(12_345.678)
    assert backend.sample()[0].matrix_unit_active_ratio == 0.5
    assert [sample.percent for sample in fake.freed] == [0.0, 25.0]


def test_a_partitioned_gpu_shows_its_instances_and_a_forbidden_one_hides_itself() -> None:
    samples = {sample.chip: sample for sample in NvmlBackend(HopperNvml()).sample()}
    assert list(samples) == ["0", "1", "1/0", "1/1"]
    assert samples["1"].duty_cycle_ratio is None
    assert samples["1/1"].memory_limit_bytes == 18 * GIB
    assert samples["1/1"].model == "NVIDIA H200 MIG"


def test_a_lost_gpu_fails_the_backend_alone() -> None:
    fake = HopperNvml()
    backend = NvmlBackend(fake)
    fake.is_lost = True
    text = generate_latest(AgentMetrics(LiveFigures("h", [backend])).registry).decode()
    assert 'podscope_backend_up{backend="nvml"} 0.0' in text
    assert "podscope_host_memory_limit_bytes" in text


def test_device_series_have_the_names_and_labels_of_the_documentation() -> None:
    class One:
        name = "nvml"

        def sample(self) -> list[DeviceSample]:
            return [
                DeviceSample(
                    "gpu",
                    "0",
                    energy_joules=5.0,
                    flops_per_second=2e12,
                    flops_source="estimated",
                    peak_flops_per_second=1e15,
                )
            ]

    metrics = AgentMetrics(LiveFigures("h", [One()]))
    metrics.count_targets(lambda: {"ready": 2, "unreachable": 1})
    metrics.record(CaptureEnd("done", 1.5, 0.25, 1000))
    metrics.record(CaptureEnd("refused"))
    lines = generate_latest(metrics.registry).decode().splitlines()
    device = 'accelerator="gpu",chip="0"'
    for line in (
        f'podscope_device_flops_per_second{{{device},host="h",source="estimated"}} 2e+012',
        f'podscope_device_peak_flops_per_second{{{device},dtype="bf16",host="h"}} 1e+015',
        f'podscope_energy_joules_total{{{device},host="h"}} 5.0',
        'podscope_targets{state="ready"} 2.0',
        'podscope_targets{state="unreachable"} 1.0',
        'podscope_agent_captures_total{result="done"} 1.0',
        'podscope_agent_captures_total{result="refused"} 1.0',
        "podscope_agent_capture_cpu_seconds_total 0.25",
        "podscope_agent_capture_bytes_total 1000.0",
    ):
        name, _, rest = line.partition("{")
        labels = set(rest.partition("}")[0].split(",")) - {""}
        value = float(line.rpartition(" ")[2])
        assert any(
            have.startswith(name.partition(" ")[0])
            and labels <= set(have.partition("{")[2].partition("}")[0].split(","))
            and float(have.rpartition(" ")[2]) == value
            for have in lines
            if not have.startswith("#")
        ), line


def pci(root: Path, address: str, **numbers: str) -> None:
    folder = root / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, number in numbers.items():
        (folder / name).write_text(f"{number}\n")


def test_tpu_chips_are_known_by_their_pci_devices(tmp_path: Path) -> None:
    pci(tmp_path, "0000:00:04.0", vendor="0x1ae0", device="0x0063")
    pci(tmp_path, "0000:00:05.0", vendor="0x1ae0", device="0x0027", subsystem_device="0x004f")
    pci(tmp_path, "0000:00:06.0", vendor="0x1ae0", device="0xffff")
    pci(tmp_path, "0000:00:07.0", vendor="0x10de", device="0x0063")
    pci(tmp_path, "0000:00:08.0", vendor="nonsense", device="0x0063")
    chips = tpu_chips(tmp_path)
    assert [(c.name, c.devices_per_chip, c.memory_bytes // GIB) for c in chips] == [
        ("TPU v5e", 1, 16),
        ("TPU v3", 2, 16),
    ]
    assert tpu_chips(tmp_path / "absent") == ()


def test_chips_without_a_workload_have_a_model_and_a_size(tmp_path: Path) -> None:
    for number in range(2):
        pci(tmp_path, f"0000:00:0{number}.0", vendor="0x1ae0", device="0x006f")
    samples = TpuBackend(["127.0.0.1:1"], tpu_chips(tmp_path)).sample()
    assert [(s.chip, s.model, s.memory_limit_bytes) for s in samples] == [
        ("0", "TPU v6e", 32 * GIB),
        ("1", "TPU v6e", 32 * GIB),
    ]
    assert samples[0].duty_cycle_ratio is None
    assert samples[0].peak_flops_per_second == 918e12


@pytest.mark.parametrize(
    ("model", "teraflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("TPU v5p", 459),
        ("NVIDIA GeForce GTX 1080", None),
        ("", None),
    ],
)
def test_peaks_are_found_by_the_whole_name(model: str, teraflops: float | None) -> None:
    expected = None if teraflops is None else teraflops * 1e12
    assert peak_flops_per_second(model) == expected


def test_monitor_tells_the_host_and_the_memory_at_level_two_only() -> None:
    sample = DeviceSample(
        "tpu", "0", "TPU v5e", 0.6, memory_used_bytes=4 * GIB, memory_limit_bytes=16 * GIB
    )
    host = HostUse(0.25, 3 * GIB, 64 * GIB)
    one, two = (
        monitor_response([sample], level=level, with_timestamp=False, host=host) for level in (1, 2)
    )
    assert one.data == "TPU type: TPU v5e\n"
    assert two.data.splitlines() == [
        "TPU type: TPU v5e",
        "Number of TPU cores: 1",
        "TPU idle time (lower is better): 40.0%",
        "HBM used: 4.0 of 16.0 GiB",
        "Host CPU utilization: 25.0%",
        "Host memory used: 3.0 of 64.0 GiB",
    ]


@pytest.mark.parametrize("level", [1, 2])
def test_monitor_of_a_host_without_devices_tells_cpu_and_memory(level: int) -> None:
    host = HostUse(0.25, 3 * GIB, 64 * GIB)
    response = monitor_response([], level=level, with_timestamp=True, host=host)
    assert re.fullmatch(
        r"Timestamp: \d\d:\d\d:\d\d\n"
        r"Device type: CPU\n"
        r"Host CPU utilization: 25\.0%\n"
        r"Host memory used: 3\.0 of 64\.0 GiB\n",
        response.data,
    )
    assert response.HasField("monitor_result")
    assert response.monitor_result.response_type == 0


def reported(**more: float) -> own.ReportFiguresRequest:
    request = own.ReportFiguresRequest(device_kind="TPU v5 lite", captured_at_ns=100)
    for name, value in more.items():
        setattr(request, name, value)
    return request


def test_figures_of_the_last_profile_are_exported_until_they_are_old() -> None:
    figures = ReportedFigures()
    assert figures.sample() == []
    assert figures.take(reported(duty_cycle_ratio=0.0, flops_per_second=5e12))
    assert not figures.take(reported(captured_at_ns=99))
    [sample] = figures.sample()
    assert (sample.accelerator, sample.chip, sample.model) == ("tpu", "all", "TPU v5 lite")
    # Zero is a figure, and what was not told is none.
    assert sample.duty_cycle_ratio == 0.0
    assert sample.step_time_seconds is None
    text = generate_latest(AgentMetrics(LiveFigures("h", [figures])).registry).decode()
    assert 'chip="all",host="h",source="profile"} 5e+' in text
    old = ReportedFigures(kept_s=0.0)
    old.take(reported())
    assert old.sample() == []


def test_monitor_tells_the_step_time_beside_live_figures() -> None:
    figures = ReportedFigures()
    figures.take(reported(step_time_seconds=0.0908, duty_cycle_ratio=0.1))
    live = DeviceSample("tpu", "0", "TPU v5e", 0.6)
    response = monitor_response(
        [live, *figures.sample()], level=2, with_timestamp=False, host=HostUse(0.0, 1, 1)
    )
    assert "TPU idle time (lower is better): 40.0%\n" in response.data
    assert "Number of TPU cores: 1\n" in response.data
    assert "Step time: 90.8ms (avg)\n" in response.data
    assert response.monitor_result.step_time_ms_avg == pytest.approx(90.8)
    assert response.monitor_result.response_type == 3


def test_monitor_prefers_the_steps_that_run_now_and_tells_them_without_devices_too() -> None:
    figures = ReportedFigures()
    figures.take(reported(step_time_seconds=0.0908))
    host = HostUse(0.0, 1, 1)
    for samples in (figures.sample(), []):
        response = monitor_response(
            samples, level=2, with_timestamp=False, host=host, step_time_s=0.02
        )
        assert "Step time: 20.0ms (avg)\n" in response.data
        assert response.monitor_result.step_time_ms_avg == pytest.approx(20)
