"""Keeps what an error says of memory that ran out: the tracers of JAX and TensorFlow do not."""

import re
import time
from typing import Final

from podscope.profiler import recording

_TELLS: Final = re.compile(
    r"out of memory|OOM when allocating|RESOURCE_EXHAUSTED|can't allocate memory"
    r"|Unable to allocate",
    re.IGNORECASE,
)
_MAX_CHARACTERS: Final = 2000


def record_failure(error: BaseException | None) -> None:
    """Records an error as an event if it tells of memory that ran out; passing several spans, once.

    Args:
        error: What leaves a span or a profile; None for nothing.
    """
    now_recording = recording.active
    if error is None or now_recording is None or id(error) == now_recording.last_failure:
        return
    message = str(error)[:_MAX_CHARACTERS]
    if _TELLS.search(message):
        now_recording.last_failure = id(error)
        now_ns = time.perf_counter_ns()
        now_recording.add(message, now_ns, now_ns, {})
