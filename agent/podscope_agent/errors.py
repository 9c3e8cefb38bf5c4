"""Errors of the agent and the simulator."""

from typing import ClassVar

from podscope_protos.errors import ExitCode, PodscopeError

_MAX_SHOWN = 80


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


class ListenError(AgentError):
    """An address that cannot be listened on."""

    code: ClassVar[str] = "cannot_listen"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class SettingError(AgentError):
    """A setting that cannot have the value that it was given."""

    code: ClassVar[str] = "bad_setting"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class SimulationError(AgentError):
    """A simulation that cannot be made as it is asked for."""

    code: ClassVar[str] = "bad_simulation"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class TargetError(AgentError):
    """A profiler address that cannot be one."""

    code: ClassVar[str] = "bad_target"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __init__(self, given: str, problem: str) -> None:
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in given[: _MAX_SHOWN + 1])
        if len(line) > _MAX_SHOWN:
            line = line[: _MAX_SHOWN - 1] + "…"
        super().__init__(f"target '{line}': {problem}; give host:port, for example localhost:9999")


class RuntimeDirError(AgentError):
    """The folder of the agent's socket cannot be used."""

    code: ClassVar[str] = "runtime_dir"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class TokenFileError(AgentError):
    """A file with a token that cannot be used."""

    code: ClassVar[str] = "token_file"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND


class TlsFileError(AgentError):
    """A certificate, key or list of authorities that cannot be used."""

    code: ClassVar[str] = "tls_file"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND


class AgentUnreachableError(AgentError):
    """No agent answers at an address."""

    code: ClassVar[str] = "agent_unreachable"
    exit_code: ClassVar[ExitCode] = ExitCode.UNREACHABLE_SERVICE


class AgentDeniedError(AgentError):
    """An agent wants a token that it was not given."""

    code: ClassVar[str] = "agent_denied"
    exit_code: ClassVar[ExitCode] = ExitCode.DENIED


class SpoolError(AgentError):
    """A profile that cannot be kept on disk."""

    code: ClassVar[str] = "spool"


class RepositoryError(AgentError):
    """A profile that cannot be written to a repository."""

    code: ClassVar[str] = "repository"


class MalformedXSpaceError(AgentError):
    """A target's answer is not an XSpace.

    Attributes:
        offset: Where the bytes stop making sense.
    """

    code: ClassVar[str] = "malformed_xspace"

    def __init__(self, offset: int) -> None:
        self.offset = offset
        super().__init__(f"the answer is not an XSpace (malformed at byte {offset})")
