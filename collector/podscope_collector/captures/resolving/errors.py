"""The error of a lookup."""

from typing import ClassVar

from podscope_collector.errors import CollectorError
from podscope_protos.errors import ExitCode


class LookupFailed(CollectorError):  # noqa: N818 - the fact, as the other errors of lookups
    """A target cannot be looked up now.

    Attributes:
        status: The HTTP status of the answer, when there was one.
    """

    code: ClassVar[str] = "unresolved"
    exit_code: ClassVar[ExitCode] = ExitCode.FAILED
    http_status: ClassVar[int] = 502

    def __init__(self, message: str, *, status: int | None = None) -> None:
        self.status = status
        super().__init__(message)
