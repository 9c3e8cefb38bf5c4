"""Settings of the collector's processes: one frozen class, read once and passed in."""

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from podscope_collector.tokens import read_agent_token

if TYPE_CHECKING:
    from podscope_collector.agent_access import AgentAccess

ENV_PREFIX = "PODSCOPE_COLLECTOR_"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _seconds(given: object) -> object:
    """Plain seconds beside ISO 8601 (``PT15M``), also out of the environment."""
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError:
            return given
    return given


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0))]


class CollectorSettings(BaseSettings):
    """What the API, the workers and the scheduler need to know; see docs/reference/settings.md."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, frozen=True, extra="forbid", populate_by_name=True
    )

    data_dir: Path = Path("~/.podscope")
    """Folder of the embedded database, broker and profiles."""
    database_url: SecretStr | None = None
    """SQLAlchemy URL; SQLite in the data folder when absent."""
    broker_url: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices(f"{ENV_PREFIX}BROKER_URL", "PODSCOPE_BROKER_URL"),
    )
    """Redis or Valkey; ``podscope up`` starts its own when absent."""
    storage_root: str | None = None
    """Folder or URL of profiles and results; ``profiles`` in the data folder when absent."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=0, le=65535)
    token_file: Path | None = None
    """File with the bearer token that every API request must carry."""
    insecure: bool = False
    """Serve on a non-loopback address without a token."""
    allowed_hosts: tuple[str, ...] = ()
    """Further names that a browser may call a loopback service by (a reverse proxy's)."""
    max_request_bytes: int = Field(default=1 << 20, ge=1024)

    capture_concurrency: int = Field(default=16, ge=1, le=1024)
    """Captures and maintenance tasks that one worker runs at a time."""
    capture_memory_bytes: int = Field(default=1 << 30, ge=64 << 20)
    """Profiles of one capture in memory at once; beyond it hosts wait to be started."""
    capture_width: int = Field(default=1024, ge=1, le=100_000)
    """Hosts of one capture in flight at once; each holds a connection."""

    agent_token_file: Path | None = None
    """File with the token for agents that ask for one."""
    agent_token_in_plain_text: bool = False
    """Send it without TLS too, to agents of other machines: whoever is between can read it."""
    agent_ca_file: Path | None = None
    """Authorities of the agents' certificates; with it every target is spoken to with TLS."""
    agent_cert_file: Path | None = None
    """Certificate to show to agents that ask for one."""
    agent_key_file: Path | None = None
    """Private key of that certificate."""
    resolve_timeout: Duration = timedelta(seconds=10)
    """What the targets of a capture may take to be looked up."""
    resolve_cache: Duration = timedelta(seconds=15)
    """Lookups younger than this are not made again."""
    kubernetes_url: str = "https://kubernetes.default.svc"
    """API server that pods and JobSets are looked up at."""
    kubernetes_token_file: Path = _SERVICE_ACCOUNT / "token"
    kubernetes_ca_file: Path = _SERVICE_ACCOUNT / "ca.crt"
    """Authorities that sign the API server; the system's when the file is absent."""
    metadata_url: str = "http://metadata.google.internal"
    """Metadata server that gives the token, the project and the zone of Cloud TPU lookups."""
    tpu_url: str = "https://tpu.googleapis.com/v1"
    """Cloud TPU API."""
    tpu_project: str | None = None
    tpu_zone: str | None = None
    """Project and zone of Cloud TPU lookups; this machine's when absent."""
    analysis_processes: int = Field(
        default_factory=lambda: max(1, min(4, os.cpu_count() or 1)), ge=1, le=256
    )
    """Analysis processes of one worker, each with one host in work."""
    analysis_timeout: Duration = timedelta(minutes=15)
    analysis_memory_bytes: int = Field(default=8 << 30, ge=256 << 20)
    analysis_tasks_per_process: int = Field(default=64, ge=1)
    """Tasks after which an analysis process is replaced, so that no leak grows for ever."""
    max_inline_result_bytes: int = Field(default=64 << 10, ge=0)
    """Results above this size go to storage, with a row that points at them."""

    work_attempts: int = Field(default=3, ge=1, le=10)
    """Times that work is tried before it is parked with its error."""
    work_lease: Duration = timedelta(seconds=15)
    """Work whose worker has not been heard of for this long is taken from it."""
    work_resend: Duration = timedelta(seconds=30)
    """Work that no worker took for this long is sent again; doubled each time."""
    tick_interval: Duration = timedelta(seconds=2)
    """How often the scheduler looks for due schedules, lost messages and dead workers."""
    heartbeat_window: Duration = timedelta(seconds=30)
    """A queue counts as consumed when a heartbeat went through it in this time."""
    visibility_timeout: Duration = timedelta(hours=2)
    """Time after which the broker gives an unacknowledged message to another worker."""
    shutdown_grace: Duration = timedelta(seconds=10)
    """Time that processes get to end by themselves."""

    metrics_window: Duration = timedelta(days=1)
    """Series of a run vanish from /metrics when its last capture is older than this."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"

    def agent_access(self) -> "AgentAccess":
        """What is shown to agents; the files are read anew.

        Raises:
            InputNotFoundError: a file cannot be read.
            RequestError: files are missing, or a file holds no token.
        """
        # A client that speaks to no agent loads no gRPC.
        from podscope_collector.agent_access import AgentAccess, agent_credentials

        return AgentAccess(
            read_agent_token(self.agent_token_file),
            agent_credentials(self.agent_ca_file, self.agent_cert_file, self.agent_key_file),
            self.agent_token_in_plain_text,
        )

    @field_validator(
        "data_dir",
        "token_file",
        "agent_token_file",
        "agent_ca_file",
        "agent_cert_file",
        "agent_key_file",
    )
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return None if path is None else path.expanduser().absolute()

    @property
    def database(self) -> str:
        """SQLAlchemy URL of the database."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir / 'podscope.db'}"

    @property
    def storage(self) -> str:
        """Root of profiles and results."""
        return self.storage_root or str(self.data_dir / "profiles")

    def environment(self) -> dict[str, str]:
        """Environment variables from which a child process builds equal settings."""
        variables: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, SecretStr):
                text = value.get_secret_value()
            elif isinstance(value, timedelta):
                text = str(value.total_seconds())
            elif isinstance(value, tuple):
                text = "[" + ",".join(f'"{item}"' for item in value) + "]"
            else:
                text = str(value)
            variables[f"{ENV_PREFIX}{name.upper()}"] = text
        return variables
