"""Gives memory back to the system after a large answer went through."""

import ctypes
import gc
from functools import lru_cache
from typing import Any, Final

LARGE_BYTES: Final = 8 << 20
"""Messages above it leave buffers behind that are worth giving back."""


@lru_cache(maxsize=1)
def _malloc_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None  # not glibc


def give_back_free_memory() -> None:
    """Return freed heap pages to the system.

    gRPC receives a message in thousands of small buffers. Freed, they stay with the allocator, and
    the merged profile would be allocated beside them: half as much memory again. And a finished
    call keeps the message it received until its cycle of references is collected.
    """
    gc.collect()
    trim = _malloc_trim()
    if trim is not None:
        trim(0)
