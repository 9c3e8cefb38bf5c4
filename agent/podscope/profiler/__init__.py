"""The profiler API that people know, for any Python process.

``server.start(port)`` makes the process a capture target. ``start``/``stop``/``Profile`` record
from inside. ``Trace`` names a span; with ``_r=1`` and ``step_num`` it marks a step, as ``steps``
and ``keras_callback`` do. Recorded besides: every thread's Python stack, what process and host
use, and what the loaded frameworks' own profilers see.
"""

import importlib
from typing import TYPE_CHECKING, Any

from podscope.profiler.annotation import StepTrace, Trace
from podscope.profiler.errors import ProfilerAlreadyRunningError, ProfilerError
from podscope.profiler.keras import keras_callback
from podscope.profiler.local import Profile, start, stop
from podscope.profiler.options import ProfilerOptions
from podscope.profiler.steps import steps

if TYPE_CHECKING:
    from podscope.profiler import client, server
    from podscope.profiler.access import Access

__all__ = [
    "Access",
    "Profile",
    "ProfilerAlreadyRunningError",
    "ProfilerError",
    "ProfilerOptions",
    "StepTrace",
    "Trace",
    "client",
    "keras_callback",
    "server",
    "start",
    "steps",
    "stop",
]


def __getattr__(name: str) -> Any:
    """What needs gRPC is imported at its first use: programs that name spans alone go without."""
    if name in ("client", "server"):
        return importlib.import_module(f"{__name__}.{name}")
    if name == "Access":
        return importlib.import_module(f"{__name__}.access").Access
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
