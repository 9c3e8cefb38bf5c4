"""Which host makes the others wait, how late it is, and what it was doing.

Hosts that train together meet in collectives, so all of them have the same step time and the slow
one cannot be seen in it. What differs is the own work: the step's time less the time spent waiting
in collectives. The host whose own work is longest arrives last, and the others wait for it.

A host is named only when its lateness cannot be noise: it is late in most steps, by a share of
the step that matters, and by several times what its lateness varies from step to step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Cause = Literal["compute", "input", "host", "communication"]
Verdict = Literal["straggler", "even", "too_few_steps", "one_host"]

# Below this share of the step a late host costs less than what a capture itself costs.
MIN_LATENESS_RATIO = 0.05
# A host that is late in fewer steps than this is not the one to look at.
MIN_PERSISTENCE_RATIO = 0.5
# How many standard errors of its median the lateness must exceed.
MIN_DEVIATIONS = 3.0
MIN_STEPS = 3

_MAD_TO_SIGMA = 1.4826
_MEDIAN_ERROR = 1.2533
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
    """

    host: str
    total_ps: Int64s
    waiting_ps: Int64s
    parts_ps: Mapping[str, Int64s]
    phases_ps: Mapping[str, Int64s]


@dataclass(frozen=True)
class Straggler:
    """A host that the others wait for.

    Attributes:
        lateness_ps: Median over steps of its own work less the other hosts' median.
        lateness_ratio: That as a share of the median step.
        persistence_ratio: Share of the steps in which it is late.
        slowest_steps: In how many steps its own work was the longest.
        cause: The part of its work that is longer than the others'.
        evidence: Sentences with the numbers that say so, the strongest first.
    """

    host: str
    lateness_ps: float
    lateness_ratio: float
    persistence_ratio: float
    slowest_steps: int
    cause: Cause
    evidence: tuple[str, ...]


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
        waiting_ratio: Share of all hosts' step time that was spent waiting in collectives.
    """

    verdict: Verdict
    steps: tuple[SlowestOfStep | None, ...]
    stragglers: tuple[Straggler, ...]
    waiting_ratio: float


def find_stragglers(hosts: Sequence[HostWork]) -> StragglerReport:
    """Compare the own work of hosts that take the same steps.

    Args:
        hosts: All with the same number of steps; step i of one is step i of the others. None and
            one are both reported as ``one_host``: there is nobody to compare with.
    """
    if not hosts:
        return StragglerReport("one_host", (), (), 0.0)
    total = _stack([host.total_ps for host in hosts])
    waiting = _stack([host.waiting_ps for host in hosts])
    is_there = total >= 0
    own = np.where(is_there, total - waiting, np.nan)
    spent = float(total[is_there].sum())
    waiting_ratio = float(waiting[is_there].sum()) / spent if spent > 0 else 0.0
    late = lateness(own)
    steps = tuple(_slowest(hosts, own, late, step) for step in range(own.shape[1]))
    if len(hosts) < 2:
        return StragglerReport("one_host", steps, (), waiting_ratio)
    is_shared = is_there.sum(axis=0) >= 2
    if int(is_shared.sum()) < MIN_STEPS:
        return StragglerReport("too_few_steps", steps, (), waiting_ratio)
    typical_step = float(np.median(total[:, is_shared][is_there[:, is_shared]]))
    found = [
        straggler
        for index in range(len(hosts))
        if (straggler := _judge(hosts, index, late, typical_step, steps)) is not None
    ]
    found.sort(key=lambda s: (-s.lateness_ps, s.host))
    return StragglerReport("straggler" if found else "even", steps, tuple(found), waiting_ratio)


def lateness(own: Float64s) -> Float64s:
    """Own work less the median of the *other* hosts in the same step.

    Args:
        own: Shape (hosts, steps), NaN where a host misses a step.

    Returns:
        Shape (hosts, steps), NaN where the host misses the step or is alone in it.
    """
    late = np.full(own.shape, np.nan)
    for index in range(own.shape[0]):
        others = np.delete(own, index, axis=0)
        shared = ~np.isnan(own[index]) & (~np.isnan(others)).any(axis=0)
        if shared.any():
            late[index, shared] = own[index, shared] - np.nanmedian(others[:, shared], axis=0)
    return late


def _judge(
    hosts: Sequence[HostWork],
    index: int,
    late: Float64s,
    typical_step: float,
    steps: Sequence[SlowestOfStep | None],
) -> Straggler | None:
    series = late[index][~np.isnan(late[index])]
    if len(series) < MIN_STEPS or typical_step <= 0:
        return None
    typical = float(np.median(series))
    scatter = _MAD_TO_SIGMA * float(np.median(np.abs(series - typical)))
    error = _MEDIAN_ERROR * scatter / np.sqrt(len(series))
    persistence = float(np.mean(series > MIN_LATENESS_RATIO * typical_step))
    if (
        typical < MIN_LATENESS_RATIO * typical_step
        or typical < MIN_DEVIATIONS * error
        or persistence < MIN_PERSISTENCE_RATIO
        or typical < MIN_DEVIATIONS * _spread_of_others(index, late)
    ):
        return None
    cause, evidence = _explain(hosts, index, typical)
    name = hosts[index].host
    return Straggler(
        host=name,
        lateness_ps=typical,
        lateness_ratio=typical / typical_step,
        persistence_ratio=persistence,
        slowest_steps=sum(step is not None and step.host == name for step in steps),
        cause=cause,
        evidence=evidence,
    )


def _spread_of_others(index: int, late: Float64s) -> float:
    """How much the other hosts' typical lateness differs among them, as a standard deviation."""
    typical = [
        float(np.nanmedian(row))
        for other, row in enumerate(late)
        if other != index and not np.isnan(row).all()
    ]
    if len(typical) < 3:
        return 0.0
    middle = np.median(typical)
    return _MAD_TO_SIGMA * float(np.median(np.abs(np.array(typical) - middle)))


def _explain(
    hosts: Sequence[HostWork], index: int, typical: float
) -> tuple[Cause, tuple[str, ...]]:
    excess = {
        part: _typical_excess([host.parts_ps[part] for host in hosts], hosts, index)
        for part in PART_CAUSES
    }
    part = max(excess, key=lambda name: excess[name][0])
    evidence = [
        f"its {_PART_TEXTS[part]} takes {_ms(excess[part][1])} a step, "
        f"{_ms(excess[part][2])} on the other hosts"
    ]
    names = hosts[index].phases_ps
    phases = sorted(
        ((*_typical_excess(_phase(hosts, name), hosts, index), name) for name in names),
        reverse=True,
    )
    evidence += [
        f"'{name}' takes {_ms(own)} a step, {_ms(others)} on the other hosts"
        for more, own, others, name in phases[:2]
        if more > 0.25 * typical
    ]
    waits = _typical_excess([host.waiting_ps for host in hosts], hosts, index)
    if waits[0] < 0:
        evidence.append(
            f"it waits {_ms(waits[1])} a step in collectives, the other hosts {_ms(waits[2])}"
        )
    return PART_CAUSES[part], tuple(evidence)


_PART_TEXTS = {
    "compute": "computation",
    "input": "input",
    "host": "work on the host",
    "communication": "copying between devices",
}


def _phase(hosts: Sequence[HostWork], name: str) -> list[Int64s]:
    return [host.phases_ps.get(name, np.zeros_like(host.total_ps)) for host in hosts]


def _typical_excess(
    series: Sequence[Int64s], hosts: Sequence[HostWork], index: int
) -> tuple[float, float, float]:
    """Median excess over the other hosts, own median, the others' median; picoseconds."""
    is_there = _stack([host.total_ps for host in hosts]) >= 0
    values = np.where(is_there, _stack(series), np.nan)
    others = np.delete(values, index, axis=0)
    own_typical = float(np.nanmedian(values[index]))
    others_typical = float(np.nanmedian(others)) if not np.isnan(others).all() else 0.0
    return float(np.nanmedian(lateness(values)[index])), own_typical, others_typical


def _slowest(
    hosts: Sequence[HostWork], own: Float64s, late: Float64s, step: int
) -> SlowestOfStep | None:
    if int((~np.isnan(own[:, step])).sum()) < 2:
        return None
    index = int(np.nanargmax(own[:, step]))
    return SlowestOfStep(hosts[index].host, int(own[index, step]), float(late[index, step]))


def _stack(rows: Sequence[Int64s]) -> Float64s:
    return np.array(rows, dtype=np.float64)


def _ms(time_ps: float) -> str:
    return f"{time_ps / 1e9:.2f} ms"
