"""How Python code is named in a profile."""

from pathlib import Path
from types import CodeType
from typing import Final

_OWN_FOLDER: Final = str(Path(__file__).parent)


def code_name(code: CodeType) -> str:
    """A frame's name as the frameworks' Python tracers write it."""
    file = code.co_filename.rpartition("/")[2]
    return f"${file}:{code.co_firstlineno} {code.co_qualname}"


def is_own(code: CodeType) -> bool:
    """Whether code is the profiler's: what it does to a capture is no part of it."""
    return code.co_filename.startswith(_OWN_FOLDER)
