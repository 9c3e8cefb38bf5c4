"""Durations as people write them: ``500ms``, ``2s``, ``1.5m``, ``1h``."""

import re

from podscope_collector.errors import RequestError

_DURATION = re.compile(r"^\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h)\s*$", re.IGNORECASE)
_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


def parse_duration_ms(text: str, what: str = "duration") -> int:
    """Whole milliseconds.

    Raises:
        RequestError: No number with a unit, or finer than a millisecond.
    """
    match = _DURATION.match(text)
    if match is None:
        msg = f"{what} '{text[:40]}' is not understood; write 500ms, 2s, 1.5m or 1h"
        raise RequestError(msg)
    exact = float(match.group(1)) * _MS[match.group(2).lower()]
    if exact != round(exact):
        msg = f"{what} '{text[:40]}' is finer than a millisecond"
        raise RequestError(msg)
    return round(exact)


def parse_window_ms(text: str, what: str) -> int:
    """Whole milliseconds of a window, which is never empty.

    Raises:
        RequestError: As of ``parse_duration_ms``, or it is no time at all.
    """
    window_ms = parse_duration_ms(text, what)
    if not window_ms:
        msg = f"{what} {text.strip()[:40]} captures nothing; write 1ms to 1h"
        raise RequestError(msg)
    return window_ms
