"""Errors of the in-process profiler."""

from typing import ClassVar

from podscope_protos.errors import PodscopeError


class ProfilerError(PodscopeError):
    """A capture that could not be made, served or saved."""

    code: ClassVar[str] = "profiler_error"


class ProfilerAlreadyRunningError(ProfilerError):
    """One capture at a time: another runs in this process."""

    code: ClassVar[str] = "profiler_running"

    def __init__(self) -> None:
        super().__init__("another profiler is running in this process; stop it first")
