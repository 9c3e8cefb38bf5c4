"""The profiler API that people know, for any Python process.

``server.start(port)`` makes the process a capture target. ``start``/``stop``/``Profile`` record
from inside. ``Trace`` names a span; with ``_r=1`` and ``step_num`` it marks a step. What is
recorded without any framework: those spans, and every thread's Python stack, sampled.
"""

from podscope.profiler import client, server
from podscope.profiler.annotation import StepTrace, Trace
from podscope.profiler.errors import ProfilerAlreadyRunningError, ProfilerError
from podscope.profiler.local import Profile, start, stop
from podscope.profiler.session import ProfilerOptions

__all__ = [
    "Profile",
    "ProfilerAlreadyRunningError",
    "ProfilerError",
    "ProfilerOptions",
    "StepTrace",
    "Trace",
    "client",
    "server",
    "start",
    "stop",
]
