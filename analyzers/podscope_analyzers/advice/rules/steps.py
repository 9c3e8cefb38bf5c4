"""Findings about the step time: input, output, collectives, the host and the gaps."""

from collections.abc import Callable
from typing import cast

from podscope_analyzers.advice.metrics import StepMetrics
from podscope_analyzers.advice.rules.rule import Finding, Rule, by_level
from podscope_analyzers.input_pipeline.bottleneck import reaches
from podscope_analyzers.result import Evidence


def share_of_step(category: str, said: str) -> Callable[[StepMetrics, Rule], Finding | None]:
    """A finder for the share of the step that one category takes."""

    def find(steps: StepMetrics, rule: Rule) -> Finding | None:
        return by_level(rule, steps.shares.get(category), f"{category}_ratio", said)

    return find


def communication_bound(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Steps spend their time in what cores exchange."""
    collectives = steps.shares.get("collectives", 0.0)
    other = (steps.communication_ratio or 0.0) - collectives
    rest = f", {other:.1%} of it in sends and receives between cores" if other > 0 else ""
    return by_level(
        rule,
        steps.communication_ratio,
        "communication_ratio",
        "{share} of the step time is spent in collectives, waiting for a late host included"
        f"{rest}.",
        Evidence("collectives_ratio", collectives, "ratio"),
    )


def input_bound(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Steps wait for input."""
    share = steps.shares.get("input", 0.0)
    # The same words and the same judgement as the verdict on input.
    for severity, threshold in rule.levels.items():
        if reaches(100 * share, 100 * threshold, 100 * steps.input_error_ratio):
            return Finding(
                severity,
                f"{share:.1%} of the step time is spent waiting for input.",
                (Evidence("input_ratio", share, "ratio", threshold),),
            )
    return None


def unobserved_input(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Steps wait for input, and no host event tells why."""
    if steps.is_input_observed:
        return None
    return by_level(
        rule,
        steps.shares.get("input"),
        "input_ratio",
        "{share} of the step time waits for input, and nothing on the hosts says what the input "
        "does in that time.",
    )


def input_stage(name: str, said: str) -> Callable[[StepMetrics, Rule], Finding | None]:
    """A finder for the share of the input's own time that one stage takes."""

    def find(steps: StepMetrics, rule: Rule) -> Finding | None:
        waiting = steps.shares.get("input", 0.0)
        least = rule.limits["input_ratio"]
        if waiting <= least:
            return None
        more = Evidence("input_ratio", waiting, "ratio", least)
        return by_level(rule, cast("float | None", getattr(steps, name)), name, said, more)

    return find


def host_bound(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Devices wait for the host, or hosts do other work than the program's."""
    if not steps.has_device:
        return by_level(
            rule,
            steps.host_work_ratio,
            "host_work_ratio",
            "{share} of the step time is neither compiled operations nor collectives nor input: "
            "it is the host's own work.",
        )
    shares = steps.shares
    idle = sum(shares.get(name, 0.0) for name in ("host_compute", "kernel_launch", "other"))
    return by_level(
        rule,
        idle,
        "host_bound_ratio",
        "In {share} of the step time the devices run nothing and wait for no input: they wait "
        "for the host."
        if steps.is_tpu
        else "In {share} of the step time the devices run nothing: they wait for the host, or for "
        "input that it has not prepared yet.",
    )


def unaccounted(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Time of the step, on hosts without devices, is in no known category."""
    # Of accelerators that time is idle time, which another rule is about.
    if steps.has_device:
        return None
    return by_level(
        rule,
        steps.shares.get("other"),
        "other_ratio",
        "{share} of the step time is in no known category, which may be input, or Python "
        "between operations.",
    )


def between_steps(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Devices are idle between one step and the next."""
    if not steps.has_device:
        return None
    return by_level(
        rule,
        steps.between_ratio,
        "between_steps_ratio",
        "{share} of the time lies between the end of a step and the begin of the next one, with "
        "nothing on the devices.",
        Evidence("step_time_ms", steps.step_ms, "ms"),
    )


def launches(steps: StepMetrics, rule: Rule) -> Finding | None:
    """Launching kernels takes a part of the step."""
    return by_level(
        rule,
        steps.shares.get("kernel_launch"),
        "kernel_launch_ratio",
        "{share} of the step time is spent launching kernels.",
    )
