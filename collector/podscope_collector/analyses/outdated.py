"""What an older podscope left behind: partials that cannot be read any more are made again.

The profile is the truth and is kept; everything else follows from it. Who asks meanwhile is told to
ask again in a moment.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

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


@dataclass(frozen=True)
class Unreadable:
    """Hosts whose partials cannot be read.

    Attributes:
        outdated: Those whose profiles give readable ones.
        without_profile: Those of which only a profile would, and it is gone.
        lasting: Those whose profiles give the same again, with the reasons.
    """

    outdated: Sequence[str]
    without_profile: Sequence[str]
    lasting: Mapping[str, str]


def unreadable_hosts(
    storage: Storage, session: str, partials: Sequence[StoredPartial], parts: Sequence[str] = ()
) -> Unreadable:
    """Hosts whose partials, or some parts of them, cannot be read.

    Raises:
        PartialError: a newer podscope made one of them.
    """
    to_be_made: list[str] = []
    lasting = {}
    for stored in partials:
        try:
            read_partial(storage, session, stored, parts)
        except PartialError as error:
            if error.is_newer:
                raise
            if error.is_lasting and _is_as_written(storage, stored):
                lasting[stored.host] = str(error)
            else:
                to_be_made.append(stored.host)
        except InputNotFoundError:
            to_be_made.append(stored.host)
    has_profile = {host: storage.has_xspace(session, host) for host in to_be_made}
    return Unreadable(
        [host for host in to_be_made if has_profile[host]],
        [host for host in to_be_made if not has_profile[host]],
        lasting,
    )


def _is_as_written(storage: Storage, stored: StoredPartial) -> bool:
    return hashlib.sha256(storage.read(stored.path)).hexdigest() == stored.digest


class MadeAgain(Enum):
    """What became of the wish for readable partials."""

    UNDER_WAY = auto()
    PROFILES_GONE = auto()
    NOT_NEEDED = auto()


def make_again(runtime: Runtime, capture_id: uuid.UUID, parts: Sequence[str] = ()) -> MadeAgain:
    """Have all hosts of a capture analysed again whose partials cannot be read.

    A host without its profile is left as it is: its results can still be asked for.

    Raises:
        PartialError: a newer podscope made one of them.
    """
    storage = runtime.storage
    with runtime.database.reading() as session:
        folder = find_capture(session, capture_id).session
        if services.has_hosts_under_way(session, capture_id):
            return MadeAgain.UNDER_WAY
        partials = services.partials_of(session, capture_id)
    unreadable = unreadable_hosts(storage, folder, partials, parts)
    if not unreadable.outdated:
        is_gone = bool(unreadable.without_profile)
        return MadeAgain.PROFILES_GONE if is_gone else MadeAgain.NOT_NEEDED
    with runtime.database.writing() as session:
        replaced = services.analyze_again(session, capture_id, unreadable.outdated, runtime.clock())
    storage.delete(replaced)
    log.info("hosts_analyzed_again", capture=str(capture_id), hosts=len(unreadable.outdated))
    return MadeAgain.UNDER_WAY
