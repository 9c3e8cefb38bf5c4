"""Names of hosts that are safe as file names and distinct within a session."""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

MAX_LENGTH = 180

_PART: Final = "process-"
_NUMBER = re.compile(r"^[0-9]{1,20}$")
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


def part_name(host: str, suffix: str) -> str:
    """The name of one of the profiles that a host's was split into.

    An agent tells the suffix; whatever it is, the name is no other host's of the session.
    """
    number = suffix.removeprefix(_PART)
    return f"{host}.{_PART}{number if _NUMBER.match(number) else safe_host_name(suffix)}"


def is_part_of(name: str, host: str) -> bool:
    """Whether a name is one that ``part_name`` gives to parts of the host's profile."""
    return name.startswith(f"{host}.{_PART}")


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
