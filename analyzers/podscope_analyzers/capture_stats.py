"""What a tool works on: the stats of all the hosts of a capture, combined."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class HostRow:
    """One host of the capture.

    Attributes:
        index: Its place in name order; its core ids are ``1000 * index`` plus the local ones.
        host: Its name in the capture, which is its file's name. It is the identity: containers
            of one machine, and processes of one test, share a hostname.
        hostname: What the XSpace says, ``localhost`` when it says nothing.
        has_device: Whether it has accelerators; a host without any beside hosts with some is a
            coordinator.
    """

    index: int
    host: str
    hostname: str
    has_device: bool


@dataclass(frozen=True)
class Diagnostics:
    """What the profiler said about the capture, without repetitions."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class CaptureStats:
    """The combined stats of a capture's hosts.

    Attributes:
        hosts: In name order.
        host_ops: Operations on the hosts' threads, summed over hosts.
        device_ops: Operations on the devices, summed over devices and hosts.
        steps: Steps that every host has, cores of all hosts side by side.
        kernels: GPU kernels, host after host.
        run_environment: Device type, cores, tasks, whether it trains.
        perf_env: Peak rates of the devices.
        diagnostics: Errors and warnings of the profilers.
    """

    hosts: tuple[HostRow, ...]
    host_ops: Any
    device_ops: Any
    steps: Any
    kernels: Any
    run_environment: Any
    perf_env: Any
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
