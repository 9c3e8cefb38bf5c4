"""Findings about the hosts beside each other: who is late, and by how much."""

from typing import Final

from podscope_analyzers.advice.metrics import PodMetrics
from podscope_analyzers.advice.rules.rule import Finding, Rule
from podscope_analyzers.result import Evidence

_CAUSES: Final = {
    "compute": "its computation",
    "input": "its input",
    "host": "work on the host",
    "communication": "its communication",
}


def straggler(pod: PodMetrics, rule: Rule) -> Finding | None:
    """A host is late in a typical step; the others wait for it."""
    if not pod.stragglers:
        return None
    late = pod.stragglers[0]
    others = len(pod.stragglers) - 1
    also = f", and for {others} more" if others else ""
    # Hosts that meet in no recorded collective may not wait, and are slower all the same.
    waits = pod.waiting_ratio >= rule.limits["waiting_ratio"]
    said = f"The other hosts wait for {late.host}" if waits else f"{late.host} is slower"
    return Finding(
        "high",
        f"{said}{also}: it is {late.lateness_ps / 1e9:.2f} ms late "
        f"in a typical step ({late.lateness_ratio:.0%} of it), because of {_CAUSES[late.cause]}; "
        f"{late.evidence[0]}.",
        (
            Evidence("lateness_ratio", late.lateness_ratio, "ratio", rule.levels["high"]),
            Evidence("lateness_us", late.lateness_ps / 1e6, "us"),
            Evidence("persistence_ratio", late.persistence_ratio, "ratio"),
        ),
    )


def slow_core(pod: PodMetrics, rule: Rule) -> Finding | None:
    """One core takes longer for its work than the other cores of its host."""
    if not pod.slow_cores:
        return None
    slow = pod.slow_cores[0]
    others = len(pod.slow_cores) - 1
    also = f", and {others} more cores" if others else ""
    return Finding(
        "high",
        f"Core {slow.core} of {slow.host}{also}: it takes {slow.lateness_ps / 1e9:.2f} ms of a "
        f"step ({slow.lateness_ratio:.0%} of it) longer than the other cores of its host.",
        (
            Evidence("lateness_ratio", slow.lateness_ratio, "ratio", rule.levels["high"]),
            Evidence("lateness_us", slow.lateness_ps / 1e6, "us"),
            Evidence("persistence_ratio", slow.persistence_ratio, "ratio"),
        ),
    )
