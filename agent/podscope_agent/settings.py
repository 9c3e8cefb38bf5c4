"""Settings of the agent, from options and from the environment."""

import socket
from typing import Any, Final

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from podscope_agent.errors import SettingError

ENV_PREFIX: Final = "PODSCOPE_AGENT_"
DEFAULT_PORT: Final = 8466
DEFAULT_METRICS_PORT: Final = 9466


class AgentSettings(BaseSettings):
    """What one agent does; each field is also ``PODSCOPE_AGENT_<NAME>`` in the environment."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True)

    host: str = Field("127.0.0.1", description="Address to serve on.")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="Port of the profiler service.")
    metrics_port: int = Field(
        DEFAULT_METRICS_PORT, ge=0, le=65535, description="Port of /metrics; 0 picks a free one."
    )
    targets: str = Field(
        "", description="Profiler servers on this host, host:port, separated by commas."
    )
    node_name: str = Field(
        default_factory=socket.gethostname, description="Name of this host in metrics."
    )
    tpu_metrics: str = Field(
        "localhost:8431", description="libtpu metric servers, host:port, separated by commas."
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
