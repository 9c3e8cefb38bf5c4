"""Turns XSpaces into columns once, and columns into answers."""

from podscope_analyzers.errors import XSpaceError
from podscope_analyzers.xspace import XSpace, open_xspace

__all__ = ["XSpace", "XSpaceError", "open_xspace"]
