"""Tells the agent of this host, if there is one, that this process can be captured.

The agent listens on a Unix socket. A connection that stays open is the registration: when the
process ends, however it ends, the agent sees the connection close. While it is open, a line now and
then tells how long the process's steps take.
"""

import contextlib
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from podscope.profiler import step_times

RUNTIME_DIR_VARIABLE = "PODSCOPE_RUNTIME_DIR"
SOCKET_NAME = "agent.sock"

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_TELL_EVERY_S = 2.0
# The variables by which schedulers and frameworks number the processes of a job.
_LABELS = {
    "job": ("PODSCOPE_JOB", "JOBSET_NAME", "SLURM_JOB_NAME"),
    "run": ("PODSCOPE_RUN", "WANDB_RUN_ID"),
    "rank": ("RANK", "JAX_PROCESS_ID", "SLURM_PROCID", "JOB_COMPLETION_INDEX"),
}
_FRAMEWORKS = ("jax", "tensorflow", "torch")


def runtime_dirs() -> list[Path]:
    """Where an agent's socket may be, the likeliest first."""
    chosen = os.environ.get(RUNTIME_DIR_VARIABLE)
    if chosen:
        return [Path(chosen)]
    folders = [Path("/run/podscope")]
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own:
        folders.append(Path(own) / "podscope")
    shared = temporary_dir() / f"podscope-{os.getuid()}"
    if is_own(shared):
        folders.append(shared)
    return folders


def temporary_dir() -> Path:
    """The system's folder of temporary files, also where nothing can be written to it."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path("/tmp")  # noqa: S108 - a place to look; nothing is written


def is_own(folder: Path) -> bool:
    """Whether a folder is this user's, or not there; where all may write, any may be quicker."""
    try:
        return folder.lstat().st_uid == os.getuid()
    except OSError:
        return True


class Registration:
    """Keeps this process known to the agent, also to one that starts later or starts again.

    Args:
        port: Where the process serves its profiler.
        host: Name or address that the agent reaches it by.
        framework: Whose profiler it is; guessed from what is imported when empty.
        labels: Beyond those that the environment tells (job, run, rank).
    """

    def __init__(
        self,
        port: int,
        host: str = "localhost",
        framework: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._record = {
            "pid": os.getpid(),
            "host": host,
            "port": port,
            "framework": framework or _loaded_framework(),
            "labels": {**_labels_of_environment(), **(labels or {})},
            "started_at_ns": time.time_ns(),
        }
        self._over = threading.Event()
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(
            target=self._keep, name="podscope-registration", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Be known no longer."""
        self._over.set()
        connected = self._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
        self._thread.join(timeout=2)

    def _keep(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._over.is_set():
            if self._register():
                pause_s = _FIRST_PAUSE_S
            self._over.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _register(self) -> bool:
        """Stay connected until the agent goes; False when there was none."""
        line = json.dumps(self._record).encode() + b"\n"
        for folder in runtime_dirs():
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                try:
                    connection.connect(str(folder / SOCKET_NAME))
                    connection.sendall(line)
                    self._socket = connection
                    self._tell_steps(connection)
                except OSError:
                    if self._socket is None:
                        continue
                finally:
                    was_connected = self._socket is not None
                    self._socket = None
            if was_connected:
                return True
        return False

    def _tell_steps(self, connection: socket.socket) -> None:
        """Tell of new steps until either side ends; the agent never says anything."""
        told = 0
        connection.settimeout(_TELL_EVERY_S)
        while not self._over.is_set():
            try:
                if not connection.recv(4096):
                    return
            except TimeoutError:
                steps = step_times.of_process
                seconds = steps.seconds
                if seconds is not None and steps.count != told:
                    told = steps.count
                    line = json.dumps({"steps": told, "step_time_seconds": seconds})
                    connection.sendall(line.encode() + b"\n")


def _loaded_framework() -> str:
    # What the process has not imported is not imported for this.
    for name in _FRAMEWORKS:
        if name in sys.modules:
            return name
    return "python"


def _labels_of_environment() -> dict[str, str]:
    labels = {}
    for label, variables in _LABELS.items():
        for variable in variables:
            given = os.environ.get(variable)
            if given:
                labels[label] = given[:253]
                break
    return labels
