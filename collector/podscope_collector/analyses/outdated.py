"""What an older podscope left behind: partials that cannot be read any more are made again.

The profile is the truth and is kept; everything else follows from it. Who asks meanwhile is told to
ask again in a moment.
"""

import uuid
from collections.abc import Sequence

import structlog

from podscope_analyzers.errors import PartialError
from podscope_analyzers.partials import HostPartial
from podscope_collector.analyses import services
from podscope_collector.analyses.pod_states import StoredPartial
from podscope_collector.captures.queries import find_capture
from podscope_collector.errors import InputNotFoundError
from podscope_collector.runtime import Runtime
from podscope_collector.storage import Storage

log = structlog.get_logger(__name__)

_MAX_PART_BYTES = 1 << 30


def read_partial(
    storage: Storage, session: str, stored: StoredPartial, parts: Sequence[str]
) -> HostPartial:
    """A host's partial with some of its parts.

    Raises:
        PartialError: it is damaged or of another version.
        InputNotFoundError: it, or a part of it, is gone.
    """
    partial = HostPartial.from_bytes(storage.read(stored.path))
    for name in parts:
        packed = storage.read_derived("parts", session, f"{stored.host}.{name}")
        partial = partial.with_part(name, packed, max_bytes=_MAX_PART_BYTES)
    return partial


def unreadable_hosts(
    storage: Storage, session: str, partials: Sequence[StoredPartial], parts: Sequence[str] = ()
) -> list[str]:
    """Hosts whose partials have to be made again.

    Raises:
        PartialError: a newer podscope made one of them.
    """
    found = []
    for stored in partials:
        try:
            read_partial(storage, session, stored, parts)
        except PartialError as error:
            if error.is_newer:
                raise
            found.append(stored.host)
        except InputNotFoundError:
            found.append(stored.host)
    return found


def make_again(runtime: Runtime, capture_id: uuid.UUID, parts: Sequence[str] = ()) -> bool:
    """Have all hosts of a capture analysed again whose partials cannot be read.

    Returns:
        Whether some are, or were already, under way; False where their profiles are gone.

    Raises:
        PartialError: a newer podscope made one of them.
    """
    storage = runtime.storage
    with runtime.database.reading() as session:
        folder = find_capture(session, capture_id).session
        partials = services.partials_of(session, capture_id)
    unreadable = unreadable_hosts(storage, folder, partials, parts)
    if unreadable and not any(storage.has_xspace(folder, host) for host in unreadable):
        return False
    with runtime.database.writing() as session:
        replaced = services.analyze_again(session, capture_id, unreadable, runtime.clock())
    storage.delete(replaced)
    log.info("hosts_analyzed_again", capture=str(capture_id), hosts=len(unreadable))
    return True
