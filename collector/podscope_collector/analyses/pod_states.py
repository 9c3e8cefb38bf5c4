"""Keeping the combined state of a capture's hosts beside its partials.

A state is a list of files that are written once. A host that comes late adds one; whenever the
state does not fit the partials that there are (one was made again or is gone, another version, a
damaged or missing file, too many files) it is made anew of all of them.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from podscope_analyzers.errors import PartialError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pod_state import MAX_SEGMENTS, PodState
from podscope_collector.errors import InputNotFoundError
from podscope_collector.identifiers import uuid7
from podscope_collector.storage import Storage


class StoredPartial(NamedTuple):
    """Where the partial of a host is.

    Attributes:
        path: Key in the storage; the same for every analysis of the host.
        digest: SHA-256 in hex of the analysis that counts; None where it was made before digests
            were kept.
    """

    host: str
    path: str
    digest: str | None


@dataclass(frozen=True)
class KeptState:
    """A state and where it is kept.

    Attributes:
        files: Keys in the storage, the oldest first.
        merged: Hosts that were merged now; all of them when the state was made anew.
        why_anew: What was wrong with the state of before; empty where nothing was.
    """

    state: PodState
    files: tuple[str, ...]
    merged: int
    why_anew: str = ""


def open_state(storage: Storage, files: Sequence[str]) -> PodState:
    """The state that is kept in some files.

    Raises:
        InputNotFoundError: a file is gone.
        PartialError: a file is damaged or of another version.
    """
    return PodState([storage.mapped(path) for path in files])


def bring_up_to_date(
    storage: Storage, session: str, partials: Sequence[StoredPartial], files: Sequence[str]
) -> KeptState:
    """The state of exactly these partials; late hosts are merged into the one that is kept.

    Raises:
        PartialError: a partial is damaged or of another version.
        InputNotFoundError: a partial is gone.
    """
    why_anew = ""
    kept = PodState([])
    if files:
        try:
            kept = open_state(storage, files)
            kept.verify()
            why_anew = _misfit(kept, partials)
        except (PartialError, InputNotFoundError) as error:
            why_anew = str(error)
    if why_anew or not files:
        kept, files = PodState([]), ()
    held = {host.host for host in kept.hosts}
    late = [partial for partial in partials if partial.host not in held]
    if files and not late:
        return KeptState(kept, tuple(files), 0)
    state = kept.with_hosts(_read(storage, late))
    stored = storage.put_derived("pods", session, f"{uuid7().hex}.segment", state.newest)
    return KeptState(state, (*files, stored.path), len(late), why_anew)


def _misfit(state: PodState, partials: Sequence[StoredPartial]) -> str:
    """Why the state cannot be added to; empty when it can."""
    wanted = {partial.host: partial.digest for partial in partials}
    changed = [host.host for host in state.hosts if wanted.get(host.host) != host.digest]
    if changed:
        return f"the partial of {changed[0]} is another now, as are {len(changed) - 1} more"
    if state.segments >= MAX_SEGMENTS and len(partials) > len(state.hosts):
        return f"it has {state.segments} files"
    return ""


def _read(storage: Storage, partials: Iterable[StoredPartial]) -> Iterator[tuple[HostPartial, str]]:
    """The partials, with the digests of what was really read: it may have been replaced since."""
    for partial in partials:
        packed = storage.read(partial.path)
        yield HostPartial.from_bytes(packed), hashlib.sha256(packed).hexdigest()
