"""Addresses to listen on: checked by hand first, since gRPC does not tell why it cannot bind."""

import errno
import socket
from typing import Any

from podscope_agent.errors import ListenError, PortInUseError


def bracketed(host: str, port: int) -> str:
    """``host:port`` as gRPC and URLs take it: an IPv6 address stands in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_bind(host: str, port: int, option: str) -> None:
    """Listen once and stop again; port 0 checks the address alone.

    Args:
        host: Name or address of this machine.
        port: Port to be free.
        option: The option that sets the port, for the message.

    Raises:
        PortInUseError: Another process listens there.
        ListenError: The address is none of this machine's, or may not be used.
    """
    family, address = _resolve(host, port)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            # Only listening tells that another listener set SO_REUSEADDR too.
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(port, option) from error
            where = bracketed(host, port) if port else host
            msg = f"cannot listen on {where}: {error.strerror}; choose another --host or {option}"
            raise ListenError(msg) from error


def family_of(host: str) -> socket.AddressFamily:
    """IPv4 or IPv6, as the address is.

    Raises:
        ListenError: It is no address.
    """
    return _resolve(host, 0)[0]


def held_port(host: str) -> socket.socket:
    """A socket on a port of ``host`` that nobody listens on; nobody can while it is open."""
    family, address = _resolve(host, 0)
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.bind(address)
    except OSError:
        held.close()
        raise
    return held


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        msg = f"no such address to listen on: '{host[:80]}'; check --host"
        raise ListenError(msg) from error
    return family, address
