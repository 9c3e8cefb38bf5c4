"""Profiles on disk, in the layout that TensorBoard and XProf read."""

import contextlib
import os
import re
import socket
import time
from pathlib import Path

from podscope.profiler.errors import ProfilerError

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def session_name() -> str:
    """A readable name for a run, unique to the millisecond."""
    now = time.time()
    milliseconds = int(now * 1000) % 1000
    return time.strftime("%Y_%m_%d_%H_%M_%S", time.localtime(now)) + f"_{milliseconds:03d}"


def save_xspace(logdir: Path, session: str, address: str, xspace: bytes) -> Path:
    """Write a profile under a temporary name, then move it; return the file.

    Raises:
        ProfilerError: the folder cannot be written.
    """
    host = _UNSAFE.sub("_", address or socket.gethostname()).lstrip(".") or "host"
    file = logdir / "plugins" / "profile" / session / f"{host}.xplane.pb"
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(xspace)
        temporary.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        msg = f"cannot write to {file.parent}: {error.strerror}"
        raise ProfilerError(msg) from error
    return file
