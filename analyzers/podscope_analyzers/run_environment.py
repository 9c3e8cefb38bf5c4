"""Where a capture ran: kind and number of devices, hosts, tasks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

HardwareType = Literal["UNKNOWN_HARDWARE", "CPU_ONLY", "GPU", "TPU"]

LOCALHOST: Final = "localhost"
CPU: Final = "CPU"
# In this order, the largest wins when hosts are combined.
_HARDWARE: Final[tuple[HardwareType, ...]] = ("UNKNOWN_HARDWARE", "CPU_ONLY", "GPU", "TPU")
# Types of hosts that say nothing about the accelerators of the job.
_NO_DEVICE_TYPES: Final = frozenset({CPU, "Device", ""})


def hardware_type(device_type: str) -> HardwareType:
    """The kind of hardware that a device type names."""
    if "GPU" in device_type:
        return "GPU"
    if device_type == CPU:
        return "CPU_ONLY"
    return "TPU" if "TPU" in device_type else "UNKNOWN_HARDWARE"


@dataclass(frozen=True)
class RunEnvironment:
    """Where one host, or all of them, ran.

    Attributes:
        device_type: ``TPU v6 Lite``, ``Nvidia GPU (Hopper)``, ``CPU``; empty when nothing ran.
        hostnames: As the XSpaces say, sorted, each once.
        task_count: Profiled processes.
        device_core_count: TensorCores or GPUs.
        is_training: Whether any program computes gradients.
        mxu_utilization_percent: Sum over the hosts of what the tracers measured.
        hbm_utilization_percent: Likewise.
        mxu_counters: Hosts that measured it.
        hbm_counters: Likewise.
        part_count: Hosts that this is of.
        profile_duration_ps: How long the longest of the sessions was; 0 where none says it.
        decode_step_count: Tokens' steps of a server that generates text, summed over hosts.
        decode_time_ps: What they took on a device together.
    """

    device_type: str
    hardware_type: HardwareType
    hostnames: tuple[str, ...]
    task_count: int
    device_core_count: int
    is_training: bool
    mxu_utilization_percent: float = 0.0
    hbm_utilization_percent: float = 0.0
    mxu_counters: int = 0
    hbm_counters: int = 0
    part_count: int = 1
    profile_duration_ps: int = 0
    decode_step_count: int = 0
    decode_time_ps: int = 0

    @property
    def mxu_utilization_ratio(self) -> float | None:
        """Mean over the hosts that measured it."""
        return self.mxu_utilization_percent / 100 / self.mxu_counters if self.mxu_counters else None

    @property
    def hbm_utilization_ratio(self) -> float | None:
        """Mean over the hosts that measured it."""
        return self.hbm_utilization_percent / 100 / self.hbm_counters if self.hbm_counters else None

    @property
    def mean_decode_step_ps(self) -> float | None:
        """Over all steps of all hosts; None without any."""
        return self.decode_time_ps / self.decode_step_count if self.decode_step_count else None

    @property
    def reference_mxu_percent(self) -> float:
        """Mean over all hosts as the reference has it, for which not measured is 0."""
        return self.mxu_utilization_percent / self.part_count

    @property
    def reference_hbm_percent(self) -> float:
        """Likewise."""
        return self.hbm_utilization_percent / self.part_count

    @property
    def host_count(self) -> int:
        """Machines, by their names; processes of one machine count once."""
        return len(self.hostnames)

    @property
    def task_text(self) -> str:
        """Tasks, and tasks per host when both are known."""
        if self.task_count <= 0 or self.host_count <= 0:
            return str(self.task_count)
        per_host = self.task_count // self.host_count
        return f"{self.task_count} (num tasks per host = {per_host})"

    @classmethod
    def combine(cls, hosts: Iterable["RunEnvironment"]) -> "RunEnvironment":
        """One environment of several hosts, in name order."""
        parts = list(hosts)
        if not parts:
            return cls("", "UNKNOWN_HARDWARE", (), 0, 0, is_training=False)
        if len(parts) == 1:
            return parts[0]
        told = [part.device_type for part in parts]
        typed = [kind for kind in told if kind not in _NO_DEVICE_TYPES]
        # Of hosts whose TPUs have no type the reference has none either, unless the last is a CPU.
        device_type = typed[-1] if typed else CPU if told[-1] else ""
        return cls(
            device_type=device_type,
            hardware_type=max((p.hardware_type for p in parts), key=_HARDWARE.index),
            hostnames=tuple(sorted({name for part in parts for name in part.hostnames})),
            task_count=sum(part.task_count for part in parts),
            device_core_count=sum(part.device_core_count for part in parts),
            is_training=parts[-1].is_training,
            mxu_utilization_percent=sum(part.mxu_utilization_percent for part in parts),
            hbm_utilization_percent=sum(part.hbm_utilization_percent for part in parts),
            mxu_counters=sum(part.mxu_counters for part in parts),
            hbm_counters=sum(part.hbm_counters for part in parts),
            part_count=sum(part.part_count for part in parts),
            profile_duration_ps=max(part.profile_duration_ps for part in parts),
            decode_step_count=sum(part.decode_step_count for part in parts),
            decode_time_ps=sum(part.decode_time_ps for part in parts),
        )

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {**vars(self), "hostnames": list(self.hostnames)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "RunEnvironment":
        """The environment that ``to_state`` described."""
        return cls(**{**state, "hostnames": tuple(state["hostnames"])})
