"""What every thread of the process runs at this moment."""

import gc
import sys
from types import FrameType
from typing import Final

_COLLECTS_UNDER_LOCK: Final = sys.version_info < (3, 12)


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of every thread, by its identifier.

    Before Python 3.12 the dictionary for it is made under the lock that threads need to begin and
    to end, and making it may start a garbage collection. If what that collects gives up the
    interpreter's lock, as finalizers may, a thread that begins then waits for the one lock while
    it holds the other, and the whole process stands still. So nothing is collected meanwhile.
    """
    if not (_COLLECTS_UNDER_LOCK and gc.isenabled()):
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()
