"""When each host of the pod computes, waits for input and waits for the others.

The pod is synchronous: a step's all-reduce starts for all when the slowest has arrived. The
timings repeat with a period, so that any ``period`` steps in a row are a rotation of one table
and a truth written once holds for every capture.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_MASK64: Final = 2**64 - 1

NOISE: Final = 0.02
"""Relative deviation of a host's compute and input time from step to step, if none is asked for."""
CORE_NOISE: Final = 0.003
"""Relative deviation of one core's compute time from its host's."""


def standard_normal(seed: int, *keys: int) -> float:
    """A deterministic number, about normally distributed with mean 0 and variance 1.

    Own arithmetic (splitmix64) rather than `random`, so that no Python release changes a byte.
    """
    state = seed & _MASK64
    for key in keys:
        state = _mix(state ^ (key + 0x9E3779B97F4A7C15 & _MASK64))
    total = 0.0
    for _ in range(3):
        state = _mix(state)
        total += (state >> 11) / (1 << 53)
    return (total - 1.5) * 2


def _mix(value: int) -> int:
    value = value + 0x9E3779B97F4A7C15 & _MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK64
    return value ^ value >> 31


@dataclass(frozen=True)
class Load:
    """What one step costs, before noise; all in picoseconds.

    Attributes:
        compute_ps: Own compute time of a core.
        input_ps: Wait for input.
        collective_ps: Transfer time of each all-reduce.
        update_ps: Time of the optimizer.
        tail_ps: Idle time at the end of the step.
        gap_ps: Time between two steps.
    """

    compute_ps: int
    input_ps: int
    collective_ps: tuple[int, ...]
    update_ps: int
    tail_ps: int
    gap_ps: int


@dataclass(frozen=True)
class StepTiming:
    """One step of the pod; times in picoseconds after the step's start.

    Attributes:
        input_ps: Wait for input by host.
        delay_ps: Time by host in which its devices wait for the host itself, after the input.
        compute_ps: Own compute time by host and core.
        collective_end_ps: End of each all-reduce, the same for all.
        update_end_ps: End of the optimizer.
        end_ps: End of the step.
        period_ps: From this step's start to the next one's.
    """

    input_ps: tuple[int, ...]
    compute_ps: tuple[tuple[int, ...], ...]
    collective_end_ps: tuple[int, ...]
    update_end_ps: int
    end_ps: int
    period_ps: int
    delay_ps: tuple[int, ...]

    def launch_ps(self, host: int) -> int:
        """When a host's devices begin to compute."""
        return self.input_ps[host] + self.delay_ps[host]


@dataclass(frozen=True)
class Slowness:
    """What is slow on one host.

    Attributes:
        host: Which one; None for none.
        factor: How much longer its part takes, as a share of the compute time.
        part: ``compute`` of all its cores, of one ``core``, ``input``, or the ``host`` itself.
    """

    host: int | None = None
    factor: float = 1.0
    part: str = "compute"


LEAST_INPUT_PS: Final = 18_000_000
"""A host that waits less has no time to show that it fed its devices."""
SLOW_PARTS: Final = ("compute", "core", "input", "host")
SLOW_CORE: Final = 1
"""The core that is slow where one is; the only one of a host that has no other."""


class Timeline:
    """The steps of a pod, endlessly.

    Args:
        seed: Chooses the noise.
        hosts: Number of hosts.
        cores: Cores of a host.
        load: What a step costs.
        period: Steps after which the timings repeat.
        slow: What is slow on one of them.
        noise: Relative deviation of a host's times from step to step.
    """

    def __init__(
        self,
        seed: int,
        hosts: int,
        cores: int,
        load: Load,
        period: int,
        slow: Slowness,
        noise: float = NOISE,
    ) -> None:
        self.period = period
        self._seed = seed
        self._hosts = hosts
        self._cores = cores
        self._load = load
        self._slow = slow
        self._noise = noise

    @cached_property
    def steps(self) -> tuple[StepTiming, ...]:
        """The timings of one period; step k has those of ``k % period``."""
        return tuple(self._timing(index) for index in range(self.period))

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        for step in self.steps:
            starts.append(starts[-1] + step.period_ps)
        return starts

    def timing(self, step: int) -> StepTiming:
        """The timing of step ``step``."""
        return self.steps[step % self.period]

    def start_ps(self, step: int) -> int:
        """Start of a step, picoseconds after the start of step 0."""
        rounds, index = divmod(step, self.period)
        return rounds * self._starts[-1] + self._starts[index]

    def step_at(self, time_ps: int) -> int:
        """The first step that starts at ``time_ps`` or later."""
        rounds, rest = divmod(time_ps, self._starts[-1])
        index = bisect_right(self._starts, rest - 1)
        return rounds * self.period + index

    def _timing(self, index: int) -> StepTiming:
        load, seed, noise, slow = self._load, self._seed, self._noise, self._slow
        inputs, computes, delays = [], [], []
        arrival = 0
        for host in range(self._hosts):
            own = max(0.0, 1 + noise * standard_normal(seed, 1, index, host))
            part = slow.part if host == slow.host else ""
            # What is late takes longer by this share of the compute time, whatever it is.
            extra = load.compute_ps * (slow.factor - 1) * own
            slow_core = min(SLOW_CORE, self._cores - 1)
            compute = tuple(
                round(
                    load.compute_ps
                    * (
                        own * slow.factor
                        if part == "compute" or (part == "core" and core == slow_core)
                        else own
                    )
                    * (1 + CORE_NOISE * standard_normal(seed, 2, index, host, core))
                )
                for core in range(self._cores)
            )
            waiting = max(0.0, 1 + noise * standard_normal(seed, 3, index, host))
            waited = max(round(load.input_ps * waiting), min(load.input_ps, LEAST_INPUT_PS))
            if part == "input":
                waited += round(extra)
            delays.append(round(extra) if part == "host" else 0)
            inputs.append(waited)
            computes.append(compute)
            arrival = max(arrival, waited + delays[-1] + max(compute))
        ends = []
        clock = arrival
        for number, transfer in enumerate(load.collective_ps):
            jitter = max(0.0, 1 + noise * standard_normal(seed, 4, index, number))
            clock += round(transfer * jitter)
            ends.append(clock)
        update_end = clock + load.update_ps
        end = update_end + load.tail_ps
        return StepTiming(
            input_ps=tuple(inputs),
            compute_ps=tuple(computes),
            collective_end_ps=tuple(ends),
            update_end_ps=update_end,
            end_ps=end,
            period_ps=end + load.gap_ps,
            delay_ps=tuple(delays),
        )
