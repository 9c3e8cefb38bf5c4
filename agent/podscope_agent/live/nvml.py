"""NVIDIA figures from NVML."""

import time
from typing import Any, Final

from podscope_agent.live.model import BackendError, DeviceSample
from podscope_agent.live.peaks import peak_flops_per_second

_MILLI: Final = 1000
_GPM_APART_S: Final = 0.1
"""NVML's counters need two readings at least this far apart."""
_TENSOR_UTIL, _MEMORY_BANDWIDTH_UTIL = 5, 10


class NvmlBackend:
    """Reads every GPU that the driver shows, and the instances of those that are partitioned."""

    name = "nvml"

    def __init__(self, nvml: Any) -> None:
        """Use `nvml`, the module ``pynvml`` or one that answers like it."""
        self._nvml = nvml
        # The reading before this one of each GPU's counters, and when it was taken.
        self._counters: dict[int, tuple[float, Any]] = {}
        nvml.nvmlInit()

    @classmethod
    def load(cls) -> "NvmlBackend | None":
        """Return a backend, or None when this host has no NVIDIA driver."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            return cls(pynvml)
        except pynvml.NVMLError:
            return None

    def sample(self) -> list[DeviceSample]:
        """Return the figures of every GPU; what a GPU does not support or allow stays None.

        Raises:
            BackendError: the driver went away.
        """
        try:
            count = self._nvml.nvmlDeviceGetCount()
            found = []
            for index in range(count):
                handle = self._read("nvmlDeviceGetHandleByIndex", index)
                if handle is not None:
                    found += self._devices(index, handle)
        except self._nvml.NVMLError as error:
            msg = f"NVML: {error}"
            raise BackendError(msg) from error
        return found

    def _devices(self, index: int, handle: Any) -> list[DeviceSample]:
        utilization = self._read("nvmlDeviceGetUtilizationRates", handle)
        memory = self._read("nvmlDeviceGetMemoryInfo", handle)
        power = self._read("nvmlDeviceGetPowerUsage", handle)
        energy = self._read("nvmlDeviceGetTotalEnergyConsumption", handle)
        temperature = self._read(
            "nvmlDeviceGetTemperature", handle, self._nvml.NVML_TEMPERATURE_GPU
        )
        model = self._read("nvmlDeviceGetName", handle)
        name = model.decode() if isinstance(model, bytes) else model or ""
        mode = self._read("nvmlDeviceGetMigMode", handle)
        is_partitioned = bool(mode and mode[0])
        ratios = {} if is_partitioned else self._counter_ratios(index, handle)
        tensor = ratios.get(_TENSOR_UTIL)
        peak = peak_flops_per_second(name)
        whole = DeviceSample(
            accelerator="gpu",
            chip=str(index),
            model=name,
            duty_cycle_ratio=None if utilization is None else utilization.gpu / 100,
            matrix_unit_active_ratio=tensor,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_limit_bytes=None if memory is None else int(memory.total),
            memory_bandwidth_utilization_ratio=ratios.get(_MEMORY_BANDWIDTH_UTIL),
            power_watts=None if power is None else power / _MILLI,
            energy_joules=None if energy is None else energy / _MILLI,
            temperature_celsius=None if temperature is None else float(temperature),
            # The share of time that the tensor cores were busy at all: an upper estimate.
            flops_per_second=None if tensor is None or peak is None else tensor * peak,
            flops_source="" if tensor is None else "estimated",
            peak_flops_per_second=peak,
        )
        return [whole, *(self._instances(index, handle, name) if is_partitioned else [])]

    def _instances(self, index: int, handle: Any, model: str) -> list[DeviceSample]:
        """The memory of each MIG instance: all that NVML tells of one without privileges."""
        found = []
        for number in range(self._read("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = self._read("nvmlDeviceGetMigDeviceHandleByIndex", handle, number)
            if instance is None:
                continue
            memory = self._read("nvmlDeviceGetMemoryInfo", instance)
            found.append(
                DeviceSample(
                    accelerator="gpu",
                    chip=f"{index}/{number}",
                    model=f"{model} MIG",
                    memory_used_bytes=None if memory is None else int(memory.used),
                    memory_limit_bytes=None if memory is None else int(memory.total),
                )
            )
        return found

    def _counter_ratios(self, index: int, handle: Any) -> dict[int, float]:
        """Hardware counters since the last reading, 0-1; none before Hopper."""
        support = self._read("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return {}
        before = self._counters.get(index)
        if before is not None and time.monotonic() - before[0] < _GPM_APART_S:
            return {}
        now = self._read("nvmlGpmSampleAlloc")
        if now is None:
            return {}
        if self._read("nvmlGpmSampleGet", handle, now) is None:
            self._read("nvmlGpmSampleFree", now)
            return {}
        self._counters[index] = (time.monotonic(), now)
        if before is None:
            return {}
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        asked.sample1, asked.sample2 = before[1], now
        wanted = (_TENSOR_UTIL, _MEMORY_BANDWIDTH_UTIL)
        asked.numMetrics = len(wanted)
        for place, metric in enumerate(wanted):
            asked.metrics[place].metricId = metric
        answer = self._read("nvmlGpmMetricsGet", asked)
        self._read("nvmlGpmSampleFree", before[1])
        if answer is None:
            return {}
        found = [answer.metrics[place] for place in range(len(wanted))]
        return {each.metricId: each.value / 100 for each in found if each.nvmlReturn == 0}

    def _read(self, name: str, *arguments: Any) -> Any:
        """Call one query; a MIG instance, a missing permission or an old library makes it None."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except AttributeError:
            return None
        except self._nvml.NVMLError as error:
            gone = getattr(self._nvml, "NVML_ERROR_GPU_IS_LOST", None)
            if gone is not None and getattr(error, "value", None) == gone:
                raise
            return None
