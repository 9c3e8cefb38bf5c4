"""Numbers and switches among a tool's parameters, which are texts."""

from collections.abc import Mapping
from typing import Final

from podscope_analyzers.errors import ParameterError

_MAX_DIGITS: Final = 20
_FLAGS: Final = {"": False, "0": False, "false": False, "1": True, "true": True}


def whole_number(
    parameters: Mapping[str, str], name: str, default: int, most: int | None = None
) -> int:
    """A parameter that is a whole number.

    Raises:
        ParameterError: it is none, or more than ``most``.
    """
    text = parameters.get(name, "").strip()
    if not text:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        msg = f"{name} must be a whole number, not '{text[:40]}'"
        raise ParameterError(msg)
    if most is not None and int(text) > most:
        msg = f"{name} is at most {most}, not {int(text)}"
        raise ParameterError(msg)
    return int(text)


def switch(parameters: Mapping[str, str], name: str) -> bool:
    """A parameter that is on or off.

    Raises:
        ParameterError: it is neither.
    """
    text = parameters.get(name, "").strip().lower()
    if text not in _FLAGS:
        msg = f"{name} must be 0 or 1, not '{text[:40]}'"
        raise ParameterError(msg)
    return _FLAGS[text]
