"""File descriptors: every host in flight holds one, and the usual limit is 1,024."""

from typing import Final

import structlog

log = structlog.get_logger(__name__)

SPARE_DESCRIPTORS: Final = 128
"""What the rest of the process may hold: log, database, storage, the event loop."""


def affordable_width(wanted: int) -> int:
    """How many connections may be open at once, at most ``wanted``.

    Raises this process's soft limit first, as far as the hard one lets it; what is still
    missing makes hosts wait instead of failing.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + SPARE_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    goal = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if goal > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            soft = goal
        except (OSError, ValueError):
            log.debug("descriptor_limit_not_raised", soft=soft, wanted=goal)
    width = max(1, min(wanted, soft - SPARE_DESCRIPTORS))
    if width < wanted:
        log.warning("few_file_descriptors", limit=soft, hosts_at_once=width, raise_to=needed)
    return width
