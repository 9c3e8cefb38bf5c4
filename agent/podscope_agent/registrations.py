"""The Unix socket on which processes of this host register as targets."""

import asyncio
import contextlib
import json
import os
import re
import socket
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import structlog

from podscope.registration import SOCKET_NAME, is_own, temporary_dir
from podscope_agent.errors import RuntimeDirError
from podscope_agent.inventory import KnownTarget, TargetInventory

log = structlog.get_logger()

_MAX_RECORD_BYTES: Final = 16_384
_MAX_REGISTRATIONS: Final = 1024
_MAX_LABELS: Final = 64
_FIRST_WORD_S: Final = 5.0
_LONGEST_STEP_S: Final = 86_400.0
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:]{2,45}")


def default_runtime_dir() -> Path:
    """``/run/podscope`` for root, else a folder of this user's own; the library looks in both."""
    if os.getuid() == 0:
        return Path("/run/podscope")
    own = os.environ.get("XDG_RUNTIME_DIR")
    if own:
        return Path(own) / "podscope"
    return temporary_dir() / f"podscope-{os.getuid()}"


class RegistrationServer:
    """Keeps a target in the inventory for as long as its process stays connected.

    Args:
        folder: For the socket; made if absent.
        inventory: Where registered targets go.
    """

    def __init__(self, folder: Path, inventory: TargetInventory) -> None:
        self.path = folder / SOCKET_NAME
        self._inventory = inventory
        self._server: asyncio.Server | None = None
        self._count = 0
        self._connected: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen; a socket that an agent which was killed left behind is replaced.

        Raises:
            RuntimeDirError: The folder cannot be used, or another agent listens there.
        """
        try:
            folder = self.path.parent
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if folder.parent == temporary_dir() and not is_own(folder):
                msg = f"{folder} belongs to another user; choose another --runtime-dir"
                raise RuntimeDirError(msg)
            if self.path.is_socket():
                self._refuse_a_second_agent()
                self.path.unlink()
            self._server = await asyncio.start_unix_server(
                self._serve, str(self.path), limit=_MAX_RECORD_BYTES
            )
            # Any user's training process may register; who it is, the kernel tells.
            self.path.chmod(0o666)
        except OSError as error:
            msg = (
                f"cannot listen on {self.path}: {error.strerror or error}; "
                "choose another --runtime-dir"
            )
            raise RuntimeDirError(msg) from error

    async def stop(self) -> None:
        """Listen no more; registered processes look for the next agent."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._connected):
                writer.close()
            await self._server.wait_closed()
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _refuse_a_second_agent(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(self.path))
            except OSError:
                return
        msg = f"another agent listens on {self.path}; choose another --runtime-dir"
        raise RuntimeDirError(msg)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        key = str(self._count)
        self._connected.add(writer)
        try:
            if len(self._connected) > _MAX_REGISTRATIONS:
                log.warning("too_many_registrations", limit=_MAX_REGISTRATIONS)
                return
            async with asyncio.timeout(_FIRST_WORD_S):
                line = await reader.readuntil(b"\n")
            target = _target(json.loads(line), _peer_pid(writer))
            self._inventory.put(key, target)
            log.info("target_registered", target=target.address, pid=target.pid)
            # The end of the connection is the end of the process.
            while line := await reader.readline():
                seconds = _step_time_s(line)
                if seconds is not None:
                    self._inventory.put(key, replace(target, step_time_s=seconds))
            log.info("target_gone", target=target.address, pid=target.pid)
        except (
            OSError,
            ValueError,
            TimeoutError,
            EOFError,
            RecursionError,  # JSON that is nested without end
            asyncio.LimitOverrunError,
        ) as error:
            log.warning("registration_refused", problem=str(error)[:200])
        finally:
            self._inventory.drop("registered", key)
            self._connected.discard(writer)
            writer.close()


def _peer_pid(writer: asyncio.StreamWriter) -> int:
    """The process at the other end by this host's numbers; 0 where the system does not tell."""
    peer = writer.get_extra_info("socket")
    option = getattr(socket, "SO_PEERCRED", None)
    if peer is None or option is None:
        return 0
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, option, size))
    return int(pid)


def _target(record: Any, pid: int) -> KnownTarget:
    """A target out of a record that any process may have written.

    Raises:
        ValueError: It is no such record.
    """
    if not isinstance(record, dict):
        msg = "a record is a JSON object"
        raise ValueError(msg)
    port, host = record.get("port"), record.get("host", "localhost")
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        msg = "a record has a port from 1 to 65535"
        raise ValueError(msg)
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        msg = "a record has a host by which it is reached"
        raise ValueError(msg)
    told = record.get("labels")
    labels = list(told.items())[:_MAX_LABELS] if isinstance(told, dict) else []
    started = record.get("started_at_ns")
    return KnownTarget(
        address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        source="registered",
        pid=pid,
        framework=_word(record.get("framework"), 40),
        labels={_word(key, 63): _word(text, 253) for key, text in labels},
        started_at_ns=started if isinstance(started, int) and 0 < started < 2**63 else 0,
    )


def _step_time_s(line: bytes) -> float | None:
    """What a process says of its steps; None when the line is about something else."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    seconds = told.get("step_time_seconds") if isinstance(told, dict) else None
    if not isinstance(seconds, (int, float)) or not 0 < seconds < _LONGEST_STEP_S:
        return None
    return float(seconds)


def _word(given: object, length: int) -> str:
    return "".join(c for c in str(given or "")[:length] if c.isprintable())
