"""What a kernel's author attached to a custom call, as the instruction's text carries it."""

import json
import re
from typing import Any, Final

_MARK: Final = "xprof_metadata"
_ATTRIBUTE: Final = re.compile(r"\bkernel_metadata=")
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


def kernel_metadata(expression: str) -> dict[str, Any] | None:
    """The ``xprof_metadata`` of the frontend attribute ``kernel_metadata``; None without one."""
    if _MARK not in expression:
        return None
    found = _ATTRIBUTE.search(expression)
    if found is None:
        return None
    rest = expression[found.end() :]
    quoted = _STRING.match(rest)
    try:
        if quoted is not None:
            rest = json.loads(quoted[0])
        attribute, _ = json.JSONDecoder().raw_decode(rest)
        metadata = attribute[_MARK]
        if isinstance(metadata, str):
            metadata = json.loads(metadata)
    except (ValueError, KeyError, TypeError):
        return None
    return metadata if isinstance(metadata, dict) else None
