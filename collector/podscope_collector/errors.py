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
