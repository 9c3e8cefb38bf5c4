"""Peak rates of devices, as a roofline needs them.

TPUs tell theirs; those of GPUs follow from clock, cores and operations per clock.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from podscope_analyzers.xspace import StatValue

# Largest of vector and matrix flops per clock and core, fp32 and fp16, by compute capability.
_NVIDIA_FLOPS: Final = (
    (2000, 64),
    (3000, 384),
    (5000, 256),
    (6000, 256),
    (6010, 256),
    (7000, 1024),
    (7050, 1024),
    (8000, 2048),
    (8060, 1024),
    (8090, 1024),
    (9000, 4096),
    (10000, 8192),
)
# Flops, and bytes of local memory, per clock and compute unit.
_AMD: Final = {
    "gfx908": (1024, 128),
    "gfx90a": (1024, 128),
    "gfx942": (2048, 128),
    "gfx950": (4096, 256),
}
_AMD_BY_CAPABILITY: Final = {(9, 4): "gfx942", (9, 5): "gfx950"}
_GFX: Final = re.compile(r"gfx[0-9a-fA-F]{3,}")
_AMD_SERIES: Final = {9: "gfx-9XX", 10: "gfx-10XX", 11: "gfx-11XX"}

HBM, SRAM_READ, SRAM_WRITE, CMEM_READ, CMEM_WRITE, VMEM_READ, VMEM_WRITE = range(7)
_TPU_BANDWIDTHS: Final = (
    "peak_hbm_bw_gigabytes_per_second",
    "peak_sram_rd_bw_gigabytes_per_second",
    "peak_sram_wr_bw_gigabytes_per_second",
    "peak_cmem_rd_bw_gigabytes_per_second",
    "peak_cmem_wr_bw_gigabytes_per_second",
    "peak_vmem_rd_bw_gigabytes_per_second",
    "peak_vmem_wr_bw_gigabytes_per_second",
)


@dataclass(frozen=True)
class GpuCapabilities:
    """What a GPU plane says of its device.

    Attributes:
        clock_ghz: Clock of the cores.
        core_count: Multiprocessors or compute units.
        memory_bandwidth: Bytes per second.
    """

    vendor: str = ""
    device_name: str = ""
    clock_ghz: float = 0.0
    core_count: int = 0
    memory_bandwidth: float = 0.0
    major: int = 0
    minor: int = 0

    @classmethod
    def of(cls, stats: Mapping[str, StatValue]) -> "GpuCapabilities":
        """Capabilities from a plane's stats; what is missing is 0."""
        return cls(
            vendor=_text(stats, "device_vendor"),
            device_name=_text(stats, "gpu_device_name"),
            clock_ghz=_number(stats, "clock_rate") / 1e6,
            core_count=int(_number(stats, "core_count")),
            memory_bandwidth=_number(stats, "memory_bandwidth"),
            major=int(_number(stats, "compute_cap_major")),
            minor=int(_number(stats, "compute_cap_minor")),
        )

    @property
    def amd_architecture(self) -> str:
        """``gfx942`` and the like; empty when it is unknown or no AMD device."""
        if self.vendor != "AMD":
            return ""
        if _GFX.fullmatch(self.device_name):
            return self.device_name
        return _AMD_BY_CAPABILITY.get((self.major, self.minor), "")

    @property
    def giga_flops_per_core(self) -> float:
        """Peak GFLOP/s of one core; 0 for an unknown device."""
        if self.vendor == "Nvidia":
            wanted = self.major * 1000 + self.minor * 10
            flops = _NVIDIA_FLOPS[0][1]
            for capability, per_clock in _NVIDIA_FLOPS:
                if capability <= wanted:
                    flops = per_clock
            return self.clock_ghz * flops
        return self.clock_ghz * _AMD.get(self.amd_architecture, (0, 0))[0]

    @property
    def local_gigabytes_per_second_per_core(self) -> float:
        """Peak bandwidth of one core's local memory; 0 for an unknown device."""
        if self.vendor == "Nvidia":
            return self.clock_ghz * (64 if self.major <= 2 else 256)
        return self.clock_ghz * _AMD.get(self.amd_architecture, (0, 0))[1]

    @property
    def model(self) -> str:
        """Family of the device, ``GPU`` when its maker is unknown."""
        if self.vendor == "Nvidia":
            family = _nvidia_family(self.major, self.minor)
            return f"Nvidia GPU ({family})" if family else "Nvidia GPU"
        if self.vendor == "AMD":
            architecture = self.amd_architecture
            if architecture:
                return f"AMD GPU - {architecture}"
            series = _AMD_SERIES.get(self.major, "")
            return f"AMD GPU - {series} series" if series else "AMD GPU"
        return "GPU"


@dataclass(frozen=True)
class PerfEnv:
    """Peak rates of one device.

    Attributes:
        peak_tera_flops_per_second: 0 when unknown.
        peak_gigabytes_per_second: By memory: HBM, SRAM read and write, then for TPUs CMEM read
            and write, VMEM read and write.
    """

    peak_tera_flops_per_second: float = 0.0
    peak_gigabytes_per_second: tuple[float, ...] = ()
    has_cmem: bool = False
    has_merged_vmem: bool = False
    has_megacore: bool = False

    def bandwidth(self, memory: int) -> float:
        """GB/s of a memory; 0 when it is unknown."""
        peaks = self.peak_gigabytes_per_second
        return peaks[memory] if memory < len(peaks) else 0.0

    @property
    def ridge_point(self) -> float | None:
        """FLOP per byte from which on compute is the limit; None when unknown."""
        hbm = self.bandwidth(HBM)
        return self.peak_tera_flops_per_second * 1000 / hbm if hbm else None

    def to_state(self) -> dict[str, Any]:
        """The peaks as plain values."""
        return {
            "peak_tera_flops_per_second": self.peak_tera_flops_per_second,
            "peak_gigabytes_per_second": list(self.peak_gigabytes_per_second),
            "has_cmem": self.has_cmem,
            "has_merged_vmem": self.has_merged_vmem,
            "has_megacore": self.has_megacore,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "PerfEnv":
        """The peaks that ``to_state`` wrote."""
        return cls(
            float(state["peak_tera_flops_per_second"]),
            tuple(float(peak) for peak in state["peak_gigabytes_per_second"]),
            bool(state["has_cmem"]),
            bool(state["has_merged_vmem"]),
            bool(state["has_megacore"]),
        )

    @classmethod
    def combine(cls, parts: Iterable["PerfEnv"]) -> "PerfEnv":
        """Peaks of several hosts: the last that are known, the first bandwidths."""
        combined = cls()
        for part in parts:
            combined = cls(
                part.peak_tera_flops_per_second
                if part.peak_tera_flops_per_second > 0
                else combined.peak_tera_flops_per_second,
                combined.peak_gigabytes_per_second or part.peak_gigabytes_per_second,
                combined.has_cmem or part.has_cmem,
                combined.has_merged_vmem or part.has_merged_vmem,
                combined.has_megacore or part.has_megacore,
            )
        return combined


def tpu_peaks(stats: Mapping[str, StatValue]) -> PerfEnv:
    """Peaks of a TPU, all from the stats of its plane."""
    bandwidths = tuple(_number(stats, name) for name in _TPU_BANDWIDTHS)
    return PerfEnv(
        _number(stats, "peak_teraflops_per_second"),
        bandwidths,
        has_cmem=bandwidths[CMEM_READ] > 0 or bandwidths[CMEM_WRITE] > 0,
        has_merged_vmem=bool(_number(stats, "has_merged_vmem")),
        has_megacore=bool(_number(stats, "has_megacore")),
    )


def gpu_peaks(stats: Mapping[str, StatValue]) -> PerfEnv:
    """Peaks of a GPU: those among its plane's stats, else by its capabilities."""
    gpu = GpuCapabilities.of(stats)
    flops = _number(stats, "peak_teraflops_per_second")
    local = gpu.core_count * gpu.local_gigabytes_per_second_per_core
    return PerfEnv(
        flops if flops > 0 else gpu.core_count * gpu.giga_flops_per_core / 1000,
        (
            gpu.memory_bandwidth / 1e9,
            _positive(stats, _TPU_BANDWIDTHS[SRAM_READ], local),
            _positive(stats, _TPU_BANDWIDTHS[SRAM_WRITE], local),
        ),
    )


def _positive(stats: Mapping[str, StatValue], name: str, otherwise: float) -> float:
    value = _number(stats, name)
    return value if value > 0 else otherwise


def _number(stats: Mapping[str, StatValue], name: str) -> float:
    value = stats.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _text(stats: Mapping[str, StatValue], name: str) -> str:
    value = stats.get(name)
    return value if isinstance(value, str) else ""


def _nvidia_family(major: int, minor: int) -> str:
    if major == 7:
        return "Volta" if minor < 5 else "Turing"
    if major == 8:
        return "Ampere" if minor < 9 else "Ada Lovelace"
    if major == 10:
        return "Blackwell" if minor < 7 else "Rubin"
    families = {2: "Fermi", 3: "Kepler", 5: "Maxwell", 6: "Pascal", 9: "Hopper"}
    return families.get(major, "")
