"""Who listens on this machine's ports, and what is loaded into a process."""

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_WILDCARDS: Final = {"0.0.0.0", "::"}  # noqa: S104 - compared with, nothing is bound


@dataclass(frozen=True, slots=True)
class LocalPorts:
    """The processes that listen on this machine, at one moment.

    Attributes:
        addresses: Of this machine.
        listeners: By port, the address listened on and the process; None where that cannot be
            seen.
    """

    addresses: frozenset[str]
    listeners: Mapping[int, frozenset[tuple[str, int]]] | None

    @classmethod
    def look(cls) -> Self:
        """All of them, at once: a thousand targets may be this machine's."""
        import psutil

        addresses = frozenset(
            address.address.partition("%")[0]
            for found in psutil.net_if_addrs().values()
            for address in found
            if address.family in {socket.AF_INET, socket.AF_INET6}
        )
        try:
            connections = psutil.net_connections(kind="tcp")
        except psutil.Error:
            return cls(addresses, None)
        listeners: dict[int, set[tuple[str, int]]] = {}
        for one in connections:
            if one.status == psutil.CONN_LISTEN and one.laddr and one.pid:
                # A socket for both kinds of addresses shows an IPv4 one inside an IPv6 one.
                address = one.laddr.ip.removeprefix("::ffff:")
                listeners.setdefault(one.laddr.port, set()).add((address, one.pid))
        return cls(addresses, {port: frozenset(found) for port, found in listeners.items()})

    def of(self, addresses: Collection[str], port: int) -> set[int] | None:
        """Processes that a connection to the port may reach; None for another machine's port.

        Args:
            addresses: What the target's name resolves to.
            port: The target's.
        """
        if self.listeners is None or self.addresses.isdisjoint(addresses):
            return None
        there = self.listeners.get(port, frozenset())
        # Whoever listens on the very address gets its connections before those who listen on all.
        exact = {pid for address, pid in there if address in addresses}
        return exact or {pid for address, pid in there if address in _WILDCARDS} or None


def loaded_libraries(pid: int) -> str:
    """Paths of what a process of this machine has mapped, a line each; empty where unknown."""
    try:
        return Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
