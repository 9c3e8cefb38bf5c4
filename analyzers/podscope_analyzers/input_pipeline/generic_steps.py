"""Steps of CPU and GPU hosts, one row each, in the categories of the input-pipeline page."""

from dataclasses import dataclass

import numpy as np

from podscope_analyzers.input_pipeline.bottleneck import Bottleneck, generic_bottleneck
from podscope_analyzers.input_pipeline.summaries import (
    Float64s,
    StepSummary,
    safe_divide,
    summarize,
)
from podscope_analyzers.steps import StepDatabase

# The core that stands for a whole CPU or GPU host. Of several hosts only the first has it, so
# the page shows the first host's steps; the pod viewer shows all.
HOST_CORE = 1

PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("device_compute", ("device_compute_16", "device_compute_32")),
    ("device_to_device", ("device_to_device", "device_wait_device")),
    ("device_collectives", ("device_collectives",)),
    ("host_compute", ("host_compute",)),
    ("kernel_launch", ("host_prepare",)),
    ("infeed", ("host_wait_input", "host_to_device", "device_wait_host")),
    ("outfeed", ("device_to_host",)),
    ("compile", ("host_compile",)),
    ("other", ("unknown_time",)),
)
"""The parts of a step in the order of the table, with the event types that each sums."""


@dataclass(frozen=True)
class GenericSteps:
    """Steps of a CPU or GPU host, all arrays of shape (n,) and in milliseconds.

    Attributes:
        names: What people call the steps: their name, or their number.
        step_numbers: Their numbers.
        duration_ms: Step times.
        parts_ms: Time by part, keyed as in ``PARTS``.
        transfer_ms: Of the input part, the copies to the device.
        step_time: Summary of the longest core of every step, all hosts' cores included.
    """

    names: tuple[str, ...]
    step_numbers: tuple[int, ...]
    duration_ms: Float64s
    parts_ms: dict[str, Float64s]
    transfer_ms: Float64s
    step_time: StepSummary

    def __len__(self) -> int:
        """How many steps."""
        return len(self.names)

    @property
    def transfer_ratio(self) -> float:
        """Mean copy time to the device over mean step time."""
        return safe_divide(float(self.transfer_ms.sum()), float(self.duration_ms.sum()))

    def summary(self, part: str) -> StepSummary:
        """Over the steps, the time of one part."""
        return summarize(self.parts_ms[part])

    def input_percent(self) -> StepSummary:
        """Share of every step that waits for input or copies it, in percent."""
        return summarize(
            [
                100 * safe_divide(float(waiting), float(duration))
                for waiting, duration in zip(self.parts_ms["infeed"], self.duration_ms, strict=True)
            ]
        )

    def bottleneck(self, *, uses_tf_data: bool) -> Bottleneck:
        """What bounds the steps."""
        total = {part: float(self.parts_ms[part].sum()) for part, _ in PARTS}
        return generic_bottleneck(
            step_ms=float(self.duration_ms.sum()),
            input_ms=total["infeed"],
            collectives_ms=total["device_collectives"],
            kernel_launch_ms=total["kernel_launch"],
            all_other_ms=total["other"],
            uses_tf_data=uses_tf_data,
        )


def generic_steps(steps: StepDatabase) -> GenericSteps:
    """The steps in which the first host took part."""
    rows = np.flatnonzero(steps.core_id == HOST_CORE)
    numbers = steps.step_numbers[steps.row_step[rows]].tolist()
    names = tuple(
        steps.row_name(row) or str(number)
        for row, number in zip(rows.tolist(), numbers, strict=True)
    )
    return GenericSteps(
        names=names,
        step_numbers=tuple(numbers),
        duration_ms=steps.duration_ps[rows] / 1e9,
        parts_ms={part: steps.time_ps(*types)[rows] / 1e9 for part, types in PARTS},
        transfer_ms=steps.time_ps("host_to_device", "device_wait_host")[rows] / 1e9,
        step_time=summarize(longest_core_ms(steps)),
    )


def longest_core_ms(steps: StepDatabase) -> Float64s:
    """Longest time of every step over its cores, SparseCores aside; milliseconds, shape (s,)."""
    longest = np.zeros(len(steps), np.int64)
    rows = np.flatnonzero(~steps.is_sparse_core)
    np.maximum.at(longest, steps.row_step[rows], steps.duration_ps[rows])
    return longest / 1e9
