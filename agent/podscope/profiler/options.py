"""What a capture of this process records."""

from typing import Final, NamedTuple

SAMPLE_STACKS: Final = 1
TRACE_CALLS: Final = 2


class ProfilerOptions(NamedTuple):
    """What to record; the fields are those of TensorFlow's options.

    Attributes:
        host_tracer_level: 0 leaves out `Trace` spans, garbage-collection pauses and the counters
            of process and host; a framework's own session gets the level as it is.
        python_tracer_level: 0 leaves Python out, 1 samples the stacks of all threads, 2 and more
            trace every call.
        device_tracer_level: 0 leaves the devices out of a framework's session.
        delay_ms: Begin to record so much later, while the program goes on; None begins at once.
    """

    host_tracer_level: int = 2
    python_tracer_level: int = SAMPLE_STACKS
    device_tracer_level: int = 1
    delay_ms: int | None = None
