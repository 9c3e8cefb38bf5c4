"""What a backend reports."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class DeviceSample:
    """Figures of one chip at one moment; None for what the source does not tell.

    Ratios are 0 to 1, memory is in bytes, power in watts, temperature in degrees Celsius.
    ``flops_source`` tells where the FLOP/s are from: ``estimated`` (from counters) or ``profile``.
    """

    accelerator: str
    chip: str
    model: str = ""
    duty_cycle_ratio: float | None = None
    matrix_unit_active_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_bandwidth_utilization_ratio: float | None = None
    power_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    flops_per_second: float | None = None
    flops_source: str = ""
    peak_flops_per_second: float | None = None
    step_time_seconds: float | None = None


@dataclass(frozen=True)
class CaptureEnd:
    """A capture that ended.

    Attributes:
        result: ``done``, ``empty``, ``failed``, ``refused`` or ``cancelled``.
        seconds: From the request to the merged profile.
        cpu_seconds: Of the agent itself in that time.
        size_bytes: Of the merged profile.
        target_seconds: From the end of the window to the answer of the slowest process: it
            collects what it recorded, and may stand still meanwhile.
    """

    result: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    size_bytes: int = 0
    target_seconds: float = 0.0


class DeviceBackend(Protocol):
    """A source of device figures."""

    @property
    def name(self) -> str:
        """Which source this is: ``tpu`` or ``nvml``."""

    def sample(self) -> list[DeviceSample]:
        """Return the figures of every chip; empty when no workload or device is there.

        Raises:
            BackendError: the source is there and does not answer as it should.
        """


class BackendError(Exception):
    """A source of figures failed; the others are not touched by it."""
