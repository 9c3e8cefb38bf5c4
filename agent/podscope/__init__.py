"""Podscope's in-process library: the profiler API that people know, light enough for any image."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from podscope._version import __version__

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    # Looking the version up takes longer than any other part of starting a command.
    if name == "__version__":
        from podscope._version import __version__

        return __version__
    msg = f"module 'podscope' has no attribute '{name}'"
    raise AttributeError(msg)
