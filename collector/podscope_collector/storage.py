"""Profiles and what is derived from them: a local folder or an object store.

The layout is TensorBoard's, ``<root>/plugins/profile/<session>/<host>.xplane.pb``; our own files
lie beside it under ``<root>/.podscope``, where no viewer looks.
"""

import hashlib
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Literal

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotFoundError,
)
from obstore.store import LocalStore, ObjectStore

from podscope_collector.errors import CollectorError, InputNotFoundError, RequestError
from podscope_collector.object_store import connect, explain
from podscope_collector.page_cache import RecentPages

if TYPE_CHECKING:
    from obstore import ObjectMeta

PROFILE_FOLDER: Final = "plugins/profile"
XSPACE_SUFFIX: Final = ".xplane.pb"
SCHEMES: Final = ("s3://", "gs://")

Buffer = bytes | bytearray | memoryview
DerivedKind = Literal["partials", "parts", "pods", "results", "rejected", "captures"]
"""``partials`` per host, ``parts`` of them that only few tools read, ``pods``: the combined state
of all hosts of a capture, ``results`` of tools,
``rejected``: bytes that are no valid profile, ``captures``: what a capture knows of its hosts."""

_MAX_COMPONENT = 240
_BLOCK_BYTES: Final = 1 << 19
# Ids of one process must differ even where the store cannot reserve them (a read-only mount).
_session_lock = threading.Lock()


class StorageError(CollectorError):
    """The storage cannot be read or written."""

    code: ClassVar[str] = "storage"
    http_status: ClassVar[int] = 507


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that is completely written.

    Attributes:
        path: Key below the root, with ``/``.
        size: Bytes.
        sha256: Digest of the content in hex.
    """

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A file as a listing shows it.

    Attributes:
        path: Key below the root, with ``/``.
        changed: Unix time, seconds.
        size: Bytes.
    """

    path: str
    changed: float
    size: int


class Storage:
    """Reads and writes below one root; its methods block, so call them off an event loop.

    Args:
        root: A local folder (made when it is first written to), ``s3://bucket/prefix`` or
            ``gs://bucket/prefix`` with the usual credentials of that cloud.
        options: Passed on to the store. An S3 server of one's own is usually named by the
            environment instead: ``AWS_ENDPOINT_URL``, ``AWS_ALLOW_HTTP=true``.
        is_prompt: Whether somebody waits for the answer: a bucket that does not answer when it is
            listed is given up soon.

    Raises:
        RequestError: The root is no folder and no such URL.
    """

    def __init__(
        self,
        root: str,
        *,
        options: dict[str, str] | None = None,
        is_prompt: bool = False,
    ) -> None:
        self.root = root
        self._is_prompt = is_prompt
        self.folder: Path | None = None
        self._options = options or {}
        self._store: ObjectStore | None = None
        self._prompt_store: ObjectStore | None = None
        self._recent = RecentPages()
        if "://" not in root:
            if not root:
                msg = "the storage root is empty; name a folder, s3://bucket/… or gs://bucket/…"
                raise RequestError(msg)
            self.folder = Path(root).expanduser().absolute()
        elif not root.startswith(SCHEMES):
            msg = f"storage '{root}' is not supported; use a folder, s3://bucket/… or gs://bucket/…"
            raise RequestError(msg)

    # -- sessions ---------------------------------------------------------------------------

    def new_session(self, now: datetime | None = None) -> str:
        """A session id that no other capture below this root has, with a readable time.

        The id (``2026_11_21_09_00_00_123``, UTC) is reserved in the storage, so that several
        services on one root never share one.

        Raises:
            StorageError: The root cannot be written.
        """
        moment = now or datetime.now(UTC)
        with _session_lock:
            for _ in range(10_000):
                session = moment.astimezone(UTC).strftime("%Y_%m_%d_%H_%M_%S_")
                session += f"{moment.microsecond // 1000:03d}"
                if self._reserve(session):
                    return session
                moment += timedelta(milliseconds=1)
        msg = f"no free session id below {self.root}; check the clock of this machine"
        raise StorageError(msg)

    def _reserve(self, session: str) -> bool:
        with self._errors(f"write to {self.root}"):
            try:
                obstore.put(
                    self._open_promptly(), f".podscope/sessions/{session}", b"", mode="create"
                )
            except AlreadyExistsError:
                return False
        return True

    def list_sessions(self) -> list[str]:
        """Names of all sessions with a folder, newest first."""
        return sorted(self.listing(PROFILE_FOLDER)[0], reverse=True)

    def list_hosts(self, session: str) -> list[str]:
        """Names of the hosts whose XSpace is stored, in order."""
        _, files = self.listing(f"{PROFILE_FOLDER}/{_component(session, 'session')}")
        names = [file.path.rpartition("/")[2] for file in files]
        return sorted(
            name.removesuffix(XSPACE_SUFFIX)
            for name in names
            if name.endswith(XSPACE_SUFFIX) and name != XSPACE_SUFFIX and not name.startswith(".")
        )

    # -- profiles ---------------------------------------------------------------------------

    def xspace_path(self, session: str, host: str) -> str:
        """Key of a host's XSpace below the root.

        Raises:
            RequestError: A name would leave the session's folder.
        """
        session, host = _component(session, "session"), _component(host, "host")
        return f"{PROFILE_FOLDER}/{session}/{host}{XSPACE_SUFFIX}"

    def put_xspace(self, session: str, host: str, content: Buffer) -> StoredFile:
        """Store a host's XSpace; a reader sees the whole file or none.

        Raises:
            StorageError: It cannot be written.
        """
        return self._put(self.xspace_path(session, host), content)

    def read_xspace(self, session: str, host: str) -> bytes:
        """A host's XSpace.

        Raises:
            InputNotFoundError: There is none.
        """
        return self.read(self.xspace_path(session, host))

    def has_xspace(self, session: str, host: str) -> bool:
        """Whether a host's XSpace is stored."""
        return self.exists(self.xspace_path(session, host))

    def incoming_path(self) -> Path:
        """A free name on this machine for a file that is being received.

        Raises:
            StorageError: The folder for it cannot be made.
        """
        if self.folder is None:
            folder = Path(tempfile.gettempdir())
        else:
            folder = self.folder / ".podscope" / "tmp"
        with self._errors(f"write to {self.root}"):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / f"podscope-{secrets.token_hex(8)}"

    def adopt_xspace(
        self, session: str, host: str, received: Path, size: int, sha256: str
    ) -> StoredFile:
        """Make a received file a host's XSpace; a reader sees the whole file or none.

        Raises:
            StorageError: It cannot be written.
        """
        path = self.xspace_path(session, host)
        with self._errors(f"write {path} to {self.root}"):
            if self.folder is None:
                obstore.put(self._open(write=True), path, received)
            else:
                final = self.folder / path
                final.parent.mkdir(parents=True, exist_ok=True)
                received.replace(final)
                self._recent.add(final, size)
        return StoredFile(path, size, sha256)

    def rejected_path(self, session: str, host: str) -> str:
        """Key that a host's profile is kept under when it is none."""
        return self.derived_path("rejected", session, host)

    def set_aside(self, session: str, host: str) -> None:
        """Move a host's XSpace to ``rejected_path``, where no viewer finds it.

        Raises:
            StorageError: It cannot be moved.
        """
        path = self.xspace_path(session, host)
        with self._errors(f"move {path} of {self.root}"):
            try:
                obstore.rename(
                    self._open(write=True), path, self.rejected_path(session, host), overwrite=True
                )
            except (NotFoundError, FileNotFoundError):
                return

    def size_of(self, path: str) -> int | None:
        """Bytes of the file with this key; None when there is none."""
        with self._errors(f"read {path} of {self.root}"):
            try:
                return int(obstore.head(self._open(), path)["size"])
            except (NotFoundError, FileNotFoundError):
                return None

    def stat_xspace(self, session: str, host: str) -> StoredFile:
        """Size and digest of a host's stored XSpace, read in pieces.

        Raises:
            InputNotFoundError: There is none.
        """
        path = self.xspace_path(session, host)
        digest = hashlib.sha256()
        _, pieces = self.pieces(path)
        size = 0
        for piece in pieces:
            digest.update(piece)
            size += len(piece)
        return StoredFile(path, size, digest.hexdigest())

    # -- derived files ----------------------------------------------------------------------

    def derived_path(self, kind: DerivedKind, session: str, name: str) -> str:
        """Key of a derived file below the root."""
        session, name = _component(session, "session"), _component(name, "name")
        return f".podscope/{kind}/{session}/{name}"

    def put_derived(
        self, kind: DerivedKind, session: str, name: str, content: Buffer
    ) -> StoredFile:
        """Store a partial, a result or a rejected profile; replaces one of the same name."""
        return self._put(self.derived_path(kind, session, name), content)

    def read_derived(self, kind: DerivedKind, session: str, name: str) -> bytes:
        """A derived file.

        Raises:
            InputNotFoundError: There is none.
        """
        return self.read(self.derived_path(kind, session, name))

    # -- any file below the root ------------------------------------------------------------

    def listing(self, path: str) -> tuple[list[str], list[StoredEntry]]:
        """Names of the folders right below a key, and the files there; none where nothing is.

        Raises:
            StorageError: It cannot be listed.
        """
        with self._errors(f"list {self.root}"):
            if self.folder is not None and not (self.folder / path).is_dir():
                return [], []
            found = obstore.list_with_delimiter(self._to_look_up(), path)
        names = {prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]}
        return sorted(names), [_entry(meta) for meta in found["objects"]]

    def all_below(self, path: str) -> Iterator[StoredEntry]:
        """Every file below a key, at any depth.

        Raises:
            StorageError: It cannot be listed.
        """
        with self._errors(f"list {self.root}"):
            for chunk in obstore.list(self._to_look_up(), path):
                yield from map(_entry, chunk)

    def entry(self, path: str) -> StoredEntry | None:
        """The file with this key; None when there is none."""
        with self._errors(f"read {path} of {self.root}"):
            try:
                return _entry(obstore.head(self._to_look_up(), path))
            except (NotFoundError, FileNotFoundError):
                return None

    def read(self, path: str) -> bytes:
        """Content of the file with this key (``StoredFile.path``).

        Raises:
            InputNotFoundError: There is none.
            StorageError: It cannot be read.
        """
        return bytes(self.load(path))

    def load(self, path: str) -> memoryview:
        """As ``read``, for large files: the content is in memory only once.

        Raises:
            InputNotFoundError: There is none.
            StorageError: It cannot be read.
        """
        with self._errors(f"read {path} of {self.root}"):
            try:
                return memoryview(obstore.get(self._open(), path).bytes())
            except (NotFoundError, FileNotFoundError) as error:
                msg = f"no file {path} below {self.root}"
                raise InputNotFoundError(msg) from error

    def pieces(self, path: str) -> tuple[int, Iterator[bytes]]:
        """Size and content of a file, of which a few megabytes at a time are in memory.

        Raises:
            InputNotFoundError: There is none.
            StorageError: It cannot be read; also from the iterator.
        """
        with self._errors(f"read {path} of {self.root}"):
            try:
                found = obstore.get(self._open(), path)
            except (NotFoundError, FileNotFoundError) as error:
                msg = f"no file {path} below {self.root}"
                raise InputNotFoundError(msg) from error

        def read() -> Iterator[bytes]:
            with self._errors(f"read {path} of {self.root}"):
                for piece in found:
                    yield bytes(piece)

        return int(found.meta["size"]), read()

    def mapped(self, path: str) -> bytes | mmap:
        """Content of a file that nobody changes: in memory mapped where it is on this machine.

        Raises:
            InputNotFoundError: There is none.
            StorageError: It cannot be read.
        """
        if self.folder is None:
            return self.read(path)
        with self._errors(f"read {path} of {self.root}"):
            try:
                with (self.folder / path).open("rb") as file:
                    # Nothing of no length can be mapped.
                    empty = not os.fstat(file.fileno()).st_size
                    return b"" if empty else mmap(file.fileno(), 0, access=ACCESS_READ)
            except FileNotFoundError as error:
                msg = f"no file {path} below {self.root}"
                raise InputNotFoundError(msg) from error

    def exists(self, path: str) -> bool:
        """Whether there is a file with this key."""
        with self._errors(f"read {path} of {self.root}"):
            try:
                obstore.head(self._open(), path)
            except (NotFoundError, FileNotFoundError):
                return False
        return True

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files; one that is not there is no error."""
        with self._errors(f"remove files of {self.root}"):
            for path in paths:
                try:
                    obstore.delete(self._open(), path)
                except (NotFoundError, FileNotFoundError):
                    continue

    def local_path(self, path: str) -> Path | None:
        """The file's place on this machine, or None when the root is an object store."""
        return None if self.folder is None else self.folder / path

    def check_writable(self) -> None:
        """Write and remove a small file.

        Raises:
            StorageError: Why that cannot be done.
        """
        probe = f".podscope/tmp/{secrets.token_hex(8)}"
        with self._errors(f"write to {self.root}"):
            store = self._open_promptly()
            obstore.put(store, probe, b"podscope")
            obstore.delete(store, probe)

    # -- inner parts ------------------------------------------------------------------------

    def _put(self, path: str, content: Buffer) -> StoredFile:
        with self._errors(f"write {path} to {self.root}"):
            if self.folder is None:
                # An object store shows an object only when it is whole.
                obstore.put(self._open(write=True), path, content)
                digest = hashlib.sha256(content).hexdigest()
            else:
                digest = self._put_file(self.folder / path, content)
        return StoredFile(path, len(content), digest)

    def _put_file(self, final: Path, content: Buffer) -> str:
        """Write a file under another name, then move it; its digest."""
        temporary = self.incoming_path()
        digest = hashlib.sha256()
        try:
            with temporary.open("xb", buffering=0) as file, memoryview(content).cast("B") as view:
                # A block that was just digested is still in the cache when it is written: the
                # whole at once takes twice the CPU time, a third of it for the memory alone.
                for at in range(0, len(view), _BLOCK_BYTES):
                    block = view[at : at + _BLOCK_BYTES]
                    digest.update(block)
                    _write_all(file, block)
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary.replace(final)
            self._recent.add(final, len(content))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return digest.hexdigest()

    def _open(self, *, write: bool = False) -> ObjectStore:
        if self._store is None:
            if self.folder is not None:
                if not write and not self.folder.is_dir():
                    msg = f"no folder {self.folder}"
                    raise FileNotFoundError(msg)
                self._store = LocalStore(self.folder, mkdir=True)
            else:
                self._store = connect(self.root, self._options)
        return self._store

    def _to_look_up(self) -> ObjectStore:
        return self._open_promptly() if self._is_prompt else self._open()

    def _open_promptly(self) -> ObjectStore:
        """The store, to write to; one that does not answer is given up soon."""
        if self.folder is not None:
            return self._open(write=True)
        if self._prompt_store is None:
            self._prompt_store = connect(self.root, self._options, is_prompt=True)
        return self._prompt_store

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn a store's error into one line that says what to do."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            reason, advice = explain(error, self.root if self.folder is None else None)
            msg = f"cannot {what}: {reason}; {advice}"
            raise StorageError(msg) from error


def _entry(meta: "ObjectMeta") -> StoredEntry:
    return StoredEntry(meta["path"], meta["last_modified"].timestamp(), meta["size"])


def _write_all(file: FileIO, block: memoryview) -> None:
    """Write a block; a raw file may take less than it is given."""
    while block:
        block = block[file.write(block) :]


def _component(name: str, what: str) -> str:
    """A name that is one component of a path and nothing else."""
    if (
        not name
        or len(name.encode("utf-8", "surrogatepass")) > _MAX_COMPONENT
        or name in {".", ".."}
        or any(c in "/\\" or not c.isprintable() for c in name)
    ):
        shown = name if len(name) <= 60 else name[:60] + "…"
        msg = f"{what} {shown!r} is no name of a {what}: it is empty, too long or holds a path"
        raise RequestError(msg)
    return name
