"""TLS of the agent's port: the files, and how a renewed certificate is taken over."""

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

from podscope_agent.errors import SettingError, TlsFileError

log = structlog.get_logger()

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class ServerTls:
    """Where certificate, key and authorities are, in PEM.

    Attributes:
        cert_file: The certificate that the port shows, with those of intermediate authorities.
        key_file: Its private key.
        client_ca_file: Authorities of which one must have signed a client's certificate; None when
            clients need none.
    """

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that take over the files' new content with the next handshake.

        Raises:
            TlsFileError: A file cannot be read, or key and certificate do not belong together.
        """
        # First, so that a renewal in between is noticed with the next handshake.
        stamp: _Stamp = ()
        with contextlib.suppress(OSError):  # which file it is, the configuration tells
            stamp = self.stamp()
        return grpc.dynamic_ssl_server_credentials(
            self.configuration(),
            # The stubs do not know that None stands for no change.
            _Renewal(self, stamp),  # type: ignore[arg-type]
            require_client_authentication=self.client_ca_file is not None,
        )

    @property
    def _files(self) -> list[Path]:
        files = [self.cert_file, self.key_file]
        return files if self.client_ca_file is None else [*files, self.client_ca_file]

    def stamp(self) -> _Stamp:
        """Changes with the files; Kubernetes renews a secret by turning a link."""
        found = [path.stat() for path in self._files]
        return tuple((status.st_ino, status.st_mtime_ns, status.st_size) for status in found)

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """What the files hold now.

        Raises:
            TlsFileError: A file cannot be read, or key and certificate do not belong together.
        """
        # gRPC does not tell what is wrong with a file; OpenSSL does.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        path = self.cert_file
        try:
            key = self.key_file.read_bytes()
            chain = self.cert_file.read_bytes()
            context.load_cert_chain(self.cert_file, self.key_file, password="")
            if self.client_ca_file is None:
                return grpc.ssl_server_certificate_configuration([(key, chain)])
            path = self.client_ca_file
            context.load_verify_locations(path)
            return grpc.ssl_server_certificate_configuration([(key, chain)], path.read_bytes())
        except ssl.SSLError as error:
            msg = f"cannot use the TLS file {path}: {error.reason or error}"
            raise TlsFileError(msg) from error
        except OSError as error:
            msg = f"cannot read the TLS file {error.filename or path}: {error.strerror or error}"
            raise TlsFileError(msg) from error


class _Renewal:
    """Called with each handshake: what the files hold now, None while that is what it was."""

    def __init__(self, tls: ServerTls, stamp: _Stamp) -> None:
        self._tls = tls
        self._stamp = stamp

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            stamp = self._tls.stamp()
            if stamp == self._stamp:
                return None
            self._stamp = stamp
            renewed = self._tls.configuration()
        except (OSError, TlsFileError) as error:
            # In the middle of a renewal, or a wrong one: the old certificate serves on.
            log.warning("certificate_not_renewed", problem=str(error))
            return None
        log.info("certificate_renewed", file=str(self._tls.cert_file))
        return renewed


def server_tls(
    cert_file: Path | None, key_file: Path | None, client_ca_file: Path | None
) -> ServerTls | None:
    """TLS as the settings want it; None for plain text.

    Raises:
        SettingError: Files are missing.
    """
    if cert_file is None and key_file is None and client_ca_file is None:
        return None
    if cert_file is None or key_file is None:
        msg = "TLS needs both --tls-cert-file and --tls-key-file"
        raise SettingError(msg)
    return ServerTls(cert_file, key_file, client_ca_file)


def channel_credentials(
    ca_file: Path | None, cert_file: Path | None, key_file: Path | None
) -> grpc.ChannelCredentials | None:
    """What a client of an agent needs; None for plain text.

    Raises:
        TlsFileError: A file cannot be read.
        SettingError: A certificate without its key, or without the authorities of the agent.
    """
    if ca_file is None and cert_file is None and key_file is None:
        return None
    if ca_file is None or (cert_file is None) != (key_file is None):
        msg = "TLS needs --ca-file, and --cert-file and --key-file together or not at all"
        raise SettingError(msg)
    try:
        pair = (
            (None, None)
            if cert_file is None or key_file is None
            else (key_file.read_bytes(), cert_file.read_bytes())
        )
        return grpc.ssl_channel_credentials(ca_file.read_bytes(), *pair)
    except OSError as error:
        msg = f"cannot read the TLS file {error.filename}: {error.strerror}"
        raise TlsFileError(msg) from error
