"""Small facts of one host that advice rests on, taken while its events are at hand.

Compilations while steps ran, functions traced again, how full the allocators were, events of
barriers and debug prints on the devices, and what says that clocks or power were throttled.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.allocations import Allocations
from podscope_analyzers.allocator_profile import AllocatorProfile
from podscope_analyzers.intervals import union
from podscope_analyzers.kernels import natural_order, nest
from podscope_analyzers.planes import HOST_PLANE, is_device_plane, is_sparse_core, is_tensor_core
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, PreparedSpace
from podscope_analyzers.steps import StepDatabase

Int64s = npt.NDArray[np.int64]

BARRIER: Final = "barrier-cores"
DEBUG_PRINT: Final = "debug_print"
MAX_FUNCTIONS: Final = 8

# The frameworks' own names for turning a program into code: JAX, XLA's clients and compilers,
# TensorFlow's compilation cache.
_COMPILE: Final = re.compile(
    r"\bbackend_compile|(?:Compiler|Client|CompilationCache|Service)::Compile(?!Time)"
    r"|^XlaCompile|^TpuCompile|^CompileToLocalExecutable"
)
_THROTTLE: Final = re.compile(
    r"throttl|clocks? skipped|power[ _-]?(?:cap|brake)|thermal slowdown", re.I
)
# One of these is in every name that matches: names of operations are long, the pattern is slow.
_THROTTLE_WORDS: Final = ("throttl", "skipped", "power", "thermal")
_THROTTLED_RATIO: Final = 0.01
# Durations that the hardware reports for a barrier that nobody waited at.
_NO_BARRIER_PS: Final = (0, 1250)
_TARGETS: Final = {BARRIER: _NO_BARRIER_PS, DEBUG_PRINT: ()}
_SHORT_STEP_RATIO: Final = 0.01
# What a call of a tf.function says of how it ran, and of what compiled it.
_MODES: Final = {
    "eager": ("eager", ""),
    "concrete": ("concrete", ""),
    "traced-xla": ("traced", "xla"),
    "traced-nonXla": ("traced", "other"),
    "notTraced-xla": ("not_traced", "xla"),
    "notTraced-nonXla": ("not_traced", "other"),
}
_COSTLY: Final = ("traced", "eager")


@dataclass(frozen=True)
class MemoryFact:
    """How full one allocator was at its fullest.

    Attributes:
        capacity_bytes: 0 where nothing says what was free.
        fragmentation: 0 to 1, as the allocator says; None when it does not.
    """

    allocator: str
    peak_bytes: int
    capacity_bytes: int
    fragmentation: float | None


@dataclass(frozen=True)
class TracedFunction:
    """A tf.function, and the share of its time that was tracing or eager execution.

    Attributes:
        time_ps: Its own, without functions that it calls.
        tracing_count: How often it had been traced at its last call, as far as calls say.
        compiler: ``xla``, ``other``, ``mixed`` where calls differ, empty where none says.
        mode_calls: Calls by how they ran: ``traced``, ``not_traced``, ``eager``, ``concrete``
            or ``unknown``.
        mode_time_ps: Time likewise.
    """

    name: str
    calls: int
    expensive_ratio: float
    time_ps: int
    tracing_count: int
    compiler: str
    mode_calls: Mapping[str, int]
    mode_time_ps: Mapping[str, int]


@dataclass(frozen=True)
class HostFacts:
    """The facts of one host; None where the capture cannot tell.

    Attributes:
        compilations: How many programs were compiled from the first step's begin to the last
            step's end.
        compile_ps: Time of that window in which something was compiled.
        window_ps: The window.
        functions: tf.functions by time, the longest first.
        memory: Of every allocator.
        barrier_ratio: Share of the device's step time in barriers between cores.
        debug_print_ratio: Likewise in debug prints.
        throttled: Events or counters that say that the clock was held back.
        time_base_ns: Unix time of the zero of all its times, by its own clock.
    """

    compilations: int | None = None
    compile_ps: int = 0
    window_ps: int = 0
    functions: tuple[TracedFunction, ...] = ()
    memory: tuple[MemoryFact, ...] = ()
    barrier_ratio: float | None = None
    debug_print_ratio: float | None = None
    throttled: int = 0
    time_base_ns: int | None = None

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {
            **vars(self),
            "functions": [vars(function) for function in self.functions],
            "memory": [vars(fact) for fact in self.memory],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "HostFacts":
        """The facts that ``to_state`` described."""
        return cls(
            **{
                **state,
                "functions": tuple(TracedFunction(**one) for one in state["functions"]),
                "memory": tuple(MemoryFact(**one) for one in state["memory"]),
            }
        )


def host_facts(
    space: PreparedSpace,
    steps: StepDatabase,
    allocations: Allocations,
    times_of: "Callable[[PreparedPlane], Mapping[str, NamedTimes]]",
) -> HostFacts:
    """The facts of one host.

    Args:
        space: Its prepared XSpace.
        steps: All its steps.
        allocations: What its allocators recorded.
        times_of: Gives what ``named_times`` found of a device.
    """
    compilations, compile_ps, window_ps = _compilations(space, steps)
    return HostFacts(
        compilations=compilations,
        compile_ps=compile_ps,
        window_ps=window_ps,
        functions=_functions(space),
        memory=tuple(_memory(allocations)),
        barrier_ratio=_device_share(space, steps, BARRIER, times_of),
        debug_print_ratio=_device_share(space, steps, DEBUG_PRINT, times_of),
        throttled=_throttled(space),
    )


def _compilations(space: PreparedSpace, steps: StepDatabase) -> tuple[int | None, int, int]:
    plane = space.plane(HOST_PLANE)
    if plane is None or not len(steps.begin_ps):
        return None, 0, 0
    begin = int(steps.begin_ps.min())
    end = int((steps.begin_ps + steps.duration_ps).max())
    matching = _matching(plane, _COMPILE)
    starts, ends = [], []
    for line in plane.lines if matching.any() else ():
        columns = line.columns()
        is_found = matching[columns.metadata]
        starts.append(columns.start_ps[is_found])
        ends.append(columns.start_ps[is_found] + columns.duration_ps[is_found])
    if not starts:
        return 0, 0, end - begin
    start, stop = np.concatenate(starts), np.concatenate(ends)
    inside = (stop > begin) & (start < end)
    spans = union(np.maximum(start[inside], begin), np.minimum(stop[inside], end))
    return len(spans.start_ps), spans.total_ps, end - begin


def _functions(space: PreparedSpace) -> tuple[TracedFunction, ...]:
    """The tf.functions that ran, with the self time that tracing and eager execution took."""
    stat = "tf_function_call"
    plane = space.plane(HOST_PLANE)
    if plane is None or stat not in plane.stat_names:
        return ()
    counts = {"tracing_count"} & plane.stat_names
    found: dict[str, _Calls] = {}
    for line in plane.lines:
        columns = line.columns((stat, *counts))
        codes, modes = columns.stat(stat).strings()
        called = np.flatnonzero(codes >= 0)
        if not len(called):
            continue
        start, duration = columns.start_ps[called], columns.duration_ps[called]
        order = natural_order(start, duration)
        if order is not None:
            called, start, duration = called[order], start[order], duration[order]
        self_ps = nest(start, duration).self_ps
        traced = columns.stat("tracing_count").ints()[called] if counts else 0 * start
        rows, code = columns.metadata[called], codes[called]
        for row, mode in {*zip(rows.tolist(), code.tolist(), strict=True)}:
            own = (rows == row) & (code == mode)
            function = found.setdefault(plane.event_metadata.names[row], _Calls())
            times = int(traced[own].max())
            function.add(modes[mode], int(own.sum()), int(self_ps[own].sum()), times)
    functions = [calls.function(name) for name, calls in found.items()]
    functions.sort(key=lambda function: (-function.time_ps, function.name))
    return tuple(functions[:MAX_FUNCTIONS])


class _Calls:
    """The calls of one function, as they are found."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.time_ps: dict[str, int] = {}
        self.compilers: set[str] = set()
        self.tracing_count = 0

    def add(self, told: str, calls: int, time_ps: int, tracing_count: int) -> None:
        mode, compiler = _MODES.get(told, ("unknown", ""))
        self.calls[mode] = self.calls.get(mode, 0) + calls
        self.time_ps[mode] = self.time_ps.get(mode, 0) + time_ps
        self.tracing_count = max(self.tracing_count, tracing_count)
        if compiler:
            self.compilers.add(compiler)

    def function(self, name: str) -> TracedFunction:
        total_ps = sum(self.time_ps.values())
        costly_ps = sum(self.time_ps.get(mode, 0) for mode in _COSTLY)
        return TracedFunction(
            name=name,
            calls=sum(self.calls.values()),
            expensive_ratio=costly_ps / total_ps if total_ps else 0.0,
            time_ps=total_ps,
            tracing_count=self.tracing_count,
            compiler="mixed" if len(self.compilers) > 1 else "".join(self.compilers),
            mode_calls=dict(sorted(self.calls.items())),
            mode_time_ps=dict(sorted(self.time_ps.items())),
        )


def _memory(allocations: Allocations) -> list[MemoryFact]:
    found = []
    says = bool((allocations.columns["fragmentation"] > 0).any())
    for name in allocations.allocators():
        profile = AllocatorProfile(allocations, name, "start_ps")
        fragmentation = float(allocations.columns["fragmentation"][profile.peak_row])
        found.append(
            MemoryFact(
                allocator=name,
                peak_bytes=profile.peak_bytes,
                capacity_bytes=profile.known_capacity_bytes or 0,
                fragmentation=fragmentation if says and np.isfinite(fragmentation) else None,
            )
        )
    return found


@dataclass(frozen=True)
class NamedTimes:
    """Time of a device's events of some names in each step; both of shape (k,)."""

    step: Int64s
    time_ps: Int64s


def named_times(plane: PreparedPlane) -> Mapping[str, NamedTimes]:
    """Time of a device's barriers and debug prints, by what their names contain."""
    found = {}
    for target, ignored_ps in _TARGETS.items():
        matching = _matching(plane, re.compile(re.escape(target)))
        step, time_ps = np.zeros(0, np.int64), np.zeros(0, np.int64)
        for line in plane.lines if matching.any() else ():
            if not line.is_derived and not is_sparse_core(plane.name):
                own_step, own_ps = _times_of(line, matching, ignored_ps)
                step, time_ps = np.append(step, own_step), np.append(time_ps, own_ps)
        steps, at = np.unique(step, return_inverse=True)
        total = np.zeros(len(steps), np.int64)
        np.add.at(total, at, time_ps)
        found[target] = NamedTimes(steps, total)
    return found


def _times_of(
    line: PreparedLine, matching: npt.NDArray[np.bool_], ignored_ps: Sequence[int]
) -> tuple[Int64s, Int64s]:
    """Steps and durations of a line's matching events."""
    nothing = np.zeros(0, np.int64)
    survey = line.survey(frozenset())
    if survey is not None and not matching[survey.rows].any():
        return nothing, nothing
    stat = "device_duration_ps"
    columns = line.columns((stat,) if stat in line.plane.stat_names else ())
    events = np.flatnonzero(matching[columns.metadata])
    step, time_ps = nothing, nothing
    if len(events):
        time_ps = columns.duration_ps[events]
        if stat in line.plane.stat_names:
            told = columns.stat(stat)
            time_ps = np.where(told.present()[events], told.ints_or_uints()[events], time_ps)
        code, groups = line.group_codes()
        step = np.append(groups, -1)[code[events]]
        counted = (step >= 0) & ~np.isin(time_ps, ignored_ps)
        step, time_ps = step[counted], time_ps[counted]
    return step, time_ps


def _device_share(
    space: PreparedSpace,
    steps: StepDatabase,
    target: str,
    times_of: Callable[[PreparedPlane], Mapping[str, NamedTimes]],
) -> float | None:
    """Mean over the device planes of the mean share of a step in events of a name.

    None without a device plane that has steps.
    """
    shares = [
        share
        for plane in space.planes
        if is_device_plane(plane.name)
        and (share := _plane_share(plane, steps, target, times_of)) is not None
    ]
    return sum(shares) / len(shares) if shares else None


def _plane_share(
    plane: PreparedPlane,
    steps: StepDatabase,
    target: str,
    times_of: Callable[[PreparedPlane], Mapping[str, NamedTimes]],
) -> float | None:
    is_tpu = is_tensor_core(plane.name)
    if is_sparse_core(plane.name):
        return None
    rows = np.flatnonzero(steps.core_id == (plane.id if is_tpu else 1))
    numbers, duration = steps.step_numbers[steps.row_step[rows]], steps.duration_ps[rows]
    if not len(rows):
        return None
    spent = np.zeros(len(rows))
    times = times_of(plane)[target]
    at = np.minimum(np.searchsorted(numbers, times.step), len(numbers) - 1)
    known = numbers[at] == times.step
    np.add.at(spent, at[known], times.time_ps[known])
    if len(rows) >= 3:
        kept = np.arange(1, len(rows) - 1)
    elif len(rows) == 2 and duration.min() < _SHORT_STEP_RATIO * duration.max():
        kept = np.array([int(duration.argmax())])
    else:
        kept = np.arange(len(rows))
    return float((spent[kept] / np.maximum(duration[kept], 1)).mean())


def _throttled(space: PreparedSpace) -> int:
    """How many events or counters of any plane say that something was throttled.

    A counter's event counts when it is not small beside the largest counter of its line, which
    is of cycles: a clock skips a few of them on healthy devices too.
    """
    found = 0
    for plane in space.planes:
        matching = _throttling(plane)
        for line in plane.lines if matching.any() else ():
            stat = "counter_value"
            has_values = stat in plane.stat_names
            columns = line.columns((stat,) if has_values else ())
            counted = matching[columns.metadata]
            if has_values and counted.any():
                told = columns.stat(stat)
                value = told.ints_or_uints() + told.doubles()
                least = _THROTTLED_RATIO * float(value.max())
                counted &= ~told.present() | ((value > 0) & (value >= least))
            found += int(counted.sum())
    return found


def _throttling(plane: PreparedPlane) -> npt.NDArray[np.bool_]:
    """Which rows of a plane's event metadata have a name that speaks of throttling."""
    found = np.zeros(max(len(plane.event_metadata.names), 1), np.bool_)
    for row, name in enumerate(plane.event_metadata.names):
        lowered = name.lower()
        if any(word in lowered for word in _THROTTLE_WORDS):
            found[row] = _THROTTLE.search(name) is not None
    return found


def _matching(plane: PreparedPlane, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Which rows of a plane's event metadata have a name that matches."""
    names = plane.event_metadata.names
    return np.array([pattern.search(name) is not None for name in names] or [False], np.bool_)
