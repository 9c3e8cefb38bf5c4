"""Where a bearer token may go: a call in plain text shows it to everybody on the way."""


def may_carry_token(address: str, *, is_encrypted: bool) -> bool:
    """Whether a token may be sent to ``host:port`` over a channel with or without TLS.

    In plain text it may not leave this machine. A name counts as this machine's only when it is
    ``localhost``: what others resolve to is the resolver's word.
    """
    if is_encrypted or address.startswith(("unix:", "unix-abstract:")):
        return True
    return is_loopback(address.rpartition(":")[0].strip("[]"))


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's alone."""
    if host.lower() == "localhost":
        return True
    # Only who has a token needs it.
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
