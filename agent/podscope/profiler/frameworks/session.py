"""What a framework's session looks like from outside."""

from typing import Protocol

from podscope.profiler.errors import ProfilerError


class FrameworkUnavailable(ProfilerError):  # noqa: N818 - a fact about a framework
    """A framework's part of a capture cannot be had; the text says why."""

    code = "framework_unavailable"


class FrameworkSession(Protocol):
    """A framework's profiler while it runs."""

    name: str

    def mark_thread(self, native_id: int) -> None:
        """Leave a mark on the calling thread's line, where the session's lines have other ids."""

    def stop(self) -> bytes:
        """End the session; return its XSpace, serialised.

        Raises:
            FrameworkUnavailable: it recorded nothing.
        """
