"""Errors of the collector."""

from typing import ClassVar

from podscope_protos.errors import ExitCode, PodscopeError


class CollectorError(PodscopeError):
    """Root of the collector's errors.

    Attributes:
        http_status: What the REST API answers when this error reaches it.
    """

    code: ClassVar[str] = "collector_error"
    http_status: ClassVar[int] = 500


class RequestError(CollectorError):
    """A request that cannot be carried out as it is written."""

    code: ClassVar[str] = "bad_request"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE
    http_status: ClassVar[int] = 422


class InputNotFoundError(CollectorError):
    """A file, folder, capture, host or result that does not exist."""

    code: ClassVar[str] = "not_found"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND
    http_status: ClassVar[int] = 404


class ConflictError(RequestError):
    """A request that does not fit the state that its subject is in."""

    code: ClassVar[str] = "conflict"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    http_status: ClassVar[int] = 409


class ServiceUnreachableError(CollectorError):
    """The podscope service does not answer at the URL given."""

    code: ClassVar[str] = "service_unreachable"
    exit_code: ClassVar[ExitCode] = ExitCode.UNREACHABLE_SERVICE
    http_status: ClassVar[int] = 503


class DeniedError(CollectorError):
    """The caller may not do this."""

    code: ClassVar[str] = "denied"
    exit_code: ClassVar[ExitCode] = ExitCode.DENIED
    http_status: ClassVar[int] = 403


class NotAuthenticatedError(CollectorError):
    """A request without the service's token, or with a wrong one."""

    code: ClassVar[str] = "unauthenticated"
    exit_code: ClassVar[ExitCode] = ExitCode.DENIED
    http_status: ClassVar[int] = 401


class NotReadyError(CollectorError):
    """The service cannot do this now; it may later."""

    code: ClassVar[str] = "not_ready"
    http_status: ClassVar[int] = 503


class DatabaseError(CollectorError):
    """The database cannot be opened."""

    code: ClassVar[str] = "database"
    exit_code: ClassVar[ExitCode] = ExitCode.NOT_FOUND


class DatabaseVersionError(CollectorError):
    """The schema of the database is not the one that this version works with."""

    code: ClassVar[str] = "database_version"
    exit_code: ClassVar[ExitCode] = ExitCode.INVALID_INPUT


class DataFolderError(CollectorError):
    """The data folder cannot be used."""

    code: ClassVar[str] = "data_folder"
    exit_code: ClassVar[ExitCode] = ExitCode.DENIED


class BrokerError(CollectorError):
    """No message broker can be started or reached."""

    code: ClassVar[str] = "broker"
    http_status: ClassVar[int] = 503


class PortInUseError(CollectorError):
    """Another process listens on the address."""

    code: ClassVar[str] = "port_in_use"


class AnalysisFailedError(CollectorError):
    """An analysis process failed, ran out of time or memory, or was killed.

    Attributes:
        is_final: Whether trying again cannot help (the input is at fault).
        is_corrupt: Whether the profile itself is damaged.
    """

    code: ClassVar[str] = "analysis_failed"

    def __init__(self, message: str, *, is_final: bool = False, is_corrupt: bool = False) -> None:
        self.is_final = is_final
        self.is_corrupt = is_corrupt
        super().__init__(message)
