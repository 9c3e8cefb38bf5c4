"""TLS between a running agent, its clients, and the collector's fan-out."""

import contextlib
import datetime
import ipaddress
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from podscope.profiler import Access, ProfilerError, client
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class Authority:
    """Signs certificates for 127.0.0.1, and writes them into its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        certificate = self._signed(self._name, self._key, is_authority=True)
        self.file = folder / "ca.crt"
        self.file.write_bytes(certificate)

    def issue(self, name: str) -> tuple[Path, Path]:
        """A certificate and its key; again for the same name: renewed."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        files = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        contents = (
            self._signed(subject, key, is_authority=False),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
        for file, content in zip(files, contents, strict=True):
            temporary = file.with_suffix(".new")
            temporary.write_bytes(content)
            temporary.replace(file)
        return files

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        )
        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


@contextlib.contextmanager
def profiler() -> Iterator[str]:
    """A stock server's part: one event, whatever is asked."""
    space = XSpace(hostnames=["h0"])
    space.planes.add(name="/host:CPU").lines.add(name="main").events.add(duration_ps=1)
    answer = wire.ProfileResponse(xspace=space.SerializeToString()).SerializeToString()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {
        "Profile": grpc.unary_unary_rpc_method_handler(lambda _body, _context: answer),
        "Terminate": grpc.unary_unary_rpc_method_handler(lambda _body, _context: b""),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.PROFILER_SERVICE, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def agent(*options: object) -> Iterator[str]:
    """A running agent in front of such a server; yields its address."""
    command = [sys.executable, "-m", "podscope", "agent", "--port", "0", "--metrics-port", "0"]
    with tempfile.TemporaryDirectory() as runtime, profiler() as target:
        process = subprocess.Popen(
            [*command, "--target", target, "--runtime-dir", runtime, *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=ENVIRONMENT,
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split("profiler service on ")[1].split(",")[0]
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0
            process.stdout.close()


def described(address: str, credentials: grpc.ChannelCredentials | None) -> own.DescribeResponse:
    options = (("grpc.enable_http_proxy", 0),)
    with (
        grpc.insecure_channel(address, options)
        if credentials is None
        else grpc.secure_channel(address, credentials, options)
    ) as channel:
        method = channel.unary_unary(
            methods.AGENT_DESCRIBE, request_serializer=bytes, response_deserializer=bytes
        )
        return own.DescribeResponse.FromString(method(b"", timeout=60))


def podscope(*command: object, **environment: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "podscope", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**ENVIRONMENT, **{name: str(value) for name, value in environment.items()}},
    )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def test_only_clients_of_the_authority_are_served(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("agent")
    client_cert, client_key = authority.issue("client")
    ours = authority.file.read_bytes()
    good = grpc.ssl_channel_credentials(ours, client_key.read_bytes(), client_cert.read_bytes())
    stranger = Authority(tmp_path / "stranger")
    strange_cert, strange_key = stranger.issue("client")
    strange = grpc.ssl_channel_credentials(
        ours, strange_key.read_bytes(), strange_cert.read_bytes()
    )
    options = ("--tls-cert-file", cert, "--tls-key-file", key)
    with agent(*options, "--tls-client-ca-file", authority.file) as address:
        assert [target.state for target in described(address, good).targets]
        for credentials in (None, grpc.ssl_channel_credentials(ours), strange):
            with pytest.raises(grpc.RpcError) as failure:
                described(address, credentials)
            assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        tls = ("--ca-file", authority.file, "--cert-file", client_cert, "--key-file", client_key)
        assert podscope("agent", "targets", "--agent", address, *tls).returncode == 0
        assert podscope("agent", "targets", "--agent", address).returncode == 6


def test_a_capture_reaches_an_agent_with_tls_and_nobody_in_plain_text(
    authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("agent")
    client_cert, client_key = authority.issue("collector")
    tls = {
        "PODSCOPE_COLLECTOR_AGENT_CA_FILE": authority.file,
        "PODSCOPE_COLLECTOR_AGENT_CERT_FILE": client_cert,
        "PODSCOPE_COLLECTOR_AGENT_KEY_FILE": client_key,
    }
    options = ("--tls-cert-file", cert, "--tls-key-file", key)
    more = ("--duration", "50ms", "--attempts", "1", "--logdir", tmp_path / "runs")
    with agent(*options, "--tls-client-ca-file", authority.file) as address:
        done = podscope("capture", address, *more, **tls)
        assert done.returncode == 0, done.stderr
        assert len(list((tmp_path / "runs").rglob("*.xplane.pb"))) == 1
        examined = podscope("doctor", address, **tls)
        assert examined.returncode == 0, examined.stdout
        assert podscope("capture", address, *more).returncode == 1
    with agent() as address:
        assert podscope("capture", address, *more, **tls).returncode == 1


@pytest.mark.parametrize("with_collector", [True, False])
def test_the_library_reaches_an_agent_with_tls_and_a_token(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    with_collector: bool,
) -> None:
    if not with_collector:
        monkeypatch.setattr(client, "_FANOUT", "podscope_collector.not_installed")
    cert, key = authority.issue("agent")
    shown = authority.issue("client")
    token = tmp_path / "token"
    token.write_text("a-token-of-the-agent\n")
    options = ("--tls-cert-file", cert, "--tls-key-file", key, "--token-file", token)
    access = Access(authority.file, *shown, token="a-token-of-the-agent")
    with agent(*options, "--tls-client-ca-file", authority.file) as address:
        (result,) = client.trace(address, tmp_path, 50, access=access)
        assert result.file is not None
        assert XSpace.FromString(result.file.read_bytes()).planes[0].name == "/host:CPU"
        assert "Host memory used" in client.monitor(address, 100, access=access)
        for wrong in (None, Access(authority.file, *shown)):
            with pytest.raises(ProfilerError):
                client.trace(address, tmp_path, 50, num_tracing_attempts=1, access=wrong)
            with pytest.raises(ProfilerError):
                client.monitor(address, 100, access=wrong)


@pytest.mark.parametrize("with_collector", [True, False])
def test_the_library_sends_its_token_in_plain_text_to_this_machine_alone_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_collector: bool
) -> None:
    if not with_collector:
        monkeypatch.setattr(client, "_FANOUT", "podscope_collector.not_installed")
    token = tmp_path / "token"
    token.write_text("a-token-of-the-agent\n")
    here = Access(token="a-token-of-the-agent")
    anywhere = Access(token="a-token-of-the-agent", token_in_plain_text=True)
    with agent("--token-file", token) as address:
        # The second is this host too, and not known to be.
        elsewhere = address.replace("127.0.0.1", "0.0.0.0")
        for place, access in [(address, here), (elsewhere, anywhere)]:
            assert client.trace(place, tmp_path, 50, access=access)[0].file is not None
            assert "Host memory used" in client.monitor(place, 100, access=access)
        with pytest.raises(ProfilerError, match="not sent in plain text"):
            client.trace(elsewhere, tmp_path, 50, num_tracing_attempts=1, access=here)
        with pytest.raises(ProfilerError, match="token_in_plain_text=True"):
            client.monitor(elsewhere, 100, access=here)


def test_access_without_what_it_needs_is_one_clear_line(tmp_path: Path) -> None:
    for access, words in [
        (Access(cert_file=tmp_path / "x"), "needs ca_file"),
        (Access(ca_file=tmp_path / "x", key_file=tmp_path / "x"), "together or not at all"),
        (Access(ca_file=tmp_path / "absent"), "absent: No such file"),
    ]:
        with pytest.raises(ProfilerError, match=words):
            client.monitor("localhost:1", 100, access=access)
    assert "secret" not in repr(Access(token="secret"))


def shown_serial(address: str, authority: Authority) -> int:
    """The serial number of the certificate that a new connection is shown."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cafile=authority.file)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), timeout=60) as plain:
        with context.wrap_socket(plain, server_hostname=host) as wrapped:
            shown = wrapped.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


def serial(file: Path) -> int:
    return x509.load_pem_x509_certificate(file.read_bytes()).serial_number


def test_a_renewed_certificate_is_shown_without_a_restart(authority: Authority) -> None:
    cert, key = authority.issue("agent")
    with agent("--tls-cert-file", cert, "--tls-key-file", key) as address:
        first = serial(cert)
        assert shown_serial(address, authority) == first
        cert.write_text("half of a")
        assert shown_serial(address, authority) == first
        authority.issue("agent")
        assert serial(cert) != first
        assert shown_serial(address, authority) == serial(cert)
        described(address, grpc.ssl_channel_credentials(authority.file.read_bytes()))


def test_files_that_cannot_be_used_are_one_clear_line(authority: Authority) -> None:
    cert, key = authority.issue("agent")
    _, other_key = authority.issue("other")
    ports = ("--port", "0", "--metrics-port", "0")
    for options, code, words in [
        (("--tls-cert-file", cert), 2, "--tls-key-file"),
        (("--tls-cert-file", cert, "--tls-key-file", other_key), 3, "cannot use the TLS file"),
        (("--tls-cert-file", cert, "--tls-key-file", "/absent"), 3, "/absent: No such file"),
        (
            ("--tls-cert-file", cert, "--tls-key-file", key, "--tls-client-ca-file", key),
            3,
            "cannot use the TLS file",
        ),
    ]:
        done = podscope("agent", *ports, *options)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert words in done.stderr
