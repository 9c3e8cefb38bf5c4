"""Finds the processes behind the profilers' ports."""

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"
_TABLES: Final = ("tcp", "tcp6")


def port_of(address: str) -> int:
    """The port of ``host:port``."""
    return int(address.rpartition(":")[2])


def owners_of_ports(proc: Path = Path("/proc")) -> Mapping[int, tuple[int, ...]]:
    """Port -> the processes that listen there, each with a socket of its own.

    A child that inherited its parent's socket does not count: the parent answers for both. Ports
    whose process the system does not tell (another user's, another network namespace) are absent.
    """
    sockets = _listening_sockets(proc)
    holders: dict[str, list[int]] = {}
    for folder in proc.iterdir() if sockets else ():
        if not folder.name.isdecimal():
            continue
        # Processes end while they are looked at, and those of others are not shown.
        with contextlib.suppress(OSError), os.scandir(folder / "fd") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    # Called for every descriptor of the host: no Path for each.
                    target = os.readlink(entry.path)  # noqa: PTH115 - no Path for each
                    if target.startswith("socket:["):
                        inode = target[8:-1]
                        if inode in sockets:
                            holders.setdefault(inode, []).append(int(folder.name))
    owners: dict[int, set[int]] = {}
    for inode, pids in holders.items():
        owners.setdefault(sockets[inode], set()).add(min(pids))
    return {port: tuple(sorted(pids)) for port, pids in owners.items()}


def shared_port_text(address: str, pids: Sequence[int]) -> str:
    """What to say of a port that several processes share."""
    listed = ", ".join(str(pid) for pid in pids)
    return (
        f"{address}: processes {listed} share this port, and each capture reaches one of them at "
        "random; give every process a port of its own"
    )


def _listening_sockets(proc: Path) -> dict[str, int]:
    """Inode -> port of every listening TCP socket of this network namespace."""
    found: dict[str, int] = {}
    for name in _TABLES:
        try:
            rows = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            columns = row.split()
            if len(columns) > 9 and columns[3] == _LISTENING:
                found[columns[9]] = int(columns[1].rpartition(":")[2], 16)
    return found
