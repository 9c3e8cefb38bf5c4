"""Sessions of the frameworks that this process has loaded, beside the library's own.

A framework is looked up among the loaded modules and never imported. What it cannot do costs its
part of the capture alone: a warning in the profile says why.
"""

import logging
from typing import Final

from podscope.profiler.frameworks import jax_session, tensorflow_session, torch_session
from podscope.profiler.frameworks.session import FrameworkSession, FrameworkUnavailable
from podscope.profiler.options import ProfilerOptions

_LOG = logging.getLogger(__name__)
_STARTERS: Final = (jax_session.start, tensorflow_session.start, torch_session.start)


def start(
    options: ProfilerOptions, warnings: list[str], *, is_remote: bool
) -> list[FrameworkSession]:
    """Begin a session of every framework that is loaded; add to `warnings` why one could not."""
    running: list[FrameworkSession] = []
    for starter in _STARTERS:
        # CUPTI serves one client in a process: who comes first has the devices.
        asked = options._replace(device_tracer_level=0) if running else options
        try:
            session = starter(asked, is_remote=is_remote)
        except FrameworkUnavailable as error:
            warnings.append(str(error))
        except Exception as error:  # noqa: BLE001 - a framework's own errors are of any kind
            _LOG.warning("a framework's profiler did not start", exc_info=error)
            warnings.append(f"{starter.__module__.rpartition('.')[2]}: {_first_line(error)}")
        else:
            if session is not None:
                running.append(session)
    return running


def stop(running: list[FrameworkSession], warnings: list[str]) -> list[bytes]:
    """End the sessions; return their XSpaces, serialised."""
    spaces = []
    # The first to start has the devices: the others end before it.
    for session in reversed(running):
        try:
            spaces.append(session.stop())
        except FrameworkUnavailable as error:
            warnings.append(str(error))
        except Exception as error:  # noqa: BLE001 - a framework's own errors are of any kind
            _LOG.warning("a framework's profile is lost", exc_info=error)
            warnings.append(f"{session.name}'s part is lost: {_first_line(error)}")
    return [space for space in spaces if space]


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
