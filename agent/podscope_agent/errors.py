"""Errors of the agent and the simulator."""

from typing import ClassVar

from podscope_protos.errors import ExitCode, PodscopeError


class AgentError(PodscopeError):
    """Root of the agent's errors."""

    code: ClassVar[str] = "agent_error"


class PortInUseError(AgentError):
    """A port that was to be served is taken."""

    code: ClassVar[str] = "port_in_use"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED

    def __init__(self, port: int, option: str) -> None:
        self.port = port
        super().__init__(f"port {port} is in use; choose another with {option}")


class SimulationError(AgentError):
    """A simulation that cannot be made as it is asked for."""

    code: ClassVar[str] = "bad_simulation"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
