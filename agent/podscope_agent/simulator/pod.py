"""The simulated pod: its hosts, its program and its timeline."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from podscope_agent.errors import SimulationError
from podscope_agent.simulator.devices import DEVICES, Device
from podscope_agent.simulator.hlo import hlo_proto
from podscope_agent.simulator.input_pipeline import INPUT_STAGES
from podscope_agent.simulator.program import Program, choose_size
from podscope_agent.simulator.timeline import (
    NOISE,
    SLOW_PARTS,
    Load,
    Slowness,
    Timeline,
    standard_normal,
)

EPOCH_NS: Final = 1_767_258_000_000_000_000
"""Start of step 0 when nothing else is said: 2026-01-01 09:00 UTC."""
MAX_HOSTS: Final = 4096
MAX_STEPS: Final = 10_000
MAX_EVENTS: Final = 55_000_000
"""A trace of that many events still fits into one gRPC message."""
MAX_HOST_BYTES: Final = 2_000_000_000
MAX_CLOCK_SKEW_MS: Final = 60_000
MAX_LEAK_BYTES: Final = 1 << 30
UNLIMITED_PERIOD: Final = 64
"""Steps after which the timings repeat when a capture holds as many steps as fit."""

_INFEED_PS: Final = 20_000_000
_GAP_PS: Final = 40_000_000
_LEAD_NS: Final = 1_000_000
# Tells these random numbers from the timeline's.
_CLOCKS: Final = 9


@dataclass(frozen=True)
class Window:
    """What one capture covers.

    Attributes:
        start_ns: Start of the profile, Unix time.
        stop_ns: End of the profile.
        first_step: First step in it.
        step_count: Number of complete steps in it.
    """

    start_ns: int
    stop_ns: int
    first_step: int
    step_count: int

    @property
    def steps(self) -> range:
        """Numbers of the steps."""
        return range(self.first_step, self.first_step + self.step_count)


@dataclass(frozen=True)
class Pod:
    """A pod of equal hosts that train one program in lock step.

    Equal fields give equal bytes, on every machine.

    Attributes:
        device: Name of the device (`DEVICES`).
        hosts: Number of hosts.
        steps: Steps of a capture; 0: as many as fit into the requested duration.
        seed: Chooses the noise.
        events: Approximate number of events per host and capture; None: a small program.
        slow_host: Index of a host that computes slower, or None.
        slow_factor: How much longer its own compute takes; of another part, the same time more.
        slow_part: What is slow on it (`SLOW_PARTS`).
        noise: Relative deviation of a host's times from step to step, 0 to 0.2.
        input_bound: Share of each step spent waiting for input, 0 to below 1.
        started_at_ns: Unix time at which step 0 starts.
        name: First part of the hosts' names.
        host_bytes: Size that each profile is filled up to; None: as it comes.
        clock_skew_ms: By how much the hosts' clocks are off at most, 0 to 60,000.
        input_stage: Which stage of the input pipeline is the slowest: batch, map or read.
        leak_bytes: Memory that each core allocates in every step and never frees.
        counters: Whether devices record hardware counters at the end of every step.
        slices: Slices of TPUs that exchange parameters over the data-centre network; 1: nothing.
    """

    device: str = "tpu-v5e"
    hosts: int = 1
    steps: int = 10
    seed: int = 0
    events: int | None = None
    slow_host: int | None = None
    slow_factor: float = 1.5
    slow_part: str = "compute"
    noise: float = NOISE
    input_bound: float = 0.0
    started_at_ns: int = EPOCH_NS
    name: str = "sim"
    host_bytes: int | None = None
    clock_skew_ms: float = 0.0
    input_stage: str = "read"
    leak_bytes: int = 0
    counters: bool = False
    slices: int = 1

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            msg = f"no device '{self.device}' to simulate; choose one of {', '.join(DEVICES)}"
            raise SimulationError(msg)
        _check("hosts", self.hosts, 1, MAX_HOSTS)
        _check("steps", self.steps, 0, MAX_STEPS)
        if self.events is not None:
            _check("events", self.events, 1, MAX_EVENTS)
        if self.host_bytes is not None:
            _check("host bytes", self.host_bytes, 1, MAX_HOST_BYTES)
        if self.slow_host is not None:
            _check("slow host", self.slow_host, 0, self.hosts - 1)
        if not 1 <= self.slow_factor <= 100:
            msg = f"slow factor {self.slow_factor} is not between 1 and 100"
            raise SimulationError(msg)
        if self.slow_part not in SLOW_PARTS:
            msg = f"no part '{self.slow_part}' to slow down; choose one of {', '.join(SLOW_PARTS)}"
            raise SimulationError(msg)
        if not 0 <= self.noise <= 0.2:
            msg = f"noise {self.noise} is not between 0 and 0.2"
            raise SimulationError(msg)
        if not 0 <= self.input_bound <= 0.95:
            msg = f"input-bound {self.input_bound} is not between 0 and 0.95"
            raise SimulationError(msg)
        if not 0 <= self.clock_skew_ms <= MAX_CLOCK_SKEW_MS:
            msg = f"clock skew {self.clock_skew_ms} ms is not between 0 and {MAX_CLOCK_SKEW_MS}"
            raise SimulationError(msg)
        if self.input_stage not in INPUT_STAGES:
            names = ", ".join(INPUT_STAGES)
            msg = f"no stage '{self.input_stage}' of the input pipeline; choose one of {names}"
            raise SimulationError(msg)
        _check("leak bytes", self.leak_bytes, 0, MAX_LEAK_BYTES)
        _check("slices", self.slices, 1, self.hosts)
        if self.slices > 1 and self.kind.family != "tpu":
            msg = f"slices are of TPUs, not of {self.device}; choose another device"
            raise SimulationError(msg)
        if self.hosts % self.slices:
            msg = f"{self.hosts} hosts do not make {self.slices} equal slices"
            raise SimulationError(msg)

    @property
    def kind(self) -> Device:
        """The device."""
        return DEVICES[self.device]

    def clock_offset_ns(self, host: int) -> int:
        """How far the clock of host ``host`` is ahead of the true time; negative: behind."""
        share = max(-1.0, min(1.0, standard_normal(self.seed, _CLOCKS, host)))
        return round(share * self.clock_skew_ms * 1e6)

    def hostname(self, host: int) -> str:
        """Name that host ``host`` reports."""
        return f"{self.name}-{self.device}-{host:04d}"

    @cached_property
    def program(self) -> Program:
        """What the pod runs."""
        executions = None
        if self.events is not None:
            steps = self.steps or UNLIMITED_PERIOD
            per_op = {"tpu": 1, "gpu": 2, "cpu": 2}[self.kind.family]
            executions = max(1, self.events // (steps * self.kind.cores_per_host * per_op))
        replicas = self.hosts * self.kind.cores_per_host
        return Program(self.kind, choose_size(self.kind, executions), replicas, self.slices)

    @cached_property
    def timeline(self) -> Timeline:
        """When things happen."""
        program = self.program
        compute_ps = program.compute_ps
        slow = 1.0 if self.slow_host is None else self.slow_factor
        collective = tuple(op.weight_ps for op in program.collectives)
        update_ps = sum(op.weight_ps for op in program.epilogue)
        # A GPU's step is known only by its kernels, so it ends with the last of them.
        tail_ps = 0 if self.kind.family == "gpu" else compute_ps // 100
        busy = compute_ps * slow + sum(collective) + update_ps + tail_ps
        waited = round(busy * self.input_bound / (1 - self.input_bound))
        load = Load(
            compute_ps=compute_ps,
            input_ps=max(_INFEED_PS, waited),
            collective_ps=collective,
            update_ps=update_ps,
            tail_ps=tail_ps,
            gap_ps=_GAP_PS,
        )
        return Timeline(
            self.seed,
            self.hosts,
            self.kind.cores_per_host,
            load,
            self.steps or UNLIMITED_PERIOD,
            Slowness(self.slow_host, self.slow_factor, self.slow_part),
            self.noise,
        )

    @cached_property
    def hlo(self) -> bytes:
        """The serialised HLO proto of the program."""
        return hlo_proto(self.program).SerializeToString(deterministic=True)

    def step_start_ns(self, step: int) -> int:
        """Unix time at which a step starts, rounded down."""
        return self.started_at_ns + self.timeline.start_ps(step) // 1000

    def steps_window(self, first_step: int = 0, steps: int | None = None) -> Window:
        """A window that holds ``steps`` steps from ``first_step`` on, with a little around them."""
        count = (self.steps or UNLIMITED_PERIOD) if steps is None else steps
        return Window(
            start_ns=self.step_start_ns(first_step) - _LEAD_NS,
            stop_ns=self.step_start_ns(first_step + count) + _LEAD_NS,
            first_step=first_step,
            step_count=count,
        )

    def window(self, start_ns: int, stop_ns: int) -> Window:
        """The window of a capture from ``start_ns`` to ``stop_ns``.

        It holds exactly `steps` steps, the first that start in it, and ends later than asked for
        if they do; with ``steps`` 0 it holds the steps that are complete in it.
        """
        timeline = self.timeline
        since_start_ps = (start_ns + _LEAD_NS - self.started_at_ns) * 1000
        first = timeline.step_at(since_start_ps)
        if self.steps:
            last_ns = self.step_start_ns(first + self.steps) + _LEAD_NS
            return Window(start_ns, max(stop_ns, last_ns), first, self.steps)
        after = timeline.step_at((stop_ns - self.started_at_ns) * 1000 + 1)
        # `after` starts past the window, so the step before it is the first that is cut off.
        count = max(0, after - 1 - first)
        # A tracer's buffers are finite too: a capture of hours holds its beginning.
        return Window(start_ns, stop_ns, first, min(count, MAX_STEPS))

    def truncated(self, window: Window, stop_ns: int) -> Window:
        """The same window, ended early: only the steps that were complete by then."""
        after = self.timeline.step_at((stop_ns - self.started_at_ns) * 1000 + 1)
        count = max(0, min(window.step_count, after - 1 - window.first_step))
        return Window(window.start_ns, stop_ns, window.first_step, count)


def _check(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        msg = f"{what} {value} is out of range; give {low} to {high}"
        raise SimulationError(msg)
