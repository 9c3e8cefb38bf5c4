"""Folders in which profiles are looked for: this machine's, and what those of buckets share."""

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

from podscope_collector.captured_hosts import CapturedHost, captured_hosts
from podscope_collector.errors import CollectorError, InputNotFoundError
from podscope_protos.errors import ExitCode

BUCKETS: Final = ("s3://", "gs://")


class EmptyProfileError(CollectorError):
    """A profile of no bytes: its capture failed, or is not over."""

    code: ClassVar[str] = "empty_profile"
    exit_code: ClassVar[ExitCode] = ExitCode.INVALID_INPUT


@dataclass(frozen=True)
class FoundFile:
    """A file of a folder.

    Attributes:
        name: In its folder.
        place: Where it lies, for people.
        changed: Unix time, seconds; 0 where nobody can tell.
        size: Bytes; 0 where nobody can tell.
        read: Its bytes, in memory of our own: a file that shrinks under us does no harm. Raises
            ``InputNotFoundError`` when it cannot be read, ``EmptyProfileError`` when it has none.
    """

    name: str
    place: str
    changed: float
    size: int
    read: Callable[[], bytes | memoryview]


class ProfileFolder(Protocol):
    """A folder that may hold runs or profiles; its methods raise ``InputNotFoundError``."""

    @property
    def name(self) -> str:
        """The last part of its place."""

    @property
    def place(self) -> str:
        """Where it lies, for people."""

    def below(self, name: str) -> "ProfileFolder":
        """The folder of this name in it, be it there or not."""

    def folders(self) -> Sequence["ProfileFolder"]:
        """Folders in it, by name; links are not followed. Empty where it is not there."""

    def files(self) -> Sequence[FoundFile]:
        """Files in it, by name; empty where it is not there."""

    def captured_hosts(self) -> tuple[CapturedHost, ...]:
        """What the capture that made this run folder wrote down of its hosts."""


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine."""

    path: Path

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    @property
    def place(self) -> str:
        """Its path."""
        return str(self.path)

    def below(self, name: str) -> "LocalFolder":
        """The folder of this name in it."""
        return LocalFolder(self.path / name)

    def folders(self) -> Sequence["LocalFolder"]:
        """Folders in it, by name."""
        folders = self._entries(lambda entry: not entry.is_symlink() and entry.is_dir())
        return [LocalFolder(entry) for entry in folders]

    def files(self) -> Sequence[FoundFile]:
        """Files in it, by name."""
        return [local_file(entry) for entry in self._entries(lambda entry: not entry.is_dir())]

    def captured_hosts(self) -> tuple[CapturedHost, ...]:
        """What the capture that made this run folder wrote down of its hosts."""
        return captured_hosts(self.path)

    def _entries(self, is_wanted: Callable[[Path], bool]) -> list[Path]:
        try:
            if not self.path.is_dir():
                return []
            # A folder that may be listed and not entered tells names, and not what they are.
            return sorted(entry for entry in self.path.iterdir() if is_wanted(entry))
        except OSError as error:
            message = f"cannot read {self.path}: {error.strerror or error}"
            raise InputNotFoundError(message) from error


def local_file(path: Path) -> FoundFile:
    """A file of this machine."""
    try:
        found = path.stat()
    except OSError:
        return FoundFile(path.name, str(path), 0.0, 0, lambda: _read(path))
    return FoundFile(path.name, str(path), found.st_mtime, found.st_size, lambda: _read(path))


def _read(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = f"{path} is no regular file"
            raise InputNotFoundError(message)
        content = path.read_bytes()
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise InputNotFoundError(message) from error
    if not content:
        raise empty_profile(str(path))
    return content


def empty_profile(place: str) -> EmptyProfileError:
    """The error of a profile without bytes."""
    message = f"{place} is empty: the capture failed or is not over; capture again"
    return EmptyProfileError(message)
