"""Bringing profiles that others captured into the service: copied, checked, and to be analysed."""

import contextlib
import hashlib
import itertools
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from podscope_collector.captures.keeping import Keeper, Kept
from podscope_collector.captures.models import Capture, CaptureHost, Trigger
from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.progress import apply_updates
from podscope_collector.captures.services import DEFAULT_RUN, finish_capture
from podscope_collector.captures.states import CaptureState, HostState, ReasonCode
from podscope_collector.errors import CollectorError, InputNotFoundError
from podscope_collector.host_names import distinct_host_names
from podscope_collector.runtime import Runtime
from podscope_protos.methods import MAX_MESSAGE_BYTES

# Hosts that were left out; all of them are in the capture.
_TOLD: Final = 5
_TIMESTAMP: Final = re.compile(r"^(\d{4}_\d{2}_\d{2}_\d{2}_\d{2}_\d{2})(?:_(\d{3}))?")


@dataclass(frozen=True)
class FoundProfile:
    """A profile that is to be imported.

    Attributes:
        host: As its file is called.
        place: Where it lies, for people.
        read: Its bytes; may raise a ``CollectorError``.
        size: Bytes; 0 where nobody can tell.
        problem: Why it is not to be read, if it is not.
    """

    host: str
    place: str
    read: Callable[[], bytes | memoryview]
    size: int = 0
    problem: str | None = None

    def content(self) -> bytes | memoryview:
        """Its bytes, unpacked: viewers read no packed profile.

        Raises:
            CollectorError: It is not to be read, or cannot be.
        """
        if self.problem is not None:
            raise InputNotFoundError(self.problem)
        if self.size > MAX_MESSAGE_BYTES:
            message = (
                f"{self.place} has {self.size:,} bytes; no profiler writes, and no viewer reads, "
                f"more than {MAX_MESSAGE_BYTES:,}"
            )
            raise InputNotFoundError(message)
        from podscope_analyzers.errors import XSpaceError
        from podscope_analyzers.xspace import unpack

        found = self.read()
        try:
            return unpack(found)
        except XSpaceError:
            # Who checks it says what is wrong, and keeps it aside as it is.
            return found


@dataclass(frozen=True)
class FoundRun:
    """The profiles of one capture, out of one or several run folders.

    Attributes:
        session: Name of the first folder.
        folders: Names of all of them.
    """

    session: str
    folders: tuple[str, ...]
    profiles: tuple[FoundProfile, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of one run.

    Attributes:
        capture_id: None when nothing was imported.
        hosts_done: Profiles that are stored.
        problem: Why it was left out, or what was wrong with single hosts; None when all is well.
        is_known: The service had this run before.
    """

    session: str
    capture_id: uuid.UUID | None
    hosts_done: int
    hosts_total: int
    problem: str | None
    is_known: bool = False


def merge_runs(runs: Iterable[FoundRun], window: timedelta) -> list[FoundRun]:
    """Join the run folders of one logical capture, whose hosts named them by their own clocks.

    Folders belong together when each begins within ``window`` of the one before and no host is
    in two of them. Folders that are not named by a time are never joined.
    """
    merged: list[FoundRun] = []
    last: datetime | None = None
    for run in sorted(runs, key=lambda found: found.session):
        began = session_time(run.session)
        if (
            merged
            and began is not None
            and last is not None
            and began - last <= window
            and not {p.host for p in run.profiles} & {p.host for p in merged[-1].profiles}
        ):
            first = merged[-1]
            merged[-1] = FoundRun(
                first.session, (*first.folders, *run.folders), (*first.profiles, *run.profiles)
            )
        else:
            merged.append(run)
        last = began
    return merged


def session_time(session: str) -> datetime | None:
    """The moment that a run folder is named by, taken for UTC; None when it is not."""
    match = _TIMESTAMP.match(session)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match.group(1), "%Y_%m_%d_%H_%M_%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment + timedelta(milliseconds=int(match.group(2) or 0))


def import_runs(
    runtime: Runtime, runs: Sequence[FoundRun], label: str | None, on_profile: Callable[[], None]
) -> Iterator[Imported]:
    """Import each run as a capture; what fails with one costs only that one.

    Args:
        runtime: Where to.
        runs: From where; a run whose session the service has already is left out.
        label: Name of the training run; ``default`` when absent.
        on_profile: Called after each profile, for progress.
    """
    for run in runs:
        yield _import(runtime, run, label or DEFAULT_RUN, on_profile)


def _import(
    runtime: Runtime, run: FoundRun, label: str, on_profile: Callable[[], None]
) -> Imported:
    total = len(run.profiles)
    try:
        name, known = _session_for(runtime, run)
    except CollectorError as error:
        return Imported(run.session, None, 0, total, str(error))
    if known is not None:
        why = f"is there already, as capture {known}"
        return Imported(run.session, None, 0, total, why, is_known=True)
    run = replace(run, session=name)
    keeper = Keeper(runtime.storage, run.session)
    updates = []
    names = distinct_host_names(profile.host for profile in run.profiles)
    for name, profile in zip(names, run.profiles, strict=True):
        updates.append(_keep(keeper, name, profile, runtime.clock()))
        on_profile()
    done = sum(update.state is HostState.DONE for update in updates)
    problems = [f"{update.host}: {update.message}" for update in updates if update.message]
    problem = "; ".join(problems[:_TOLD]) or None
    if len(problems) > _TOLD:
        problem = f"{problem}; and {len(problems) - _TOLD} more"
    if not done:
        return Imported(run.session, None, 0, total, problem)
    with runtime.database.writing() as session:
        capture_id = _store(session, run, label, updates, runtime.clock())
    return Imported(run.session, capture_id, done, total, problem)


def _session_for(runtime: Runtime, run: FoundRun) -> tuple[str, uuid.UUID | None]:
    """A session of the service for the run; with the capture's id when it has these profiles.

    Folders of two jobs may have one name: then the second gets a number.
    """
    digests: set[str] | None = None
    for number in itertools.count(1):
        name = run.session if number == 1 else f"{run.session}-{number}"
        with runtime.database.reading() as session:
            known = session.scalar(select(Capture.id).where(Capture.session == name))
            if known is None:
                return name, None
            stored = set(
                session.scalars(select(CaptureHost.sha256).where(CaptureHost.capture_id == known))
            )
        if digests is None:
            digests = _digests(run)
        if digests & stored:
            return name, known
    raise AssertionError


def _digests(run: FoundRun) -> set[str]:
    """Of its profiles as they would be stored; one that cannot be read is of no run."""
    found = set()
    for profile in run.profiles:
        with contextlib.suppress(CollectorError):
            found.add(hashlib.sha256(profile.content()).hexdigest())
    return found


def _keep(keeper: Keeper, name: str, profile: FoundProfile, now: datetime) -> HostUpdate:
    failed = HostUpdate(
        target=profile.place[-512:],
        host=name,
        state=HostState.FAILED,
        reason=ReasonCode.STORAGE,
        finished_at=now,
    )
    try:
        content = profile.content()
        if keeper.holds_another(name, content):
            message = f"the storage has another profile of {keeper.session}/{name}; nothing is lost"
            return replace(failed, message=message)
        result = keeper.keep_xspace(content, name, profile.place)
    except CollectorError as error:
        return replace(failed, message=str(error))
    if not isinstance(result, Kept):
        return replace(failed, reason=result.reason, message=result.message)
    return HostUpdate(
        target=failed.target,
        host=name,
        state=HostState.DONE,
        attempts=0,
        bytes=result.file.size,
        sha256=result.file.sha256,
        file=result.file.path,
        warnings=result.warnings,
        finished_at=now,
    )


def _store(
    session: Session, run: FoundRun, label: str, updates: Sequence[HostUpdate], now: datetime
) -> uuid.UUID:
    """The rows of a capture that has ended, and the work to analyse it."""
    capture = Capture(
        session=run.session,
        run=label,
        state=CaptureState.CAPTURING,
        trigger=Trigger.IMPORT,
        created_at=now,
        started_at=session_time(run.session) or now,
        duration_ms=0,
        attempts=1,
        quorum="any",
        labels={"run": label},
        request={"folders": list(run.folders)},
        hosts_total=len(updates),
    )
    capture.hosts = [
        CaptureHost(position=position, target=update.target, host=update.host)
        for position, update in enumerate(updates)
    ]
    session.add(capture)
    session.flush()
    apply_updates(session, capture.id, {update.host: update for update in updates}, now)
    finish_capture(session, capture.id, now)
    # The capture itself took place elsewhere; how long it took is not known.
    capture.capture_seconds = None
    return capture.id
