"""What a capture knows of its hosts beside their profiles, for readers without its database.

It lies under ``<root>/.podscope``, where no viewer of profiles looks.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

FILE_NAME: Final = "hosts.json"
_VERSION: Final = 1
# Far above what a thousand hosts need.
_MAX_BYTES: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class CapturedHost:
    """One host of a capture.

    Attributes:
        host: Its name in the capture.
        reason: Why it has no profile; None where it has one.
        clock_offset_ns: Its clock against the collector's; None where it was not measured.
        clock_error_ns: The offset is right to within this, either way.
    """

    host: str
    reason: str | None = None
    clock_offset_ns: int | None = None
    clock_error_ns: int | None = None


def pack_hosts(hosts: Iterable[CapturedHost], before: Sequence[CapturedHost] = ()) -> bytes:
    """The file's bytes.

    Args:
        hosts: As the capture left them.
        before: Of an earlier attempt at the same capture; those named again are replaced.
    """
    every = {one.host: one for one in (*before, *hosts)}
    rows = [asdict(every[name]) for name in sorted(every)]
    return json.dumps({"version": _VERSION, "hosts": rows}, indent=1).encode()


def unpack_hosts(raw: bytes) -> tuple[CapturedHost, ...]:
    """The hosts; none where the bytes are damaged or of a newer version, which costs no result."""
    try:
        read = json.loads(raw)
    except ValueError:
        return ()
    if not isinstance(read, dict) or read.get("version") != _VERSION:
        return ()
    rows = read.get("hosts")
    return tuple(map(_host, filter(_is_host, rows))) if isinstance(rows, list) else ()


def _is_host(row: object) -> bool:
    return isinstance(row, dict) and isinstance(row.get("host"), str)


def _host(row: Mapping[str, Any]) -> CapturedHost:
    reason, offset, error = (row.get(n) for n in ("reason", "clock_offset_ns", "clock_error_ns"))
    # Both or none: an offset of unknown error compares nothing.
    has_clock = type(offset) is int and type(error) is int
    return CapturedHost(
        row["host"],
        reason if isinstance(reason, str) else None,
        offset if has_clock else None,
        error if has_clock else None,
    )


def captured_hosts(run_folder: Path) -> tuple[CapturedHost, ...]:
    """The hosts of a run folder, where the capture that made it wrote them down."""
    # <root>/plugins/profile/<session>; the folder may be given by a relative path.
    folder = run_folder.resolve()
    if [folder.parent.name, folder.parent.parent.name] != ["profile", "plugins"]:
        return ()
    root = folder.parent.parent.parent
    file = root / ".podscope" / "captures" / folder.name / FILE_NAME
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MAX_BYTES + 1)
    except OSError:
        return ()
    return unpack_hosts(raw) if len(raw) <= _MAX_BYTES else ()
