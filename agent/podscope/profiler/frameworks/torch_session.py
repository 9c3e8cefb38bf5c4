"""PyTorch's profiler (Kineto), its trace converted to an XSpace."""

import gc
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from podscope.profiler.frameworks.session import FrameworkSession, FrameworkUnavailable
from podscope.profiler.options import ProfilerOptions

MAX_TRACE_BYTES: Final = 256 << 20
"""Of the file that PyTorch saves; reading it takes three to four times as much memory."""


def start(options: ProfilerOptions, *, is_remote: bool) -> FrameworkSession | None:
    """Begin a session if this process has loaded PyTorch's profiler; None when it has not.

    A remote capture begins in a server's thread and records all threads, but no memory events,
    which Kineto has for the thread alone that started it (and for its backward passes).

    Raises:
        FrameworkUnavailable: the program profiles itself with PyTorch, or cannot be profiled.
    """
    torch = sys.modules.get("torch")
    module = sys.modules.get("torch.profiler")
    if torch is None or module is None or not hasattr(module, "profile"):
        return None
    if options.host_tracer_level <= 0 and options.device_tracer_level <= 0:
        return None
    if _is_profiled(torch, module):
        msg = "PyTorch's part is missing: the program profiles itself with torch.profiler"
        raise FrameworkUnavailable(msg)
    return _TorchSession(torch, module, options, is_remote=is_remote)


def _is_profiled(torch: Any, module: Any) -> bool:
    """Whether a profiler of the program runs or warms up: starting another would end it."""
    if torch.autograd.profiler._is_profiler_enabled:
        return True
    idle = module.ProfilerAction.NONE
    return any(
        type(found) is module.profile
        and found.current_action is not idle
        and found.profiler is not None
        and getattr(found.profiler, "kineto_results", None) is None
        and getattr(found.profiler, "entered", False)
        for found in gc.get_objects()
    )


class _TorchSession:
    name = "PyTorch"

    def __init__(
        self, torch: Any, module: Any, options: ProfilerOptions, *, is_remote: bool
    ) -> None:
        self._thread = None if is_remote else threading.get_ident()
        activities = []
        if options.host_tracer_level > 0:
            activities.append(module.ProfilerActivity.CPU)
        supported = module.supported_activities()
        if options.device_tracer_level > 0:
            activities += [found for found in supported if found not in activities]
        config = None
        if is_remote:
            config = _all_threads(torch)
        self._profiler = module.profile(
            activities=[found for found in activities if found in supported],
            record_shapes=True,
            profile_memory=not is_remote,
            experimental_config=config,
            acc_events=False,
        )
        self._profiler.start()

    def mark_thread(self, native_id: int) -> None:
        """Kineto's lines have the system's thread ids already."""

    def stop(self) -> bytes:
        if self._thread not in (None, threading.get_ident()):
            msg = "PyTorch's part is missing: a capture of its thread ends in the same thread"
            raise FrameworkUnavailable(msg)
        # Of use to nobody before: whoever imports the library would pay for them.
        from podscope.profiler.frameworks.kineto import xspace_of
        from podscope.profiler.frameworks.kineto_file import read_trace

        self._profiler.stop()
        results = self._profiler.profiler.kineto_results
        handle, name = tempfile.mkstemp(prefix="podscope-", suffix=".json")
        os.close(handle)
        file = Path(name)
        try:
            results.save(name)
            size = file.stat().st_size
            if size > MAX_TRACE_BYTES:
                msg = (
                    f"PyTorch's part is left out: its trace has {size:,} bytes, and the training "
                    f"process reads {MAX_TRACE_BYTES >> 20} MiB at most; make the capture shorter"
                )
                raise FrameworkUnavailable(msg)
            with file.open(encoding="utf-8", errors="replace") as trace:
                return xspace_of(read_trace(trace))
        finally:
            file.unlink(missing_ok=True)


def _all_threads(torch: Any) -> Any:
    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError as error:
        msg = (
            "PyTorch's part is missing: this version profiles only the thread that starts, which a"
            " remote capture is not; use profiler.start in the program"
        )
        raise FrameworkUnavailable(msg) from error
