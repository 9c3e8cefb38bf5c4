"""What bounds the steps: shares of the step time turned into classes and sentences."""

from dataclasses import dataclass
from typing import Final, Literal

InputClass = Literal["unknown", "host", "both", "device"]

HIGHLY_INPUT_BOUND = 20.0
MODERATELY_INPUT_BOUND = 5.0
ALL_OTHER_SUSPICIOUS = 3.0
HIGH = 15.0
MODERATE = 3.0

# A share that its scatter from step to step does not tell from a threshold counts as reaching it.
TOLERATED_ERRORS = 3.0
MOST_TOLERATED = 0.1

NO_STEP_TIME = "No step time was measured, so what bounds the program cannot be told."


@dataclass(frozen=True)
class Bottleneck:
    """Classes and sentences, as the input-pipeline and overview tables carry them.

    Attributes:
        input_classification: Where the time goes: ``host`` and ``both`` mean waiting for input.
        kernel_launch: ``no``, ``moderate`` or ``high``; likewise ``all_other``, ``collectives``.
    """

    input_classification: InputClass
    input_statement: str
    output_statement: str = ""
    kernel_launch: str = "no"
    kernel_launch_statement: str = ""
    all_other: str = "no"
    all_other_statement: str = ""
    collectives: str = "no"
    collectives_statement: str = ""


ELSEWHERE: Final = "Look for time elsewhere."

UNKNOWN = Bottleneck("unknown", NO_STEP_TIME)


@dataclass(frozen=True)
class InputVerdict:
    """What the test for waiting on input found."""

    classification: InputClass
    statement: str
    blames_all_other: bool = False


def reaches(percent: float, threshold: float, error_percent: float = 0.0) -> bool:
    """Whether a share reaches a threshold, as far as its standard error can tell.

    By no more than a tenth of the threshold: a few uneven steps have a large error.
    """
    tolerated = min(TOLERATED_ERRORS * error_percent, MOST_TOLERATED * threshold)
    return percent + tolerated >= threshold


def classify_input(
    input_percent: float, all_other_percent: float, input_error_percent: float = 0.0
) -> InputVerdict:
    """Class the steps by their share of waiting for input, and of time nobody accounts for.

    Args:
        input_percent: Of the step time.
        all_other_percent: Likewise.
        input_error_percent: Standard error of the first; the reference knows none.
    """
    if reaches(input_percent, HIGHLY_INPUT_BOUND, input_error_percent):
        return InputVerdict(
            "host",
            f"The program is HIGHLY input-bound: {input_percent:.1f}% of the step time is "
            "spent waiting for input. Make the input faster before anything else.",
        )
    if reaches(input_percent, MODERATELY_INPUT_BOUND, input_error_percent):
        return InputVerdict(
            "both",
            f"The program is MODERATELY input-bound: {input_percent:.1f}% of the step time is "
            "spent waiting for input. Look at the input and at the rest of the step.",
        )
    if all_other_percent >= ALL_OTHER_SUSPICIOUS:
        return InputVerdict(
            "both",
            f"The program is POTENTIALLY input-bound: {all_other_percent:.1f}% of the step time "
            "is in no known category, which may be input or Python running between steps.",
            blames_all_other=True,
        )
    return InputVerdict(
        "device",
        f"The program is NOT input-bound: only {input_percent:.1f}% of the step time is spent "
        f"waiting for input. {ELSEWHERE}",
    )


def classify_output(output_percent: float) -> str:
    """A sentence when writing output takes a share of the step worth looking at."""
    if output_percent >= HIGHLY_INPUT_BOUND:
        return (
            f"The program is HIGHLY output-bound: {output_percent:.1f}% of the step time is "
            "spent on output. Reduce it before anything else."
        )
    if output_percent >= MODERATELY_INPUT_BOUND:
        return (
            f"The program is MODERATELY output-bound: {output_percent:.1f}% of the step time is "
            "spent on output. Look at the output and at the rest of the step."
        )
    return ""


def classify_share(percent: float) -> str:
    """``high``, ``moderate`` or ``no``."""
    if percent >= HIGH:
        return "high"
    return "moderate" if percent >= MODERATE else "no"


def generic_bottleneck(
    *,
    step_ms: float,
    input_ms: float,
    collectives_ms: float,
    kernel_launch_ms: float,
    all_other_ms: float,
    uses_tf_data: bool,
    input_error_percent: float = 0.0,
) -> Bottleneck:
    """What bounds the steps of CPU and GPU hosts.

    Args:
        step_ms: Sum of all step times; the other times are sums over the same steps.
        input_ms: Waiting for input, and copying it to the device.
        collectives_ms: In collectives between devices.
        kernel_launch_ms: Launching kernels.
        all_other_ms: In no known category.
        uses_tf_data: Whether the host reads or prepares data through tf.data.
        input_error_percent: Standard error of the share of input.
    """
    if step_ms <= 0:
        return UNKNOWN
    verdict = classify_input(
        100 * input_ms / step_ms, 100 * all_other_ms / step_ms, input_error_percent
    )
    launch_percent = 100 * kernel_launch_ms / step_ms
    collectives_percent = 100 * collectives_ms / step_ms
    all_other_percent = 100 * all_other_ms / step_ms
    launch, collectives = classify_share(launch_percent), classify_share(collectives_percent)
    all_other = "no" if verdict.blames_all_other else classify_share(all_other_percent)
    return Bottleneck(
        input_classification=verdict.classification,
        input_statement=verdict.statement,
        kernel_launch=launch,
        kernel_launch_statement=_launch_statement(launch, launch_percent, uses_tf_data),
        all_other=all_other,
        all_other_statement=""
        if all_other == "no"
        else f"{all_other_percent:.1f}% of the step time is in no known category, which may be "
        "Python running between steps.",
        collectives=collectives,
        collectives_statement=""
        if collectives == "no"
        else f"{collectives_percent:.1f}% of the step time is spent in collectives between "
        "devices.",
    )


def _launch_statement(classification: str, percent: float, uses_tf_data: bool) -> str:
    if classification == "no":
        return ""
    statement = f"{percent:.1f}% of the step time is spent launching kernels."
    if uses_tf_data:
        statement += (
            " tf.data may compete for the CPU: try TF_GPU_THREAD_MODE=gpu_private in the "
            "environment."
        )
    return statement


def next_step(classification: str, *, uses_tf_data: bool) -> str:
    """What to look at after the conclusion."""
    if classification not in {"host", "both"}:
        return "Nothing further is needed on this page."
    if uses_tf_data:
        return "Look at the host's operations below for where the input time goes."
    return (
        "The host's operations are unknown because the input pipeline does not use tf.data: "
        "annotate it, or move it to tf.data, to see where its time goes."
    )
