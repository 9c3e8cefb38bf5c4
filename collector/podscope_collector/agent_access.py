"""What the service shows to agents: a token, and certificates on channels with TLS."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from podscope_collector.errors import InputNotFoundError, RequestError
from podscope_protos.tokens import may_carry_token

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


@dataclass(frozen=True)
class AgentAccess:
    """The way to agents that do not speak to everybody in plain text.

    Attributes:
        token: For agents that ask for one.
        tls: Given, every target is spoken to with TLS, none in plain text.
        token_in_plain_text: Whether the token may leave this machine without TLS.
    """

    token: str | None = field(default=None, repr=False)
    tls: grpc.ChannelCredentials | None = None
    token_in_plain_text: bool = False

    def channel(self, address: str, options: "Sequence[tuple[str, int]]") -> grpc.aio.Channel:
        """A channel to ``host:port``, in plain text only where no TLS is configured at all."""
        if self.tls is None:
            return grpc.aio.insecure_channel(address, options=options)
        return grpc.aio.secure_channel(address, self.tls, options=options)

    def token_for(self, address: str) -> str | None:
        """The token, where an agent at ``host:port`` may be told it."""
        if self.token is None or self.token_in_plain_text:
            return self.token
        is_safe = may_carry_token(address, is_encrypted=self.tls is not None)
        return self.token if is_safe else None

    def why_no_token(self, address: str) -> str | None:
        """Why an agent that asks for the token is not told; None when it is, or there is none."""
        if self.token is None or self.token_for(address) is not None:
            return None
        return (
            f"{address} asks for the agents' token, which is not sent in plain text: let the "
            "agents serve TLS and name their authorities (PODSCOPE_COLLECTOR_AGENT_CA_FILE), or "
            "allow it (PODSCOPE_COLLECTOR_AGENT_TOKEN_IN_PLAIN_TEXT=true)"
        )
