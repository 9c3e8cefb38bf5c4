"""What a backend reports."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class DeviceSample:
    """Figures of one chip at one moment; None for what the source does not tell.

    Ratios are 0 to 1, memory is in bytes, power in watts, temperature in degrees Celsius.
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
    temperature_celsius: float | None = None


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
