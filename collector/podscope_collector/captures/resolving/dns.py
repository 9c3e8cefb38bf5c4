"""The addresses of a DNS name."""

import ipaddress
import socket

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.lookups import DnsLookup
from podscope_collector.captures.resolving.errors import LookupFailed
from podscope_collector.captures.resolving.found import Found


def look_up_dns(lookup: DnsLookup) -> Found:
    """Every address of the name; of a machine with both kinds, the IPv4 one.

    Raises:
        LookupFailed: The name has no address, or no resolver answers.
    """
    try:
        answers = socket.getaddrinfo(lookup.name, lookup.port, type=socket.SOCK_STREAM)
    except OSError as error:
        msg = f"the name {lookup.name} does not resolve ({error.strerror or error})"
        raise LookupFailed(msg) from error
    hosts = {str(answer[4][0]).partition("%")[0] for answer in answers}
    addresses = [ipaddress.ip_address(host) for host in hosts]
    # A headless service with both kinds lists each pod twice.
    plain = sorted(a for a in addresses if isinstance(a, ipaddress.IPv4Address))
    six = sorted(a for a in addresses if isinstance(a, ipaddress.IPv6Address))
    return Found(
        tuple(
            Target(
                f"{address}:{lookup.port}"
                if address.version == 4
                else f"[{address}]:{lookup.port}",
                lookup.given,
                str(address),
                lookup.port,
            )
            for address in (plain or six)
        )
    )
