"""Checks what a host sent and stores it: valid profiles in the session, the rest aside."""

import contextlib
from dataclasses import dataclass

from podscope_collector.captures.reasons import Failure, NextStep
from podscope_collector.captures.response import ResponseError, unwrap
from podscope_collector.captures.states import ReasonCode
from podscope_collector.storage import PROFILE_FOLDER, Storage, StoredFile

MAX_WARNINGS = 20
MAX_WARNING_LENGTH = 300


@dataclass(frozen=True, slots=True)
class Kept:
    """A profile that is stored.

    Attributes:
        file: Where.
        warnings: Errors and warnings that the profiler put into it.
    """

    file: StoredFile
    warnings: tuple[str, ...]


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

    def warm_up(self) -> None:
        """Load what ``keep`` needs, so that it happens while the hosts still capture."""
        with contextlib.suppress(_Invalid):
            _check(b"")

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
        return self._keep_xspace(unwrapped.xspace, host, address)

    def _keep_xspace(self, xspace: bytes | memoryview, host: str, address: str) -> Kept | Failure:
        try:
            warnings = _check(xspace)
        except _Invalid as error:
            return self._reject(xspace, host, address, str(error))
        return Kept(self.storage.put_xspace(self.session, host, xspace), warnings)

    def _reject(
        self, content: bytes | memoryview, host: str, address: str, problem: str
    ) -> Failure:
        stored = self.storage.put_derived("rejected", self.session, host, content)
        return Failure(
            ReasonCode.CORRUPT,
            NextStep.RETRY,
            f"{address} sent bytes that are no profile ({problem}); they are kept in {stored.path}",
        )

    def _written_by_server(self, host: str, address: str) -> Kept | Failure:
        """An old server ignores ``emit_xspace`` and writes where we told it, if it can."""
        written_as = (host, address.replace(":", "_"))
        for name in dict.fromkeys(written_as):
            if "/" not in name and self.storage.has_xspace(self.session, name):
                path = self.storage.xspace_path(self.session, name)
                kept = self._keep_xspace(self.storage.read(path), host, address)
                if name != host:
                    self.storage.delete([path])
                return kept
        return Failure(
            ReasonCode.UNIMPLEMENTED,
            NextStep.STOP,
            f"{address} sent no profile: it is too old to and wrote it to its own disk under "
            f"{self.repository_root}; update it, or give both the same storage",
        )


class _Invalid(Exception):  # noqa: N818 - carries the text of a Failure, never leaves here
    pass


def _check(xspace: bytes | memoryview) -> tuple[str, ...]:
    """The profiler's own complaints in a valid XSpace."""
    # Brings numba: only a process that has a profile to check pays for it.
    from podscope_analyzers.errors import XSpaceError
    from podscope_analyzers.xspace import open_xspace

    try:
        space = open_xspace(xspace)
        complaints = [*space.errors, *space.warnings][:MAX_WARNINGS]
    except XSpaceError as error:
        raise _Invalid(str(error)) from error
    return tuple(text[:MAX_WARNING_LENGTH] for text in complaints)
