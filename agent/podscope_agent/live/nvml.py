"""NVIDIA figures from NVML."""

from typing import Any, Final

from podscope_agent.live.model import BackendError, DeviceSample

_MILLI: Final = 1000


class NvmlBackend:
    """Reads every GPU that the driver shows."""

    name = "nvml"

    def __init__(self, nvml: Any) -> None:
        """Use `nvml`, the module ``pynvml`` or one that answers like it."""
        self._nvml = nvml
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
        """Return the figures of every GPU; what a GPU does not support stays None.

        Raises:
            BackendError: the driver went away.
        """
        try:
            count = self._nvml.nvmlDeviceGetCount()
            return [self._device(index) for index in range(count)]
        except self._nvml.NVMLError as error:
            msg = f"NVML: {error}"
            raise BackendError(msg) from error

    def _device(self, index: int) -> DeviceSample:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        utilization = self._read("nvmlDeviceGetUtilizationRates", handle)
        memory = self._read("nvmlDeviceGetMemoryInfo", handle)
        power = self._read("nvmlDeviceGetPowerUsage", handle)
        temperature = self._read(
            "nvmlDeviceGetTemperature", handle, self._nvml.NVML_TEMPERATURE_GPU
        )
        model = self._read("nvmlDeviceGetName", handle)
        return DeviceSample(
            accelerator="gpu",
            chip=str(index),
            model=model.decode() if isinstance(model, bytes) else model or "",
            duty_cycle_ratio=None if utilization is None else utilization.gpu / 100,
            memory_used_bytes=None if memory is None else int(memory.used),
            memory_limit_bytes=None if memory is None else int(memory.total),
            power_watts=None if power is None else power / _MILLI,
            temperature_celsius=None if temperature is None else float(temperature),
        )

    def _read(self, name: str, *arguments: Any) -> Any:
        """Call one query; a MIG instance or a missing permission makes it None."""
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError as error:
            gone = getattr(self._nvml, "NVML_ERROR_GPU_IS_LOST", None)
            if gone is not None and getattr(error, "value", None) == gone:
                raise
            return None
