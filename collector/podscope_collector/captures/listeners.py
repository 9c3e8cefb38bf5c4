"""Which processes of this machine listen on a port."""

import socket

from podscope_collector.captures.addresses import Target


def local_listeners(target: Target) -> set[int] | None:
    """Processes of this machine that listen on the target's port; None for another machine's."""
    import psutil

    own_addresses = {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
    }
    try:
        found = {str(answer[4][0]) for answer in socket.getaddrinfo(target.host, target.port)}
    except OSError:
        return None
    if not found & own_addresses:
        return None
    try:
        return {
            connection.pid
            for connection in psutil.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == target.port
            and connection.pid
        } or None
    except psutil.Error:
        return None
