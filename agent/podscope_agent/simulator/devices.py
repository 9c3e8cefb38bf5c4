"""The accelerators that can be simulated, with the figures that their tracers report."""

from dataclasses import dataclass
from typing import Final, Literal

Family = Literal["tpu", "gpu", "cpu"]


@dataclass(frozen=True)
class Device:
    """One kind of accelerator.

    Attributes:
        name: What ``--device`` takes.
        family: Which tracer's planes it has.
        cores_per_host: Chips of a host that the job uses (threads' pools for a CPU: one).
        type_string: ``device_type_string`` of a TPU plane.
        peak_tflops: Peak of the matrix unit at 16 bits, TFLOP/s.
        memory_gbps: Bandwidth of the main memory, GB/s.
        memory_bytes: Its size.
        link_gbps: Bandwidth that an all-reduce reaches per chip, GB/s.
        hidden: Width of the simulated model that suits the device.
        vmem_read_gbps: Bandwidth of the on-chip memory, reading, GB/s (TPU).
        vmem_write_gbps: The same, writing.
        compute_units: Streaming multiprocessors (GPU).
        clock_khz: Their clock (GPU).
        capability: Compute capability (GPU).
    """

    name: str
    family: Family
    cores_per_host: int
    type_string: str
    peak_tflops: float
    memory_gbps: float
    memory_bytes: int
    link_gbps: float
    hidden: int
    vmem_read_gbps: float = 0.0
    vmem_write_gbps: float = 0.0
    compute_units: int = 0
    clock_khz: int = 0
    capability: tuple[int, int] = (0, 0)


# HBM peaks are written as the TPU runtime writes them: GiB/s turned into GB/s. The on-chip
# bandwidths of the v5e are scaled from the v6e's by the ratio of their matrix peaks.
DEVICES: Final[dict[str, Device]] = {
    device.name: device
    for device in (
        Device("tpu-v5e", "tpu", 4, "TPU v5 Lite", 197.0, 819.0, 17_179_869_184, 90.0, 1024,
               4_999.36, 3_461.09),
        Device("tpu-v6e", "tpu", 4, "TPU v6 Lite", 918.0, 1637.993152512, 34_359_738_368, 180.0,
               1024, 23_296.0099876864, 16_128.031693209601),
        Device("gpu-h100", "gpu", 8, "", 989.0, 3_352.32, 85_027_979_264, 350.0, 1024,
               compute_units=132, clock_khz=1_980_000, capability=(9, 0)),
        Device("cpu", "cpu", 1, "", 1.0, 80.0, 68_719_476_736, 4.0, 256),
    )
}  # fmt: skip
