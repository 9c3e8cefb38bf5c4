"""Supervising child processes: start in order, restart with back-off, end every one by pid."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType

import structlog

log = structlog.get_logger(__name__)

_MIN_DELAY = 0.5
# A capture has a deadline and waits for its worker: a long pause would lose it. A start every few
# seconds is what a child that cannot live at all may cost.
_MAX_DELAY = 4.0
_STABLE_SECONDS = 10.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class ChildSpec:
    """A process to keep running.

    Attributes:
        env: Its whole environment.
        stop_signals: Signals that end it, each followed by a wait; then it is killed.
        before_start: Called before each start.
        ends_last: Whether others need it until they have ended.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,)
    before_start: Callable[[], None] | None = None
    ends_last: bool = False


@dataclass
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    delay: float = _MIN_DELAY
    start_at: float = field(default_factory=time.monotonic)


class Supervisor:
    """Keeps children running until told to stop.

    Children run in process groups of their own, so that Ctrl-C in a terminal reaches only the
    supervisor, which ends them in the reverse order of their start.
    """

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._children: list[_Child] = []
        self.stop_requested = False

    def handle_signals(self) -> None:
        """Let SIGINT, SIGTERM and SIGHUP ask for the end."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop_requested = True

    def start(self, spec: ChildSpec) -> None:
        """Start a child and keep it running from now on."""
        child = _Child(spec)
        self._children.append(child)
        self._launch(child)

    def _launch(self, child: _Child) -> None:
        if child.spec.before_start is not None:
            child.spec.before_start()
        child.process = subprocess.Popen(  # noqa: S603 - our own programs, no shell
            list(child.spec.command),
            env=dict(child.spec.env),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno(),
            start_new_session=True,
            # The supervisor has one thread; the callback only makes a system call.
            preexec_fn=_ending_with(os.getpid()),
        )
        child.started_at = time.monotonic()
        log.debug("child_started", child=child.spec.name, pid=child.process.pid)

    def pid(self, name: str) -> int | None:
        """Process id of a running child."""
        for child in self._children:
            if child.spec.name == name and child.process is not None:
                return child.process.pid if child.process.poll() is None else None
        return None

    def check(self) -> None:
        """Restart children that died, each after its back-off."""
        now = time.monotonic()
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                code = child.process.returncode
                child.process = None
                if now - child.started_at > _STABLE_SECONDS:
                    child.delay = _MIN_DELAY
                log.warning(
                    "child_died", child=child.spec.name, exit_code=code, restart_in=child.delay
                )
                child.start_at = now + child.delay
                child.delay = min(child.delay * 2, _MAX_DELAY)
            if child.process is None and now >= child.start_at:
                self._launch(child)

    def wait(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Watch the children for a while, or until something is true or the end is asked for."""
        deadline = time.monotonic() + seconds
        while not self.stop_requested and time.monotonic() < deadline:
            self.check()
            if until is not None and until():
                return True
            time.sleep(_POLL_SECONDS)
        return False

    def stop(self) -> None:
        """End every child; a second call does nothing."""
        children, self._children = self._children, []
        _end([child for child in children if not child.spec.ends_last], self._grace_seconds)
        _end([child for child in children if child.spec.ends_last], self._grace_seconds)


def _end(children: Sequence[_Child], grace_seconds: float) -> None:
    alive = [(child.spec, child.process) for child in children if child.process is not None]
    for step in range(max((len(spec.stop_signals) for spec, _ in alive), default=0)):
        alive = [(spec, process) for spec, process in alive if process.poll() is None]
        for spec, process in alive:
            process.send_signal(spec.stop_signals[min(step, len(spec.stop_signals) - 1)])
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and any(p.poll() is None for _, p in alive):
            time.sleep(_POLL_SECONDS / 4)
    for spec, process in alive:
        if process.poll() is None:
            log.warning("child_killed", child=spec.name)
            process.kill()
        process.wait()


def _load_prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return prctl


_prctl = _load_prctl()
_PR_SET_PDEATHSIG = 1


def _ending_with(parent: int) -> Callable[[], None] | None:
    """What a child calls before its program starts, so that it ends with ``parent``.

    A supervisor that is killed outright cannot end its children; the kernel does.
    """
    prctl = _prctl
    if prctl is None:
        return None

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return arrange
