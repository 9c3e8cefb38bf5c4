"""Keeps what an error says of memory that ran out: the tracers of JAX and TensorFlow do not."""

import contextlib
import re
import time
from typing import Final

from podscope.profiler import recording

_TELLS: Final = re.compile(
    r"out of memory|OOM when allocating|can't allocate memory|Unable to allocate"
    r"|RESOURCE_EXHAUSTED.*(memory|allocat)",
    re.IGNORECASE | re.DOTALL,
)
_MAX_CHARACTERS: Final = 2000
_KEPT_BY: Final = "__podscope_kept_by__"


def record_failure(error: BaseException | None) -> None:
    """Records an error as an event if it tells of memory that ran out; passing several spans, once.

    Args:
        error: What leaves a span or a profile; None for nothing.
    """
    now_recording = recording.active
    if error is None or now_recording is None:
        return
    if getattr(error, _KEPT_BY, None) == now_recording.start_ns:
        return
    message = ""
    # An error whose text fails stays the user's to see.
    with contextlib.suppress(Exception):
        message = str(error)[:_MAX_CHARACTERS]
    if _TELLS.search(message):
        # Where the error takes no attribute, every span that it leaves records it.
        with contextlib.suppress(Exception):
            setattr(error, _KEPT_BY, now_recording.start_ns)
        now_ns = time.perf_counter_ns()
        now_recording.add(message, now_ns, now_ns, {})
