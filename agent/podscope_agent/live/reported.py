"""What the analysis of the last capture found, kept until it says nothing of now any more."""

import threading
import time
from typing import Final

from podscope_agent.live.model import DeviceSample
from podscope_protos.v1 import agent_service_pb2 as own

_KEPT_S: Final = 3600.0
ALL_CHIPS: Final = "all"
"""The chip of figures that are means over the host's devices."""


class ReportedFigures:
    """A backend whose figures a collector reports."""

    name = "profile"

    def __init__(self, kept_s: float = _KEPT_S) -> None:
        """Forget figures after `kept_s`."""
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._last: own.ReportFiguresRequest | None = None
        self._taken_at = 0.0
        self._step_time_before_s: float | None = None

    def take(
        self, reported: own.ReportFiguresRequest, step_time_before_s: float | None = None
    ) -> bool:
        """Keep a report; False when a later capture was reported already.

        Args:
            reported: What was found.
            step_time_before_s: How long a step took when the capture began.
        """
        with self._lock:
            if self._last is not None and reported.captured_at_ns < self._last.captured_at_ns:
                return False
            self._last, self._taken_at = reported, time.monotonic()
            self._step_time_before_s = step_time_before_s
            return True

    @property
    def step_time_s(self) -> float | None:
        """How long a step took in the last capture."""
        return next((sample.step_time_seconds for sample in self.sample()), None)

    @property
    def overhead_ratio(self) -> float | None:
        """Share of the last capture's step time that was not there before it, 0-1."""
        during_s, before_s = self.step_time_s, self._step_time_before_s
        if during_s is None or before_s is None:
            return None
        return max(0.0, 1 - before_s / during_s) if during_s > 0 else None

    def sample(self) -> list[DeviceSample]:
        """The figures as those of one device that stands for all; empty when there are none."""
        with self._lock:
            last = self._last
            if last is None or time.monotonic() - self._taken_at > self._kept_s:
                return []
        known = {
            name: getattr(last, name)
            for name in ("duty_cycle_ratio", "flops_per_second", "step_time_seconds")
            if last.HasField(name)
        }
        kind = last.device_kind
        return [
            DeviceSample(
                accelerator="tpu" if "TPU" in kind.upper() else "gpu" if kind else "cpu",
                chip=ALL_CHIPS,
                model=kind,
                flops_source="profile" if last.HasField("flops_per_second") else "",
                peak_flops_per_second=(
                    last.peak_flops_per_second if last.HasField("peak_flops_per_second") else None
                ),
                **known,
            )
        ]
