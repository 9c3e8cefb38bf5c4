"""The input pipeline as our own results have it: by the same categories as the breakdown.

The reference looks at the first host alone, and only sees waiting that its tracers name. The
threads of CPU hosts say more, so a verdict by the reference's times would contradict our
breakdown.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.input_pipeline import InputPipeline, analyze_input_pipeline
from podscope_analyzers.input_pipeline.bottleneck import (
    Bottleneck,
    InputVerdict,
    classify_input,
    classify_output,
    generic_bottleneck,
)
from podscope_analyzers.input_pipeline.generic_steps import PARTS, GenericSteps, longest_core_ms
from podscope_analyzers.input_pipeline.summaries import summarize
from podscope_analyzers.overview_steps import complete_steps, longest_rows
from podscope_analyzers.step_annotations import names_input
from podscope_analyzers.step_categories import (
    COLLECTIVES,
    INPUT,
    LAUNCH,
    OTHER,
    OUTPUT,
    Int64s,
    own_categories_ps,
    starved_times_ps,
)
from podscope_analyzers.steps import StepDatabase

MAX_EVIDENCE = 4

NOT_RECORDED: Final = Bottleneck(
    "unknown",
    "Programs ran, but none of their operations was recorded, so whether the steps wait for input "
    "cannot be told.",
)


def own_input_pipeline(stats: CaptureStats) -> InputPipeline:
    """The input pipeline over complete steps, with shares of our own categories."""
    steps = complete_steps(stats)
    hardware = stats.run_environment.hardware_type
    pipeline = analyze_input_pipeline(steps, stats.host_ops, stats.cores, hardware)
    if not len(steps):
        return pipeline
    times = own_categories_ps(steps, stats.hosts)
    if hardware == "TPU":
        return replace(pipeline, bottleneck=_tpu_bottleneck(steps, times, pipeline.bottleneck))
    return replace(
        pipeline,
        steps=_longest_hosts(steps, times),
        bottleneck=NOT_RECORDED
        if _is_work_missing(stats, steps, times)
        else _bottleneck(steps, times, uses_tf_data=pipeline.time.uses_tf_data),
    )


def _is_work_missing(stats: CaptureStats, steps: StepDatabase, times: Int64s) -> bool:
    """Whether programs ran in the steps of which no operation was recorded anywhere.

    So it is where the devices were not traced. That nothing is known as input then says nothing:
    the host waits for its device in what counts as its own work.
    """
    return bool(
        stats.program_titles
        and not steps.has_device
        and not len(stats.host_execution)
        and not times[:, INPUT].any()
    )


def _longest_hosts(steps: StepDatabase, times: Int64s) -> GenericSteps:
    """Of every step the host with the longest time."""
    rows = longest_rows(steps)
    rows = rows[rows >= 0]
    numbers = steps.step_numbers[steps.row_step[rows]].tolist()
    return GenericSteps(
        names=tuple(
            steps.row_name(row) or str(number)
            for row, number in zip(rows.tolist(), numbers, strict=True)
        ),
        step_numbers=tuple(numbers),
        duration_ms=steps.duration_ps[rows] / 1e9,
        # The parts of a step are our categories, in the same order.
        parts_ms={part: times[rows, at] / 1e9 for at, (part, _) in enumerate(PARTS)},
        transfer_ms=steps.time_ps("host_to_device", "device_wait_host")[rows] / 1e9,
        step_time=summarize(longest_core_ms(steps)),
    )


def input_share(steps: StepDatabase, times: Int64s) -> tuple[float, float]:
    """Share of the step time that waits for input, and its standard error, both 0 to 1.

    Args:
        steps: At least one.
        times: Of every row, by category.
    """
    step_ps, input_ps = np.zeros(len(steps)), np.zeros(len(steps))
    np.add.at(step_ps, steps.row_step, times.sum(axis=1))
    np.add.at(input_ps, steps.row_step, times[:, INPUT])
    known = step_ps > 0
    if not known.any():
        return 0.0, 0.0
    shares = input_ps[known] / step_ps[known]
    error = float(shares.std(ddof=1)) / len(shares) ** 0.5 if len(shares) > 1 else 0.0
    return float(input_ps.sum() / step_ps.sum()), error


def tpu_verdict(steps: StepDatabase, times: Int64s) -> InputVerdict:
    """How much the steps of TPUs wait for input."""
    share, error = input_share(steps, times)
    # Idle cores have a statement of their own on TPUs: no input is suspected behind them.
    return classify_input(100 * share, 0.0, 100 * error)


def _tpu_bottleneck(steps: StepDatabase, times: Int64s, found: Bottleneck) -> Bottleneck:
    """What bounds the steps of TPUs, input and output by the shares of the breakdown.

    The reference divides by a sum of maxima over the cores, which is longer than the step.
    """
    percents = 100 * times.sum(axis=0) / max(int(times.sum()), 1)
    verdict = tpu_verdict(steps, times)
    return replace(
        found,
        input_classification=verdict.classification,
        input_statement=verdict.statement,
        output_statement=classify_output(float(percents[OUTPUT])),
    )


def _bottleneck(steps: StepDatabase, times: Int64s, *, uses_tf_data: bool) -> Bottleneck:
    total_ms = times.sum(axis=0) / 1e9
    return generic_bottleneck(
        step_ms=float(total_ms.sum()),
        input_ms=float(total_ms[INPUT]),
        collectives_ms=float(total_ms[COLLECTIVES]),
        kernel_launch_ms=float(total_ms[LAUNCH]),
        all_other_ms=float(total_ms[OTHER]),
        uses_tf_data=uses_tf_data,
        input_error_percent=100 * input_share(steps, times)[1],
    )


def input_evidence(stats: CaptureStats) -> tuple[str, ...]:
    """Which of the training loop's annotations count as input, the longest first.

    Empty where none does. On GPUs it is how long they starved; TPUs' own events say it all.
    """
    steps = complete_steps(stats)
    total_ps = int(steps.duration_ps.sum())
    if not total_ps:
        return ()
    if steps.has_device:
        return _starving(stats, steps, total_ps)
    spent: dict[str, int] = {}
    for host in stats.hosts:
        own = host.own_steps(steps)
        own = own[own >= 0]
        for name, phase_ps in zip(host.activity.phases, host.activity.phase_ps, strict=True):
            if names_input(name):
                spent[name] = spent.get(name, 0) + int(phase_ps[own].sum())
    longest = sorted((name for name in spent if spent[name]), key=lambda name: (-spent[name], name))
    return tuple(
        f"The annotation '{name}' counts as input: {spent[name] / total_ps:.1%} of the step time "
        "is spent in it."
        for name in longest[:MAX_EVIDENCE]
    )


def _starving(stats: CaptureStats, steps: StepDatabase, total_ps: int) -> tuple[str, ...]:
    starved_ps = sum(int(starved_times_ps(steps, host)[1].sum()) for host in stats.hosts)
    if not starved_ps:
        return ()
    return (
        f"In {starved_ps / total_ps:.1%} of the step time no GPU of a host ran anything while a "
        "thread of the host waited for the next batch.",
    )
