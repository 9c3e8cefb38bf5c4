"""The input pipeline of a capture: steps, bottleneck, host operations, warnings."""

from collections.abc import Mapping
from dataclasses import dataclass

from podscope_analyzers.core_details import CoreDetails
from podscope_analyzers.input_pipeline import bottleneck
from podscope_analyzers.input_pipeline.bottleneck import Bottleneck
from podscope_analyzers.input_pipeline.generic_steps import GenericSteps, generic_steps
from podscope_analyzers.input_pipeline.host_ops import InputOp, InputTime, input_ops, input_time
from podscope_analyzers.input_pipeline.summaries import StepSummary
from podscope_analyzers.input_pipeline.tpu_steps import TpuBottleneck, TpuSteps, tpu_steps
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.steps import StepDatabase

NO_STEPS = (
    "No step marker was seen, so the step time is unknown: either the steps are not annotated, or "
    "the capture was shorter than a step. Annotate them, or capture for longer."
)
EMPTY_INTERSECTION = (
    "The hosts have no step in common: their captures do not overlap in time. Capture for longer, "
    "or capture all hosts at once."
)


@dataclass(frozen=True)
class InputPipeline:
    """What both the input-pipeline page and the overview show.

    Attributes:
        steps: Of the kind of the hardware.
        tpu_bottleneck: Only for steps of TPUs.
        bottleneck: What bounds the steps, in terms that all kinds of hardware share.
        warnings: About the steps.
    """

    hardware_type: str
    steps: GenericSteps | TpuSteps
    bottleneck: Bottleneck
    tpu_bottleneck: TpuBottleneck | None
    ops: tuple[InputOp, ...]
    time: InputTime
    warnings: tuple[str, ...]

    @property
    def step_time(self) -> StepSummary:
        """Summary of the step times, milliseconds."""
        return self.steps.step_time

    @property
    def next_step(self) -> str:
        """What to look at after the conclusion."""
        return bottleneck.next_step(
            self.bottleneck.input_classification, uses_tf_data=self.time.uses_tf_data
        )

    @property
    def reference_bottleneck(self) -> Bottleneck | None:
        """What the reference's overview shows.

        Its generic analysis cannot read the steps of TPUs, and leaves all its fields empty.
        """
        return None if self.tpu_bottleneck is not None and len(self.steps) else self.bottleneck


def analyze_input_pipeline(
    steps: StepDatabase,
    host_ops: OpDatabase,
    cores: Mapping[int, CoreDetails],
    hardware_type: str,
) -> InputPipeline:
    """Analyze the input pipeline of a host or of several.

    Args:
        steps: Combined over the hosts.
        host_ops: Combined over the hosts.
        cores: What is known of the TPU cores, by core id.
        hardware_type: ``TPU`` selects the analysis of TPU steps.
    """
    ops = input_ops(host_ops)
    warnings = step_warnings(steps)
    if hardware_type == "TPU":
        found = tpu_steps(steps, cores)
        time = input_time(ops, host_ops, transfer_ratio=0.0)
        verdict = found.bottleneck()
        return InputPipeline(
            hardware_type, found, verdict.as_generic(), verdict, tuple(ops), time, warnings
        )
    generic = generic_steps(steps)
    time = input_time(ops, host_ops, transfer_ratio=generic.transfer_ratio)
    bound = generic.bottleneck(uses_tf_data=time.uses_tf_data)
    return InputPipeline(hardware_type, generic, bound, None, tuple(ops), time, warnings)


def step_warnings(steps: StepDatabase) -> tuple[str, ...]:
    """What people should know about the steps before they read their times."""
    found = []
    if not len(steps):
        found.append(EMPTY_INTERSECTION if steps.is_intersection_empty else NO_STEPS)
    if steps.steps_dropped > 0:
        found.append(
            f"{steps.steps_dropped} further steps were left out: the tables hold as many as the "
            "page can show."
        )
    return tuple(found)
