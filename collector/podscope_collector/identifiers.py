"""Time-ordered keys (UUID version 7, RFC 9562)."""

import secrets
import threading
import time
import uuid

_lock = threading.Lock()
_last = 0


def uuid7() -> uuid.UUID:
    """A new UUIDv7; those of one process are strictly ascending.

    The 12 bits after the milliseconds hold their fraction (RFC 9562, method 3), so that keys
    made in one millisecond still sort by time.
    """
    global _last
    with _lock:
        now = time.time_ns()
        ticks = (now // 1_000_000) << 12 | (now % 1_000_000) * 4096 // 1_000_000
        _last = max(ticks, _last + 1)
        ticks = _last
    value = (ticks >> 12) << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64
    value |= 0b10 << 62 | secrets.randbits(62)
    return uuid.UUID(int=value)
