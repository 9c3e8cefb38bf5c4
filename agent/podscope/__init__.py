"""Podscope's in-process library: the profiler API that people know, light enough for any image."""

from podscope._version import __version__

__all__ = ["__version__"]
