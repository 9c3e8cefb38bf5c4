"""Names of hosts that are safe as file names and distinct within a session."""

import hashlib
import re
from collections.abc import Iterable

MAX_LENGTH = 180

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
# XProf's names for "all hosts" and "no host", and the devices that Windows keeps.
_RESERVED = re.compile(r"^(?:all_hosts|no_host|con|prn|aux|nul|com[0-9]|lpt[0-9])$", re.IGNORECASE)


def safe_host_name(name: str) -> str:
    """The name as a file stem: ``w0.svc:9999`` becomes ``w0.svc_9999``.

    Brackets of an IPv6 address go, every other character that a file system or a URL may
    object to becomes ``_``. Names that had to be changed beyond that end in a hash of the
    original, so that two of them never meet.
    """
    plain = name.strip("[]").replace("]:", "_").replace(":", "_")
    safe = _UNSAFE.sub("_", plain)
    changed = safe != plain
    # A leading dot hides a file and `..` climbs; a trailing one is lost on some systems.
    stripped = re.sub(r"\.{2,}", "_", safe).strip(".")
    changed |= stripped != safe
    stem = stripped.partition(".")[0]
    if not stripped or _RESERVED.match(stem) or len(stripped) > MAX_LENGTH:
        changed = True
        stripped = f"host-{stripped}"[:MAX_LENGTH].rstrip(".")
    if not changed:
        return stripped
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{stripped[: MAX_LENGTH - 9]}-{digest}"


def distinct_host_names(names: Iterable[str]) -> list[str]:
    """A safe name for each, distinct also where file systems ignore case."""
    taken: set[str] = set()
    chosen: list[str] = []
    for name in names:
        safe = safe_host_name(name)
        candidate, number = safe, 2
        while candidate.lower() in taken:
            candidate, number = f"{safe}-{number}", number + 1
        taken.add(candidate.lower())
        chosen.append(candidate)
    return chosen
