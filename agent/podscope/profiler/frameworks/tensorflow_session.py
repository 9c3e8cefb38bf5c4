"""TensorFlow's profiler session."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from podscope.profiler.frameworks.session import FrameworkSession, FrameworkUnavailable
from podscope.profiler.joining import THREAD_MARK
from podscope.profiler.options import ProfilerOptions

_MODULE: Final = "tensorflow.python.profiler.profiler_v2"
_BUSY: Final = (
    "TensorFlow's part is missing: another profiling session runs in its runtime, one that the"
    " program or TensorFlow's profiler server started"
)


def start(options: ProfilerOptions, *, is_remote: bool) -> FrameworkSession | None:
    """Begin a session if this process has loaded TensorFlow; None when it has not.

    Raises:
        FrameworkUnavailable: another session runs, or this TensorFlow is too different.
    """
    module = sys.modules.get(_MODULE)
    if module is None or not hasattr(module, "stop"):
        return None
    try:
        return _TensorFlowSession(module, options)
    except AttributeError as error:
        msg = f"TensorFlow's part is missing: this version's profiler is not known ({error})"
        raise FrameworkUnavailable(msg) from error


class _TensorFlowSession:
    name = "TensorFlow"

    def __init__(self, module: Any, options: ProfilerOptions) -> None:
        self._module = module
        trace_me = sys.modules.get("tensorflow.python.profiler.internal._pywrap_traceme")
        self._trace_me = None if trace_me is None else trace_me.TraceMe
        self._session = module._pywrap_profiler.ProfilerSession()
        self._placeholder = _Placeholder(module)
        asked = {
            "host_tracer_level": options.host_tracer_level,
            # The library samples Python itself.
            "python_tracer_level": 0,
            "device_tracer_level": options.device_tracer_level,
        }
        # The session hands its XSpace out as a file alone.
        self._folder = Path(tempfile.mkdtemp(prefix="podscope-"))
        try:
            with module._profiler_lock:
                if module._profiler is not None:
                    raise FrameworkUnavailable(_BUSY)
                try:
                    self._session.start(str(self._folder), asked)
                except module.errors.AlreadyExistsError as error:
                    raise FrameworkUnavailable(_BUSY) from error
                # A start beside a running session would fail and leave TensorFlow's module
                # started for good. With this it is refused, and works after the capture.
                module._profiler = self._placeholder
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def mark_thread(self, native_id: int) -> None:
        if self._trace_me is not None:
            mark = self._trace_me(THREAD_MARK, thread=native_id)
            mark.Stop() if hasattr(mark, "Stop") else mark.__exit__(None, None, None)

    def stop(self) -> bytes:
        try:
            self._session.export_to_tb()
            files = sorted(self._folder.glob("plugins/profile/*/*.xplane.pb"))
            if not files:
                msg = "TensorFlow's part is missing: its session wrote no profile"
                raise FrameworkUnavailable(msg)
            return files[0].read_bytes()
        finally:
            with self._module._profiler_lock:
                if self._module._profiler is self._placeholder:
                    self._module._profiler = None
            shutil.rmtree(self._folder, ignore_errors=True)


class _Placeholder:
    """Stands where TensorFlow keeps the session of the program; the program cannot stop ours."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def export_to_tb(self) -> None:
        msg = "Cannot export profiling results. No profiler is running."
        raise self._module.errors.UnavailableError(None, None, msg)
