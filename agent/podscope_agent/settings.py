"""Settings of the agent, from options and from the environment."""

import socket
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from podscope_agent.errors import SettingError
from podscope_agent.registrations import default_runtime_dir
from podscope_protos.methods import AGENT_PORT, MAX_MESSAGE_BYTES

ENV_PREFIX: Final = "PODSCOPE_AGENT_"
DEFAULT_PORT: Final = AGENT_PORT
DEFAULT_METRICS_PORT: Final = 9466
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class AgentSettings(BaseSettings):
    """What one agent does; each field is also ``PODSCOPE_AGENT_<NAME>`` in the environment."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True)

    host: str = Field("127.0.0.1", description="Address to serve on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port of the profiler service.")
    metrics_port: int = Field(
        DEFAULT_METRICS_PORT, ge=0, le=65535, description="Port of /metrics; 0 picks a free one."
    )
    metrics_host: str = Field(
        "",
        description="Address of /metrics and /targets, plain text; that of the service if absent.",
    )
    targets: str = Field(
        "", description="Profiler servers on this host, host:port, separated by commas."
    )
    runtime_dir: Path = Field(
        default_factory=default_runtime_dir,
        description="Folder of the socket on which processes of this host register.",
    )
    token_file: Path | None = Field(
        None, description="File with the bearer token that calls must carry, but health checks."
    )
    tls_cert_file: Path | None = Field(
        None, description="Certificate of the profiler service, PEM; plain text if absent."
    )
    tls_key_file: Path | None = Field(None, description="Private key of the certificate.")
    tls_client_ca_file: Path | None = Field(
        None, description="Authorities of which one must have signed a client's certificate."
    )
    kubernetes: bool = Field(
        default=False, description="Capture the pods of this node that name a port."
    )
    kubernetes_url: str = Field("https://kubernetes.default.svc", description="API server.")
    kubernetes_node: str = Field("", description="This node's name; the node name if absent.")
    kubernetes_selector: str = Field("", description="Labels that pods must have.")
    kubernetes_token_file: Path = Field(_SERVICE_ACCOUNT / "token", description="Token for it.")
    kubernetes_ca_file: Path = Field(_SERVICE_ACCOUNT / "ca.crt", description="Who signs it.")
    kubernetes_every_s: float = Field(10.0, gt=0, description="Seconds between two looks.")
    node_name: str = Field(
        default_factory=socket.gethostname, description="Name of this host in metrics."
    )
    tpu_metrics: str = Field(
        "localhost:8431", description="libtpu metric servers, host:port, separated by commas."
    )
    labels: str = Field(
        "", description="Labels of this host, key=value, separated by commas: job, rank and so on."
    )
    spool_dir: Path | None = Field(
        None, description="Folder where profiles wait to be fetched; a temporary one if absent."
    )
    spool_bytes: int = Field(4 << 30, ge=1 << 20, description="Size of all that wait.")
    keep_s: float = Field(600.0, gt=0, description="Seconds that a profile waits to be fetched.")
    max_message_bytes: int = Field(
        MAX_MESSAGE_BYTES,
        ge=1024,
        le=MAX_MESSAGE_BYTES,
        description="Largest answer and file; a profile above it is split by process.",
    )
    allow_root: str = Field(
        "", description="Roots that profiles may be written to, separated by commas."
    )
    allow_workers: str = Field(
        "",
        description="Other hosts that a client's worker list may name, host:port, * for any.",
    )
    max_duration_s: float = Field(3600.0, gt=0, description="Longest window of a capture.")
    min_interval_s: float = Field(
        0.0, ge=0, description="Seconds from the end of a capture to the start of the next."
    )
    max_time_ratio: float = Field(
        0.0, ge=0, le=1, description="Share of an hour that may be captured; 0 for no limit."
    )
    min_free_memory_bytes: int = Field(
        256 << 20, ge=0, description="Memory that the host must have left for a capture to begin."
    )
    min_free_disk_bytes: int = Field(
        256 << 20, ge=0, description="Disk that must be left for a capture to begin."
    )
    grace_s: float = Field(
        30.0, ge=0, description="Seconds that a running capture may take to end after SIGTERM."
    )


def load_settings(**given: Any) -> AgentSettings:
    """Settings from the environment, overridden by the options that were given.

    Raises:
        SettingError: one of them has a value that it cannot have.
    """
    try:
        return AgentSettings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        variable = f"{ENV_PREFIX}{str(first['loc'][0]).upper()}"
        msg = f"{variable}: {first['msg']}; see docs/reference/settings.md"
        raise SettingError(msg) from error


def parse_labels(text: str) -> dict[str, str]:
    """Labels out of ``key=value,key=value``.

    Raises:
        SettingError: an item is no label.
    """
    labels: dict[str, str] = {}
    for item in text.split(","):
        if not item.strip():
            continue
        key, equals, given = item.partition("=")
        if not equals or not key.strip() or not item.isprintable():
            msg = f"label {item.strip()[:60]!r} is not understood; write key=value"
            raise SettingError(msg)
        labels[key.strip()] = given.strip()
    return labels
