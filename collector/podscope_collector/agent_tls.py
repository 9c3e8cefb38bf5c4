"""TLS of the channels to agents, from the files that the settings name."""

from typing import TYPE_CHECKING

import grpc
import grpc.aio

from podscope_collector.errors import InputNotFoundError, RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def agent_credentials(
    ca_file: "Path | None", cert_file: "Path | None", key_file: "Path | None"
) -> grpc.ChannelCredentials | None:
    """What channels to agents need; None for plain text.

    Read anew for each capture: a renewed certificate needs no restart.

    Raises:
        InputNotFoundError: a file cannot be read.
        RequestError: a certificate without its key, or without the agents' authorities.
    """
    if ca_file is None and cert_file is None and key_file is None:
        return None
    if ca_file is None or (cert_file is None) != (key_file is None):
        message = (
            "TLS to agents needs the authorities of their certificates (agent_ca_file), and a "
            "certificate and its key (agent_cert_file, agent_key_file) together or not at all"
        )
        raise RequestError(message)
    try:
        authorities = ca_file.read_bytes()
        if cert_file is None or key_file is None:
            return grpc.ssl_channel_credentials(authorities)
        return grpc.ssl_channel_credentials(
            authorities, key_file.read_bytes(), cert_file.read_bytes()
        )
    except OSError as error:
        message = f"cannot read the TLS file {error.filename}: {error.strerror}"
        raise InputNotFoundError(message) from error


def open_channel(
    address: str, tls: grpc.ChannelCredentials | None, options: "Sequence[tuple[str, int]]"
) -> grpc.aio.Channel:
    """A channel to ``host:port``, in plain text only where no TLS is configured at all."""
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, tls, options=options)
