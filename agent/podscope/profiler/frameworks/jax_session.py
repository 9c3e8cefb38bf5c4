"""JAX's profiler session, started the way JAX's own server starts it."""

import sys
import types
from typing import Any, Final

from podscope.profiler.frameworks.session import FrameworkSession, FrameworkUnavailable
from podscope.profiler.joining import THREAD_MARK
from podscope.profiler.options import ProfilerOptions

_BUSY: Final = (
    "JAX's part is missing: another profiling session runs in its runtime, one that the program"
    " or JAX's profiler server started"
)


def start(options: ProfilerOptions, *, is_remote: bool) -> FrameworkSession | None:
    """Begin a session if this process has loaded JAX; None when it has not.

    Raises:
        FrameworkUnavailable: the program profiles itself with JAX, or this JAX is too different.
    """
    module = sys.modules.get("jax._src.profiler")
    # Half-imported by another thread: that is not loaded yet.
    if module is None or not hasattr(module, "stop_trace"):
        return None
    try:
        return _JaxSession(module, options)
    except AttributeError as error:
        msg = f"JAX's part is missing: this version's profiler is not known ({error})"
        raise FrameworkUnavailable(msg) from error


class _JaxSession:
    name = "JAX"

    def __init__(self, module: Any, options: ProfilerOptions) -> None:
        self._native = module._profiler
        self._state = module._profile_state
        asked = module.ProfileOptions()
        asked.host_tracer_level = options.host_tracer_level
        # The library samples Python itself.
        asked.python_tracer_level = 0
        asked.enable_hlo_proto = True
        # Some versions have no such option: their objects take it and go on.
        asked.device_tracer_level = options.device_tracer_level
        self._placeholder = _Placeholder()
        with self._state.lock:
            if self._state.profile_session is not None:
                raise FrameworkUnavailable(_BUSY)
            self._session = self._native.ProfilerSession(asked)
            # A start_trace beside a running session would succeed, its stop_trace fail, and all
            # later ones with it. With this it is refused at once, and works after the capture.
            self._state.profile_session = self._placeholder

    def mark_thread(self, native_id: int) -> None:
        with self._native.TraceMe(THREAD_MARK, thread=native_id):
            pass

    def stop(self) -> bytes:
        try:
            space: bytes = self._session.stop()
        except Exception as error:
            if "ALREADY_EXISTS" in str(error):
                raise FrameworkUnavailable(_BUSY) from error
            raise
        finally:
            with self._state.lock:
                if self._state.profile_session is self._placeholder:
                    self._state.profile_session = None
        return space


class _Placeholder(types.SimpleNamespace):
    """Stands where JAX keeps the session of the program; the program cannot stop ours."""

    def stop_and_export(self, *_: object) -> None:
        msg = "No profile started"
        raise RuntimeError(msg)

    stop = stop_and_export
