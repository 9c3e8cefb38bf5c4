"""Checks what a host sent and stores it: valid profiles in the session, the rest aside."""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from mmap import mmap

from podscope_collector.captured_hosts import (
    FILE_NAME,
    CapturedHost,
    pack_hosts,
    unpack_hosts,
)
from podscope_collector.captures.incoming import IncomingProfile
from podscope_collector.captures.reasons import Failure, NextStep
from podscope_collector.captures.response import ResponseError, unwrap
from podscope_collector.captures.statement import Statement, statement_of
from podscope_collector.captures.states import ReasonCode
from podscope_collector.errors import InputNotFoundError
from podscope_collector.storage import PROFILE_FOLDER, Storage, StorageError, StoredFile


@dataclass(frozen=True, slots=True)
class Kept:
    """A profile that is stored.

    Attributes:
        host: Name within the session that it is stored under.
        file: Where.
        warnings: Errors and warnings that the profiler put into it.
        window_ns: Start and end of the profiler's session, Unix time by the host's clock; None
            for what the profile does not tell.
        parts: Profiles of the host's further processes, where one file has no room for all.
    """

    host: str
    file: StoredFile
    warnings: tuple[str, ...] = ()
    window_ns: tuple[int | None, int | None] = (None, None)
    parts: tuple["Kept", ...] = ()


def warm_up() -> None:
    """Load what ``Keeper.keep`` needs, so that it happens before a profile is there.

    Nothing is compiled: no profile, and no command that captures, waits for that.
    """
    # Of nothing no byte would be looked at.
    with contextlib.suppress(_Invalid):
        _check(b"\x0a\x00")


class Keeper:
    """Stores the profiles of one session; its methods block."""

    def __init__(self, storage: Storage, session: str) -> None:
        self.storage = storage
        self.session = session

    @property
    def repository_root(self) -> str:
        """What a server that writes its own file takes for the folder of all sessions."""
        root = self.storage.root if self.storage.folder is None else str(self.storage.folder)
        return f"{root.rstrip('/')}/{PROFILE_FOLDER}"

    def repository_root_is_below(self, allowed: Sequence[str]) -> bool:
        """Whether an agent that may write to ``allowed`` roots can write to this session."""
        own = self.repository_root
        return any(own == root or own.startswith(f"{root.rstrip('/')}/") for root in allowed)

    def note_hosts(self, hosts: Sequence[CapturedHost]) -> None:
        """Write down what is known of the hosts, for who reads the folder without a database.

        Raises:
            StorageError: It cannot be written.
        """
        before: tuple[CapturedHost, ...] = ()
        with contextlib.suppress(InputNotFoundError):
            before = unpack_hosts(self.storage.read_derived("captures", self.session, FILE_NAME))
        content = pack_hosts(hosts, before)
        self.storage.put_derived("captures", self.session, FILE_NAME, content)

    def keep(
        self, answer: bytes, *, host: str, address: str, retry_empty: bool = False
    ) -> Kept | Failure:
        """Store the XSpace of a serialised ``ProfileResponse``.

        Bytes that are no valid XSpace go to ``rejected``, so that they can be looked at and
        never meet an analysis.

        Raises:
            StorageError: It cannot be written.
        """
        try:
            unwrapped = unwrap(answer)
        except ResponseError as error:
            return self._reject(answer, host, address, str(error))
        if unwrapped.is_empty:
            return Failure(
                ReasonCode.EMPTY_TRACE,
                NextStep.RETRY if retry_empty else NextStep.STOP,
                f"{address} saw no event in the window; is it working? capture longer or raise "
                "the tracer levels",
            )
        if unwrapped.xspace is None:
            return self._written_by_server(host, address)
        return self.keep_xspace(unwrapped.xspace, host, address)

    def keep_xspace(self, xspace: bytes | memoryview, host: str, address: str) -> Kept | Failure:
        """Store a serialised XSpace, as ``keep`` does with the one of an answer."""
        try:
            found = _check(xspace)
        except _Invalid as error:
            return self._reject(xspace, host, address, str(error))
        return self._store(xspace, host, found)

    def _store(self, xspace: bytes | memoryview, host: str, found: Statement) -> Kept:
        file = self.storage.put_xspace(self.session, host, xspace)
        return Kept(host, file, found.warnings, found.window_ns)

    def keep_incoming(
        self, incoming: IncomingProfile, sha256: str, host: str, address: str
    ) -> Kept | Failure:
        """Store a profile that was received in pieces.

        Args:
            incoming: The closed file.
            sha256: What the sender says of it.
            host: Name within the session.
            address: Who sent it, for messages.

        Raises:
            StorageError: It cannot be written.
        """
        if incoming.sha256 != sha256:
            return Failure(
                ReasonCode.CORRUPT,
                NextStep.RETRY,
                f"the profile of {address} was damaged on the way (its SHA-256 differs)",
            )
        content = incoming.content()
        try:
            found = _check(content)
        except _Invalid as error:
            return self._reject(memoryview(content), host, address, str(error))
        file = self.storage.adopt_xspace(
            self.session, host, incoming.path, incoming.size, incoming.sha256
        )
        return Kept(host, file, found.warnings, found.window_ns)

    def written_by_agent(self, size: int, sha256: str, host: str, address: str) -> Kept | Failure:
        """Account a profile that an agent wrote to our storage by itself; no byte of it is read.

        Raises:
            StorageError: The storage cannot be asked.
        """
        path = self.storage.xspace_path(self.session, host)
        there = self.storage.size_of(path)
        if there != size:
            found = "there is none" if there is None else f"it has {there:,}"
            return Failure(
                ReasonCode.STORAGE,
                NextStep.RETRY,
                f"{address} says that it wrote {size:,} bytes to {path}, and {found}; does its "
                "--allow-root name the storage of this service?",
            )
        return Kept(host, StoredFile(path, size, sha256))

    def forget(self, kept: Sequence[Kept]) -> None:
        """Remove parts of a profile that did not become whole.

        Raises:
            StorageError: They cannot be removed.
        """
        self.storage.delete([one.file.path for one in kept])

    def holds_another(self, host: str, xspace: bytes | memoryview) -> bool:
        """Whether the session has a profile of the host with other bytes."""
        if not self.storage.has_xspace(self.session, host):
            return False
        stored = self.storage.stat_xspace(self.session, host)
        return stored.sha256 != hashlib.sha256(xspace).hexdigest()

    def _reject(
        self, content: bytes | memoryview, host: str, address: str, problem: str
    ) -> Failure:
        try:
            stored = self.storage.put_derived("rejected", self.session, host, content)
            kept = f"they are kept in {stored.path}"
        except StorageError as error:
            kept = f"they are not kept: {error}"
        return _corrupt(address, problem, kept)

    def _set_aside(self, name: str, address: str, problem: str) -> Failure:
        """Reject what lies in the session; where it cannot be moved, the only copy stays."""
        try:
            self.storage.set_aside(self.session, name)
            kept = f"they are kept in {self.storage.rejected_path(self.session, name)}"
        except StorageError as error:
            path = self.storage.xspace_path(self.session, name)
            kept = f"they are still in {path}: {error}"
        return _corrupt(address, problem, kept)

    def _written_by_server(self, host: str, address: str) -> Kept | Failure:
        """An old server ignores ``emit_xspace`` and writes where we told it, if it can."""
        written_as = (host, address.replace(":", "_"))
        for name in dict.fromkeys(written_as):
            if "/" not in name and self.storage.has_xspace(self.session, name):
                path = self.storage.xspace_path(self.session, name)
                xspace = self.storage.load(path)
                try:
                    found = _check(xspace)
                except _Invalid as error:
                    return self._set_aside(name, address, str(error))
                kept = self._store(xspace, host, found)
                if name != host:
                    # Whoever reads the folder would meet it twice.
                    self.storage.delete([path])
                return kept
        return Failure(
            ReasonCode.UNIMPLEMENTED,
            NextStep.STOP,
            f"{address} sent no profile: it is too old to and wrote it to its own disk under "
            f"{self.repository_root}; update it, or give both the same storage",
        )


def _corrupt(address: str, problem: str, kept: str) -> Failure:
    message = f"{address} sent bytes that are no profile ({problem}); {kept}"
    return Failure(ReasonCode.CORRUPT, NextStep.RETRY, message)


class _Invalid(Exception):  # noqa: N818 - carries the text of a Failure, never leaves here
    pass


def _check(xspace: bytes | memoryview | mmap) -> Statement:
    """What a valid XSpace says."""
    # Brings numpy: only a process that has a profile to check pays for it.
    from podscope_analyzers.errors import XSpaceError
    from podscope_analyzers.xspace import open_xspace

    try:
        return statement_of(open_xspace(xspace, may_compile=False))
    except XSpaceError as error:
        raise _Invalid(str(error)) from error
