"""Folders of profiles in buckets, read with the library that the service stores them with."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

from podscope_collector.captured_hosts import FILE_NAME, CapturedHost, unpack_hosts
from podscope_collector.errors import InputNotFoundError
from podscope_collector.profile_folders import FoundFile, empty_profile
from podscope_collector.storage import Storage, StorageError, StoredEntry

# Looking for runs takes a request or two per folder.
_MOST_FOLDERS: Final = 2000


@dataclass
class _Search:
    """What all folders below one that was named have in common.

    Attributes:
        place: The URL that was named.
        found: Folders that were found below it.
    """

    place: str
    found: int = 0

    def count(self, folders: int) -> None:
        self.found += folders
        if self.found > _MOST_FOLDERS:
            message = (
                f"{self.place} has more than {_MOST_FOLDERS:,} folders where profiles were looked "
                "for; name a folder nearer to the profiles, or the run folder itself"
            )
            raise InputNotFoundError(message)


class BucketFolder:
    """A folder of a bucket.

    Args:
        bucket: The whole of it.
        key: Of the folder, without a slash at either end.
        known: Files in it, where they were listed already.
        search: That it was found by; None begins one.
    """

    def __init__(
        self,
        bucket: Storage,
        key: str,
        known: Sequence[StoredEntry] | None = None,
        search: _Search | None = None,
    ) -> None:
        self._bucket = bucket
        self._key = key
        self._known = known
        self._search = search or _Search(self.place)

    @classmethod
    def of(cls, url: str) -> "BucketFolder":
        """The folder that ``s3://bucket/key`` or ``gs://bucket/key`` names.

        Raises:
            InputNotFoundError: It names no bucket.
        """
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if not bucket:
            message = f"'{url}' names no bucket; write {scheme}://bucket/folder"
            raise InputNotFoundError(message)
        return cls(Storage(f"{scheme}://{bucket}", is_prompt=True), key.strip("/"))

    @property
    def name(self) -> str:
        """The last part of its key; the bucket's name for the whole of it."""
        return self.place.rpartition("/")[2]

    @property
    def place(self) -> str:
        """Its URL."""
        return f"{self._bucket.root}/{self._key}".rstrip("/")

    def below(self, name: str) -> "BucketFolder":
        """The folder of this name in it."""
        return BucketFolder(self._bucket, f"{self._key}/{name}".lstrip("/"), search=self._search)

    def folders(self) -> Sequence["BucketFolder"]:
        """Folders in it, by name."""
        if self.name == "profile":
            # Of hundreds of runs a few requests tell what else would take one for each.
            return [
                BucketFolder(self._bucket, f"{self._key}/{name}", files, self._search)
                for name, files in sorted(self._runs.items())
            ]
        names = self._listing[0]
        self._search.count(len(names))
        return [self.below(name) for name in names]

    def files(self) -> Sequence[FoundFile]:
        """Files in it, by name."""
        return self._found(self._listing[1] if self._known is None else self._known)

    def file(self) -> FoundFile | None:
        """The file that has the folder's place for its own; None when there is none."""
        with _errors():
            entry = self._bucket.entry(self._key) if self._key else None
        return None if entry is None else self._found([entry])[0]

    def captured_hosts(self) -> tuple[CapturedHost, ...]:
        """What the capture that made this run folder wrote down of its hosts."""
        root, slash, session = f"/{self._key}".rpartition("/plugins/profile/")
        if not slash or "/" in session:
            return ()
        path = f"{root}/.podscope/captures/{session}/{FILE_NAME}".lstrip("/")
        try:
            return unpack_hosts(self._bucket.read(path))
        except (InputNotFoundError, StorageError):
            return ()

    @cached_property
    def _listing(self) -> tuple[list[str], list[StoredEntry]]:
        with _errors():
            return self._bucket.listing(self._key)

    @cached_property
    def _runs(self) -> dict[str, list[StoredEntry]]:
        """Files right below each folder in this one."""
        found: dict[str, list[StoredEntry]] = defaultdict(list)
        with _errors():
            for entry in self._bucket.all_below(self._key):
                run, slash, name = entry.path.removeprefix(f"{self._key}/").partition("/")
                if slash and "/" not in name:
                    found[run].append(entry)
        return found

    def _found(self, entries: Iterable[StoredEntry]) -> list[FoundFile]:
        root = self._bucket.root
        return [
            FoundFile(
                name=entry.path.rpartition("/")[2],
                place=f"{root}/{entry.path}",
                changed=entry.changed,
                size=entry.size,
                read=partial(_read, self._bucket, entry.path),
            )
            for entry in sorted(entries, key=lambda entry: entry.path)
        ]


def _read(bucket: Storage, path: str) -> memoryview:
    with _errors():
        content = bucket.load(path)
    if not content:
        place = f"{bucket.root}/{path}"
        raise empty_profile(place)
    return content


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        raise InputNotFoundError(str(error)) from error
