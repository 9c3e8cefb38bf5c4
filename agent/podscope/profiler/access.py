"""What clients show to agents that serve TLS or want a token, and how they know them."""

from dataclasses import dataclass, field
from pathlib import Path

import grpc

from podscope.profiler.errors import ProfilerError
from podscope_protos.tokens import may_carry_token

KEPT_BACK = (
    "the token is not sent in plain text: give Access a ca_file, or token_in_plain_text=True"
)


@dataclass(frozen=True)
class Access:
    """The way to agents that do not speak to everybody in plain text.

    Attributes:
        ca_file: Authorities of the agents' certificates, PEM; given, all is spoken with TLS.
        cert_file: Certificate to show, where an agent asks for one.
        key_file: Its private key.
        token: What an agent with a token file wants; without TLS it goes to this machine alone.
        token_in_plain_text: Send it without TLS to other machines too: whoever is between can
            read it.
    """

    ca_file: str | Path | None = None
    cert_file: str | Path | None = None
    key_file: str | Path | None = None
    token: str | None = field(default=None, repr=False)
    token_in_plain_text: bool = False

    def credentials(self) -> grpc.ChannelCredentials | None:
        """For channels; None for plain text.

        Raises:
            ProfilerError: a file cannot be read, or one is missing.
        """
        if self.ca_file is None and self.cert_file is None and self.key_file is None:
            return None
        if self.ca_file is None or (self.cert_file is None) != (self.key_file is None):
            msg = "TLS needs ca_file, and cert_file and key_file together or not at all"
            raise ProfilerError(msg)
        try:
            authorities = Path(self.ca_file).read_bytes()
            if self.cert_file is None or self.key_file is None:
                return grpc.ssl_channel_credentials(authorities)
            return grpc.ssl_channel_credentials(
                authorities, Path(self.key_file).read_bytes(), Path(self.cert_file).read_bytes()
            )
        except OSError as error:
            msg = f"cannot read the TLS file {error.filename}: {error.strerror}"
            raise ProfilerError(msg) from error

    def metadata_for(self, address: str) -> tuple[tuple[str, str], ...]:
        """What calls of the agent at ``host:port`` carry."""
        if self.token is None or self.keeps_back(address):
            return ()
        return (("authorization", f"Bearer {self.token}"),)

    def keeps_back(self, address: str) -> bool:
        """Whether the token is there and may not be sent to ``host:port``."""
        return (
            self.token is not None
            and not self.token_in_plain_text
            and not may_carry_token(address, is_encrypted=self.ca_file is not None)
        )
