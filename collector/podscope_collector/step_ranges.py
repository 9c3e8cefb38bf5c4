"""Ranges of steps as people write them."""

import re
from typing import Final

from podscope_collector.errors import RequestError

_STEPS: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def parse_steps(text: str | None) -> tuple[int, int] | None:
    """First and last number of a range of steps; None for no text.

    Raises:
        RequestError: it is none.
    """
    if not text:
        return None
    found = _STEPS.fullmatch(text)
    first = int(found[1]) if found else 0
    last = int(found[2] or found[1]) if found else -1
    if last < first:
        message = f"steps '{text[:40]}' are not understood; write 3-7, or 3 for one step"
        raise RequestError(message)
    return first, last
