"""Traces every Python call of all threads, the ones that run already too.

Calls are told by ``sys.monitoring`` from Python 3.12 on and by a profile function before. Both
slow Python down, so depth and number of calls are bounded, and sampling is the default.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, Protocol

from podscope.profiler.code_names import code_name, is_own
from podscope.profiler.errors import ProfilerError
from podscope.profiler.frames import current_frames
from podscope.profiler.recording import Span
from podscope.profiler.sampling import MAX_DEPTH, stack_of

MAX_CALLS: Final = 1_000_000


class CallTracingError(ProfilerError):
    """Calls cannot be traced in this interpreter now."""


class _Hook(Protocol):
    def install(self) -> None: ...

    def remove(self) -> None: ...


class CallTracer:
    """Spans of Python calls, by thread.

    Args:
        max_calls: Calls kept; the tracer takes itself out when there are more.
        max_depth: Calls nested deeper are left out.
    """

    def __init__(self, max_calls: int = MAX_CALLS, max_depth: int = MAX_DEPTH) -> None:
        self.spans: dict[int, list[Span]] = {}
        self._max_depth = max_depth
        self._max_calls = self._calls_left = max_calls
        self._calls: dict[int, list[tuple[CodeType, int, int]]] = {}
        self._open: dict[int, list[tuple[CodeType, int]]] = {}
        self._hook: _Hook
        if sys.version_info >= (3, 12):
            self._hook = _Monitoring(self.enter, self.leave)
        else:
            self._hook = _ProfileFunction(self.enter, self.leave)
        self._lock = threading.Lock()
        self._is_installed = False

    def start(self) -> None:
        """Begin to trace.

        Raises:
            CallTracingError: other tools hold all of the interpreter's monitoring slots.
        """
        now_ns = time.perf_counter_ns()
        for thread, frame in current_frames().items():
            self._open[thread] = [(code, now_ns) for code in stack_of(frame)]
        self._hook.install()
        self._is_installed = True

    def stop(self) -> list[str]:
        """Trace no more and close what is open; return what the reader must know."""
        self._remove()
        now_ns = time.perf_counter_ns()
        for thread, opened in list(self._open.items()):
            calls = self._calls.setdefault(thread, [])
            calls.extend((code, start_ns, now_ns) for code, start_ns in opened[: self._max_depth])
        names: dict[CodeType, str] = {}
        for thread, calls in self._calls.items():
            self.spans[thread] = spans = []
            for code, start_ns, end_ns in calls:
                if not is_own(code):
                    name = names.get(code)
                    if name is None:
                        name = names[code] = code_name(code)
                    spans.append(Span(name, start_ns, end_ns, {}))
        if self._calls_left > 0:
            return []
        return [f"Python calls: only the first {self._max_calls:,} that ended were traced"]

    def enter(self, code: CodeType) -> None:
        """A call begins, or goes on, in the calling thread."""
        opened = self._open.get(threading.get_ident())
        if opened is None:
            opened = self._open.setdefault(threading.get_ident(), [])
        opened.append((code, time.perf_counter_ns()))

    def leave(self, code: CodeType) -> None:
        """A call ends, or pauses, in the calling thread."""
        thread = threading.get_ident()
        opened = self._open.get(thread)
        if not opened:
            return
        while opened[-1][0] is not code:
            # An inner call's end was not told, or this one's begin: only the first leaves a call
            # further out.
            if not any(outer is code for outer, _ in opened):
                return
            opened.pop()
        _, start_ns = opened.pop()
        if len(opened) < self._max_depth:
            calls = self._calls.get(thread)
            if calls is None:
                calls = self._calls.setdefault(thread, [])
            calls.append((code, start_ns, time.perf_counter_ns()))
            self._calls_left -= 1
            if self._calls_left <= 0:
                self._remove()

    def _remove(self) -> None:
        with self._lock:
            if self._is_installed:
                self._is_installed = False
                self._hook.remove()


_Call = Callable[[CodeType], None]


class _Monitoring:
    """Events of ``sys.monitoring``, which every thread tells."""

    def __init__(self, enter: _Call, leave: _Call) -> None:
        self._enter = enter
        self._leave = leave
        self._tool = -1

    def install(self) -> None:
        monitoring = _monitoring()
        # The profilers' slot first, then those that nobody has a claim to.
        for tool in (monitoring.PROFILER_ID, 3, 4):
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "podscope")
                self._tool = tool
                break
        else:
            msg = "cannot trace Python calls: other tools monitor this interpreter"
            raise CallTracingError(msg)
        told = monitoring.events
        for event in (told.PY_START, told.PY_RESUME, told.PY_THROW):
            monitoring.register_callback(self._tool, event, self._entered)
        for event in (told.PY_RETURN, told.PY_YIELD, told.PY_UNWIND):
            monitoring.register_callback(self._tool, event, self._left)
        monitoring.set_events(self._tool, sum(_events(told)))

    def remove(self) -> None:
        monitoring = _monitoring()
        monitoring.set_events(self._tool, 0)
        for event in _events(monitoring.events):
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)

    def _entered(self, code: CodeType, *_: object) -> None:
        self._enter(code)

    def _left(self, code: CodeType, *_: object) -> None:
        self._leave(code)


def _events(told: Any) -> tuple[int, ...]:
    return (
        told.PY_START,
        told.PY_RESUME,
        told.PY_THROW,
        told.PY_RETURN,
        told.PY_YIELD,
        told.PY_UNWIND,
    )


def _monitoring() -> Any:
    # Not under the name that older interpreters lack, so that the module loads there.
    return vars(sys)["monitoring"]


class _ProfileFunction:
    """A profile function in every thread.

    ``sys.setprofile`` reaches the calling thread alone and ``threading.setprofile`` those to
    come; what C programs call sets it in the others.
    """

    def __init__(self, enter: _Call, leave: _Call) -> None:
        self._enter = enter
        self._leave = leave
        # Held as long as a thread may call it.
        self._native = _TRACE_FUNCTION(self._told_native)

    def install(self) -> None:
        threading.setprofile(self._told)
        self._set_in_all_threads(self._native)

    def remove(self) -> None:
        threading.setprofile(None)
        self._set_in_all_threads(None)

    def _set_in_all_threads(self, function: Any) -> None:
        # No thread can begin or end meanwhile: these calls keep the interpreter's lock.
        api = ctypes.pythonapi
        api.PyInterpreterState_Get.restype = ctypes.c_void_p
        api.PyInterpreterState_ThreadHead.restype = ctypes.c_void_p
        api.PyThreadState_Next.restype = ctypes.c_void_p
        interpreter = ctypes.c_void_p(api.PyInterpreterState_Get())
        thread = api.PyInterpreterState_ThreadHead(interpreter)
        while thread:
            api._PyEval_SetProfile(ctypes.c_void_p(thread), function, None)
            thread = api.PyThreadState_Next(ctypes.c_void_p(thread))

    def _told(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._enter(frame.f_code)
        elif event == "return":
            self._leave(frame.f_code)

    def _told_native(self, _object: object, frame: FrameType, what: int, _argument: object) -> int:
        if what == _CALL:
            self._enter(frame.f_code)
        elif what == _RETURN:
            self._leave(frame.f_code)
        return 0


_CALL, _RETURN = 0, 3
_TRACE_FUNCTION = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.py_object, ctypes.c_int, ctypes.c_void_p
)
