"""Which host makes the others wait, how late it is, and what it was doing.

Hosts that train together meet in collectives, so all of them have the same step time and the slow
one cannot be seen in it. What differs is the own work: the step's time less the time spent waiting
in collectives. The host whose own work is longest arrives last, and the others wait for it.

A host is named only when its lateness cannot be noise: it is late in most steps, by a share of
the step that matters, and by several times what its lateness varies from step to step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from podscope_analyzers.arrivals import Arrivals
from podscope_analyzers.lateness import lateness
from podscope_analyzers.sorted_values import median

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Cause = Literal["compute", "input", "host", "communication"]
Verdict = Literal["straggler", "even", "too_few_steps", "one_host"]

# Below this share of the step a late host costs less than what a capture itself costs.
MIN_LATENESS_RATIO = 0.05
# A host that is late in fewer steps than this is not the one to look at.
MIN_PERSISTENCE_RATIO = 0.5
# How many standard errors of its median the lateness must exceed, at least; of many hosts one is
# far out by chance, so that the bound grows with their number.
MIN_DEVIATIONS = 3.0
# Chance that any host of an even pod is named.
FALSE_ALARMS = 0.01
MIN_STEPS = 3
# Hosts that spend less of their steps in collectives need not wait for a late one.
MIN_WAITING_RATIO = 0.01
# With fewer others their spread is a matter of chance.
MIN_OTHERS_FOR_SPREAD = 3
MIN_CORES = 3

_FEW_STEPS = 3
_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
# Share of the samples that a median absolute deviation makes use of, beside a standard deviation.
_MAD_EFFICIENCY = 0.37
PART_CAUSES: Mapping[str, Cause] = {
    "compute": "compute",
    "input": "input",
    "host": "host",
    "communication": "communication",
}


@dataclass(frozen=True)
class HostWork:
    """The steps of one host.

    Attributes:
        host: Its name in the capture.
        total_ps: Step time, shape (n,); -1 where the host misses the step.
        waiting_ps: Time in collectives that no computation hides, shape (n,).
        parts_ps: Own work by part (``compute``, ``input``, ``host``, ``communication``), each of
            shape (n,); together they are the total less the waiting.
        phases_ps: Time in the training loop's own annotations by name, each of shape (n,).
        cores: Names of its cores, where it has several.
        core_own_ps: Own work of each core, shape (c, n); -1 where the core misses the step.
        arrivals: When it arrives at the collectives, where these say which they are.
    """

    host: str
    total_ps: Int64s
    waiting_ps: Int64s
    parts_ps: Mapping[str, Int64s]
    phases_ps: Mapping[str, Int64s]
    cores: tuple[str, ...] = ()
    core_own_ps: Int64s | None = None
    arrivals: Arrivals | None = None


@dataclass(frozen=True)
class SlowCore:
    """A core that the other cores of its host wait for.

    Attributes:
        lateness_ps: Median over steps of its own work less the median of the host's other cores.
        lateness_ratio: That as a share of the median step.
    """

    host: str
    core: str
    lateness_ps: float
    lateness_ratio: float
    persistence_ratio: float


@dataclass(frozen=True)
class Straggler:
    """A host that the others wait for.

    Attributes:
        lateness_ps: Median over steps of its own work less the other hosts' median.
        lateness_ratio: That as a share of the median step.
        persistence_ratio: Share of its steps in which it is late.
        step_count: Steps in which it can be compared with another host.
        slowest_steps: In how many steps its own work was the longest.
        cause: The part of its work that is longer than the others'.
        evidence: Sentences with the numbers that say so, the strongest first.
        arrivals: When it arrives at the collectives, where these say which they are.
    """

    host: str
    lateness_ps: float
    lateness_ratio: float
    persistence_ratio: float
    step_count: int
    slowest_steps: int
    cause: Cause
    evidence: tuple[str, ...]
    arrivals: Arrivals | None = None


@dataclass(frozen=True)
class SlowestOfStep:
    """The host with the longest own work in one step.

    Attributes:
        lateness_ps: Its own work less the other hosts' median.
    """

    host: str
    own_ps: int
    lateness_ps: float


@dataclass(frozen=True)
class StragglerReport:
    """What the comparison of the hosts found.

    Attributes:
        steps: One entry per step; None where fewer than two hosts have it.
        stragglers: The worst first; empty unless the verdict is ``straggler``.
        waiting_ratio: Share of all hosts' step time that was spent waiting in collectives; None
            without steps.
        slow_cores: Cores that are late among those of their host, the worst first.
        slowest_lateness_ps: Median over the steps of the slowest host's lateness, whichever host
            that is; None where no two hosts share a step.
        slowest_lateness_ratio: That as a share of the median step.
    """

    verdict: Verdict
    steps: tuple[SlowestOfStep | None, ...]
    stragglers: tuple[Straggler, ...]
    waiting_ratio: float | None
    slow_cores: tuple[SlowCore, ...] = ()
    slowest_lateness_ps: float | None = None
    slowest_lateness_ratio: float | None = None


def find_stragglers(hosts: Sequence[HostWork]) -> StragglerReport:
    """Compare the own work of hosts that take the same steps.

    Args:
        hosts: All with the same number of steps; step i of one is step i of the others. One alone
            is reported as ``one_host``: there is nobody to compare with. None have no step.
    """
    if not hosts:
        return StragglerReport("too_few_steps", (), (), None)
    total = _stack([host.total_ps for host in hosts])
    waiting = _stack([host.waiting_ps for host in hosts])
    is_there = total >= 0
    own = np.where(is_there, total - waiting, np.nan)
    spent = float(total[is_there].sum())
    waiting_ratio = float(waiting[is_there].sum()) / spent if spent > 0 else None
    late = lateness(own)
    steps = _slowest(hosts, own, late)
    typical_step = median(total[is_there]) if is_there.any() else 0.0
    slow_cores = _slow_cores(hosts, typical_step)
    if len(hosts) < 2:
        return StragglerReport("one_host", steps, (), waiting_ratio, slow_cores)
    is_shared = is_there.sum(axis=0) >= 2
    if int(is_shared.sum()) < MIN_STEPS:
        return StragglerReport("too_few_steps", steps, (), waiting_ratio, slow_cores)
    typical_step = median(total[:, is_shared][is_there[:, is_shared]])
    judged = _judge(late, typical_step)
    compared = _Compared(hosts, is_there)
    found = [
        _straggler(compared, int(index), judged, typical_step, steps, slow_cores)
        for index in np.flatnonzero(judged.is_late)
    ]
    found.sort(key=lambda s: (-s.lateness_ps, s.host))
    verdict: Verdict = "straggler" if found else "even"
    slowest = median([step.lateness_ps for step in steps if step is not None])
    return StragglerReport(
        verdict,
        steps,
        tuple(found),
        waiting_ratio,
        slow_cores,
        slowest_lateness_ps=slowest,
        slowest_lateness_ratio=slowest / typical_step if typical_step > 0 else None,
    )


@dataclass(frozen=True)
class _Judged:
    """Of every unit: whether it is late, by how much, in how many of its steps; all (n,)."""

    is_late: npt.NDArray[np.bool_]
    typical_ps: Float64s
    persistence: Float64s
    steps: Int64s


def _judge(late: Float64s, typical_step: float) -> _Judged:
    """Which of the units are late, by more than what chance makes of as many of them.

    Args:
        late: Lateness of every unit in every step, shape (n, steps), NaN for none.
        typical_step: Median step time.
    """
    counts = (~np.isnan(late)).sum(axis=1)
    enough = counts >= MIN_STEPS
    nobody = np.zeros(len(late), np.bool_)
    typical, persistence = np.full(len(late), np.nan), np.zeros(len(late))
    if not enough.any() or typical_step <= 0:
        return _Judged(nobody, typical, persistence, counts)
    # Rows of units with too few steps would be empty.
    kept = late[enough]
    count = counts[enough]
    middle = np.nanmedian(kept, axis=1)
    deviation = np.abs(kept - middle[:, None])
    # A few samples lie nearer to their own median than to the true one.
    own_scatter = _MAD_TO_SIGMA * np.nanmedian(deviation, axis=1)
    # Of three, two are often close by chance; where an outlier would be one of few, it counts.
    few = count <= _FEW_STEPS
    own_scatter[few] = np.fmax(own_scatter[few], np.nanstd(kept[few], axis=1, ddof=1))
    correction = np.sqrt(count / (count - 1))
    scatter = _MAD_TO_SIGMA * float(np.nanmedian(deviation * correction[:, None]))
    error = _MEDIAN_ERROR * np.maximum(own_scatter, scatter) / np.sqrt(count)
    scale = np.maximum(error, _spread_of_others(middle))
    share = np.nanmean(
        np.where(np.isnan(kept), np.nan, kept > MIN_LATENESS_RATIO * typical_step), 1
    )
    # The lateness of one of two is what the other is early: they are one series, seen twice.
    independent = (len(kept) - 1) / len(kept)
    freedom = _MAD_EFFICIENCY * independent * float((count - 1).sum())
    is_late = nobody.copy()
    is_late[enough] = (
        (middle >= MIN_LATENESS_RATIO * typical_step)
        & (middle >= deviations(len(kept), freedom) * scale)
        & (share >= MIN_PERSISTENCE_RATIO)
    )
    typical[enough], persistence[enough] = middle, share
    return _Judged(is_late, typical, persistence, counts)


def deviations(units: int, freedom: float) -> float:
    """How many standard errors the largest of so many even units exceeds by chance alone.

    Args:
        units: How many are compared.
        freedom: Degrees of freedom of the standard error; few of them have heavier tails.
    """
    # It loads fractions, decimals and random numbers: only for those who compare units.
    from statistics import NormalDist

    normal = NormalDist().inv_cdf(1 - FALSE_ALARMS / max(units, 1))
    # Student's t by the first term of its expansion about the normal.
    return max(MIN_DEVIATIONS, normal * (1 + (normal**2 + 1) / (4 * max(freedom, 0.5))))


def _spread_of_others(typical: Float64s) -> Float64s:
    """How much the other units' typical lateness differs among them, as a standard deviation."""
    if len(typical) <= MIN_OTHERS_FOR_SPREAD:
        return np.zeros(len(typical))
    # Left out one by one where one counts; of many, one moves no median.
    if len(typical) > _MANY:
        return np.full(len(typical), _spread(typical))
    return np.array([_spread(np.delete(typical, index)) for index in range(len(typical))])


_MANY = 64


def _spread(typical: Float64s) -> float:
    return _MAD_TO_SIGMA * median(np.abs(typical - median(typical)))


def _straggler(
    compared: "_Compared",
    index: int,
    judged: _Judged,
    typical_step: float,
    steps: Sequence[SlowestOfStep | None],
    slow_cores: Sequence[SlowCore],
) -> Straggler:
    typical = float(judged.typical_ps[index])
    cause, evidence = _explain(compared, index, typical)
    host = compared.hosts[index]
    name = host.host
    core = next((core for core in slow_cores if core.host == name), None)
    if core is not None:
        evidence = (
            *evidence[:1],
            f"its core {core.core} takes {_ms(core.lateness_ps)} a step longer than its others",
            *evidence[1:],
        )
    return Straggler(
        host=name,
        lateness_ps=typical,
        lateness_ratio=typical / typical_step,
        persistence_ratio=float(judged.persistence[index]),
        step_count=int(judged.steps[index]),
        slowest_steps=sum(step is not None and step.host == name for step in steps),
        cause=cause,
        evidence=evidence,
        arrivals=host.arrivals,
    )


def _slow_cores(hosts: Sequence[HostWork], typical_step: float) -> tuple[SlowCore, ...]:
    """Cores that are late among the cores of their host, where it has enough to compare."""
    # Hosts of as many cores side by side: cores down, hosts and steps across.
    alike: dict[int, list[HostWork]] = {}
    for host in hosts:
        if host.core_own_ps is not None and len(host.cores) >= MIN_CORES:
            alike.setdefault(len(host.cores), []).append(host)
    if not alike:
        return ()
    names: list[tuple[str, str]] = []
    late: list[Float64s] = []
    for count, group in alike.items():
        own = np.stack([host.core_own_ps for host in group if host.core_own_ps is not None], axis=1)
        steps = own.shape[2]
        flat = np.where(own >= 0, own.astype(np.float64), np.nan).reshape(count, -1)
        late.append(lateness(flat).reshape(count * len(group), steps))
        names += [(host.host, host.cores[core]) for core in range(count) for host in group]
    judged = _judge(np.concatenate(late), typical_step)
    found = [
        SlowCore(
            *names[index],
            lateness_ps=float(judged.typical_ps[index]),
            lateness_ratio=float(judged.typical_ps[index]) / typical_step,
            persistence_ratio=float(judged.persistence[index]),
        )
        for index in np.flatnonzero(judged.is_late).tolist()
    ]
    found.sort(key=lambda core: (-core.lateness_ps, core.host, core.core))
    return tuple(found)


def _explain(compared: "_Compared", index: int, typical: float) -> tuple[Cause, tuple[str, ...]]:
    host = compared.hosts[index]
    excess = {part: compared.part(part).excess(index) for part in PART_CAUSES}
    part = max(excess, key=lambda name: excess[name])
    own, others = compared.part(part).typical(index)
    evidence = [
        f"its {_PART_TEXTS[part]} takes {_ms(own)} a step, {_ms(others)} on the other hosts"
    ]
    phases = sorted(
        ((compared.phase(name).excess(index), name) for name in host.phases_ps), reverse=True
    )
    for more, name in phases[:2]:
        if more > 0.25 * typical:
            own, others = compared.phase(name).typical(index)
            evidence.append(f"'{name}' takes {_ms(own)} a step, {_ms(others)} on the other hosts")
    arrived = host.arrivals
    if arrived is not None and arrived.lateness_ps > 0:
        evidence.append(_arrival_text(arrived))
    if compared.waiting.excess(index) < 0:
        own, others = compared.waiting.typical(index)
        evidence.append(f"it waits {_ms(own)} a step in collectives, the other hosts {_ms(others)}")
    return PART_CAUSES[part], tuple(evidence)


def _arrival_text(arrived: Arrivals) -> str:
    clocks = (
        f", by the hosts' clocks, which are right to within {_ms(arrived.error_ps)}"
        if arrived.basis == "clocks"
        else ""
    )
    matched = ", matched by kind and order" if arrived.is_by_kind else ""
    return (
        f"it arrives {_ms(arrived.lateness_ps)} later than the others at the collectives"
        f"{matched}{clocks}, last of all at {arrived.last} of {arrived.meetings}"
    )


_PART_TEXTS = {
    "compute": "computation",
    "input": "input",
    "host": "work on the host",
    "communication": "copying between devices",
}


class _Compared:
    """The hosts' work, of which each part is compared once for all of them."""

    def __init__(self, hosts: Sequence[HostWork], is_there: npt.NDArray[np.bool_]) -> None:
        self.hosts = hosts
        self._is_there = is_there
        self._parts: dict[str, _Series] = {}
        self._phases: dict[str, _Series] = {}

    def part(self, name: str) -> "_Series":
        """A part of the hosts' own work."""
        if name not in self._parts:
            self._parts[name] = self._series([host.parts_ps[name] for host in self.hosts])
        return self._parts[name]

    def phase(self, name: str) -> "_Series":
        """An annotation of the training loop; nothing on hosts that do not have it."""
        if name not in self._phases:
            nothing = np.zeros(self._is_there.shape[1], np.int64)
            self._phases[name] = self._series(
                [host.phases_ps.get(name, nothing) for host in self.hosts]
            )
        return self._phases[name]

    @cached_property
    def waiting(self) -> "_Series":
        """Waiting in collectives."""
        return self._series([host.waiting_ps for host in self.hosts])

    def _series(self, rows: Sequence[Int64s]) -> "_Series":
        return _Series(np.where(self._is_there, _stack(rows), np.nan))


class _Series:
    """Times of all hosts in all steps, each host's beside the other hosts'.

    Args:
        values: Shape (hosts, steps), picoseconds, NaN where a host misses a step.
    """

    def __init__(self, values: Float64s) -> None:
        self._values = values
        self._late = lateness(values)

    def excess(self, index: int) -> float:
        """Median over the steps of what a host takes longer than the others' median."""
        late = self._late[index]
        return median(late[~np.isnan(late)])

    def typical(self, index: int) -> tuple[float, float]:
        """A host's own median, and that of all the others' steps; 0 where these have none."""
        own = self._values[index]
        own = own[~np.isnan(own)]
        ordered, place = self._ordered
        taken = np.sort(place[index])
        taken = taken[taken < len(ordered)]
        others = len(ordered) - len(taken)
        if not others:
            return median(own), 0.0
        # Of the sorted values, the middle places move up past those that the host itself takes.
        middle = np.array([(others - 1) // 2, others // 2])
        middle += np.searchsorted(taken - np.arange(len(taken)), middle, side="right")
        return median(own), float(ordered[middle].mean())

    @cached_property
    def _ordered(self) -> tuple[Float64s, npt.NDArray[np.intp]]:
        """All values ascending, without NaN, and the place of each among them, (hosts, steps)."""
        flat = self._values.ravel()
        order = np.argsort(flat, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return flat[order[: int((~np.isnan(flat)).sum())]], place.reshape(self._values.shape)


def _slowest(
    hosts: Sequence[HostWork], own: Float64s, late: Float64s
) -> tuple[SlowestOfStep | None, ...]:
    """Of every step the host with the longest own work; None where fewer than two have it."""
    is_shared = (~np.isnan(own)).sum(axis=0) >= 2
    longest = np.argmax(np.where(np.isnan(own), -np.inf, own), axis=0)
    return tuple(
        SlowestOfStep(hosts[host].host, int(own[host, step]), float(late[host, step]))
        if shared
        else None
        for step, (host, shared) in enumerate(
            zip(longest.tolist(), is_shared.tolist(), strict=True)
        )
    )


def _stack(rows: Sequence[Int64s]) -> Float64s:
    return np.array(rows, dtype=np.float64)


def _ms(time_ps: float) -> str:
    return f"{time_ps / 1e9:.2f} ms"
