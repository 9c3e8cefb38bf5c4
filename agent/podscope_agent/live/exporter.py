"""Exports live figures to Prometheus: read at scrape time, each source failing alone."""

import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import psutil
import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from podscope._version import __version__
from podscope_agent.live.host_cpu import CpuUse
from podscope_agent.live.model import BackendError, CaptureEnd, DeviceBackend, DeviceSample
from podscope_agent.live.peaks import DTYPE

log = structlog.get_logger()

_DEVICE_GAUGES: Final = {
    "podscope_device_duty_cycle_ratio": ("duty_cycle_ratio", "Share of time the device was busy."),
    "podscope_device_matrix_unit_active_ratio": (
        "matrix_unit_active_ratio",
        "Share of time the matrix units were busy.",
    ),
    "podscope_device_memory_used_bytes": ("memory_used_bytes", "Device memory in use."),
    "podscope_device_memory_limit_bytes": ("memory_limit_bytes", "Device memory there is."),
    "podscope_device_memory_bandwidth_utilization_ratio": (
        "memory_bandwidth_utilization_ratio",
        "Share of the device memory's bandwidth in use.",
    ),
    "podscope_power_watts": ("power_watts", "Power the device draws."),
    "podscope_device_step_time_seconds": (
        "step_time_seconds",
        "Mean time of a step in the last capture that was analysed.",
    ),
    "podscope_device_temperature_celsius": ("temperature_celsius", "Temperature of the device."),
}
_LABELS: Final = ("host", "accelerator", "chip")
_FRESH_S: Final = 1.0
"""Two scrapers within a second share one reading, so that none can load the devices."""
_CAPTURE_BUCKETS_S: Final = (0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800)


class LiveFigures(Collector):
    """Reads every backend at most once a second; used by `/metrics` and by `Monitor`.

    Attributes:
        cpu: How busy the host is.
    """

    def __init__(self, host: str, backends: Sequence[DeviceBackend]) -> None:
        """Report for `host`."""
        self._host = host
        self.cpu = CpuUse()
        self._backends = tuple(backends)
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._samples: list[DeviceSample] = []
        self._is_up: dict[str, bool] = {}

    def samples(self) -> list[DeviceSample]:
        """Return the figures of all devices, at most a second old."""
        with self._lock:
            if time.monotonic() - self._read_at >= _FRESH_S:
                self._samples = [sample for part in self._read_backends() for sample in part]
                self._read_at = time.monotonic()
            return list(self._samples)

    def _read_backends(self) -> Iterator[list[DeviceSample]]:
        for backend in self._backends:
            try:
                yield backend.sample()
                self._is_up[backend.name] = True
            except BackendError as error:
                if self._is_up.get(backend.name, True):
                    log.warning("backend_failed", backend=backend.name, problem=str(error))
                self._is_up[backend.name] = False
            except Exception:
                # One source's defect must not hide the others.
                if self._is_up.get(backend.name, True):
                    log.exception("backend_failed", backend=backend.name)
                self._is_up[backend.name] = False

    def collect(self) -> Iterable[Metric]:
        """Yield every series, as Prometheus asks for it."""
        samples = self.samples()
        build = InfoMetricFamily("podscope_build", "Version of this agent.")
        build.add_metric([], {"version": __version__, "python": platform.python_version()})
        yield build
        for name, (attribute, text) in _DEVICE_GAUGES.items():
            family = GaugeMetricFamily(name, text, labels=_LABELS)
            for sample in samples:
                value = getattr(sample, attribute)
                if value is not None:
                    family.add_metric([self._host, sample.accelerator, sample.chip], float(value))
            if family.samples:
                yield family
        yield from _labelled(
            self._host,
            "podscope_device_flops_per_second",
            "FLOP/s of the device, by where the figure is from.",
            "source",
            [(s, s.flops_source, s.flops_per_second) for s in samples],
        )
        yield from _labelled(
            self._host,
            "podscope_device_peak_flops_per_second",
            "FLOP/s that the device can do at most.",
            "dtype",
            [(s, DTYPE, s.peak_flops_per_second) for s in samples],
        )
        energy = CounterMetricFamily(
            "podscope_energy_joules",
            "Energy the device used since its driver began.",
            labels=_LABELS,
        )
        for sample in samples:
            if sample.energy_joules is not None:
                energy.add_metric(
                    [self._host, sample.accelerator, sample.chip], sample.energy_joules
                )
        if energy.samples:
            yield energy
        up = GaugeMetricFamily(
            "podscope_backend_up", "Whether a source of figures answers.", labels=("backend",)
        )
        for backend, is_up in sorted(self._is_up.items()):
            up.add_metric([backend], float(is_up))
        yield up
        yield from self._host_gauges()

    def _host_gauges(self) -> Iterator[Metric]:
        memory = psutil.virtual_memory()
        network = psutil.net_io_counters()
        readings = {
            "podscope_host_cpu_utilization_ratio": (
                self.cpu.ratio(),
                "Share of the host's CPU time in use since the last scrape.",
            ),
            "podscope_host_memory_used_bytes": (memory.total - memory.available, "Memory in use."),
            "podscope_host_memory_limit_bytes": (memory.total, "Memory there is."),
        }
        for name, (value, text) in readings.items():
            if value is None:
                continue
            family = GaugeMetricFamily(name, text, labels=("host",))
            family.add_metric([self._host], float(value))
            yield family
        if network is not None:
            for direction, count in (
                ("received", network.bytes_recv),
                ("sent", network.bytes_sent),
            ):
                traffic = CounterMetricFamily(
                    f"podscope_host_network_{direction}_bytes",
                    f"Bytes {direction} by all interfaces since boot.",
                    labels=("host",),
                )
                traffic.add_metric([self._host], float(count))
                yield traffic


def _labelled(
    host: str,
    name: str,
    text: str,
    label: str,
    values: Sequence[tuple[DeviceSample, str, float | None]],
) -> Iterator[Metric]:
    family = GaugeMetricFamily(name, text, labels=(*_LABELS, label))
    for sample, extra, value in values:
        if value is not None:
            family.add_metric([host, sample.accelerator, sample.chip, extra], value)
    if family.samples:
        yield family


class TargetGauge(Collector):
    """How many targets there are in each state, as they were found last."""

    def __init__(self, states: Callable[[], Mapping[str, int]]) -> None:
        """Ask `states` at scrape time."""
        self._states = states

    def collect(self) -> Iterable[Metric]:
        """Yield the one series."""
        family = GaugeMetricFamily(
            "podscope_targets", "Profiler servers that this agent knows.", labels=("state",)
        )
        for state, count in self._states().items():
            family.add_metric([state], count)
        yield family


class Spending(Collector):
    """What captures take of the host's time, what of each hour they may, how they slow it down."""

    def __init__(
        self,
        budget_s: Callable[[], float | None],
        spent_s: Callable[[], float],
        overhead_ratio: Callable[[], float | None],
    ) -> None:
        """Ask all three at scrape time; what is None has no series."""
        self._budget_s = budget_s
        self._spent_s = spent_s
        self._overhead_ratio = overhead_ratio

    def collect(self) -> Iterable[Metric]:
        """Yield the series."""
        overhead_ratio = self._overhead_ratio()
        if overhead_ratio is not None:
            yield GaugeMetricFamily(
                "podscope_profiling_overhead_ratio",
                "Share of the last capture's step time that was not there before it.",
                value=overhead_ratio,
            )
        budget_s = self._budget_s()
        if budget_s is not None:
            yield GaugeMetricFamily(
                "podscope_profiling_budget_seconds",
                "Seconds of each hour that captures of this host may record.",
                value=budget_s,
            )
        yield CounterMetricFamily(
            "podscope_profiling_spent_seconds",
            "Windows of the captures of this host.",
            value=self._spent_s(),
        )


class AgentMetrics:
    """The agent's registry: live figures and the count of its captures."""

    def __init__(self, live: LiveFigures) -> None:
        """Register `live` and the agent's own counters; nothing of the process's default set."""
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(live)
        self._captures = Counter(
            "podscope_agent_captures_total",
            "Captures of this host.",
            ["result"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "podscope_agent_capture_duration_seconds",
            "From the request to the merged answer.",
            buckets=_CAPTURE_BUCKETS_S,
            registry=self.registry,
        )

        self._cpu = Counter(
            "podscope_agent_capture_cpu_seconds_total",
            "CPU time that the agent itself spent while it captured.",
            registry=self.registry,
        )
        self._target_seconds = Counter(
            "podscope_agent_capture_target_seconds_total",
            "From the end of the window to the answer of the slowest process.",
            registry=self.registry,
        )
        self._bytes = Counter(
            "podscope_agent_capture_bytes_total",
            "Bytes of the profiles that were captured.",
            registry=self.registry,
        )

    def count_targets(self, states: Callable[[], Mapping[str, int]]) -> None:
        """Export how many targets are in each state."""
        self.registry.register(TargetGauge(states))

    def count_spending(
        self,
        budget_s: Callable[[], float | None],
        spent_s: Callable[[], float],
        overhead_ratio: Callable[[], float | None],
    ) -> None:
        """Export what captures may take, have taken, and slow the job down."""
        self.registry.register(Spending(budget_s, spent_s, overhead_ratio))

    def record(self, ended: CaptureEnd) -> None:
        """Count one capture that ended."""
        self._captures.labels(result=ended.result).inc()
        if ended.result == "refused":
            # It took no time and no bytes; a zero among the durations would say that it did.
            return
        self._seconds.observe(ended.seconds)
        self._target_seconds.inc(ended.target_seconds)
        self._cpu.inc(ended.cpu_seconds)
        self._bytes.inc(ended.size_bytes)
