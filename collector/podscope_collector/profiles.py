"""Profiles on disk: which files a path means, be it a file, a run folder or a log folder."""

import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from podscope_analyzers.registry import nearest
from podscope_collector.errors import CollectorError, InputNotFoundError
from podscope_protos.errors import ExitCode

SUFFIX: Final = ".xplane.pb"
# Of one host's files the first of these is taken.
_SUFFIXES: Final = (SUFFIX, f"{SUFFIX}.gz", f"{SUFFIX}.zst")
# Listed with the others, so that whoever reads it says what it is.
_UNREAD: Final = ".xplane.riegeli"
_ENDINGS: Final = (*_SUFFIXES, _UNREAD)
_PROFILE_FOLDER: Final = Path("plugins") / "profile"
# How deep below a log folder runs are looked for: `train/plugins/profile/<run>` and the like.
_MAX_DEPTH: Final = 4
_TIMESTAMP: Final = re.compile(r"\d{4}_\d{2}_\d{2}_\d{2}_\d{2}_\d{2}")
_NO_PROFILES: Final = (
    "no profiles in {path}: it holds no *.xplane.pb file and no plugins/profile/<run> folder; "
    "give a profile, a run folder or the log folder that was captured into"
)


class EmptyProfileError(CollectorError):
    """A profile of no bytes: its capture failed, or is not over."""

    code: ClassVar[str] = "empty_profile"
    exit_code: ClassVar[ExitCode] = ExitCode.INVALID_INPUT


@dataclass(frozen=True)
class ProfileFile:
    """The profile of one host.

    Attributes:
        host: Name of the host, which is the file's without its endings.
    """

    host: str
    path: Path

    def read(self) -> bytes:
        """The file's bytes, in memory of our own: a file that shrinks under us does no harm.

        Raises:
            InputNotFoundError: it cannot be read.
            EmptyProfileError: it has no bytes.
        """
        try:
            mode = self.path.stat().st_mode
            if not stat.S_ISREG(mode):
                message = f"{self.path} is no regular file"
                raise InputNotFoundError(message)
            content = self.path.read_bytes()
        except OSError as error:
            message = f"cannot read {self.path}: {error.strerror or error}"
            raise InputNotFoundError(message) from error
        if not content:
            message = f"{self.path} is empty: the capture failed or is not over; capture again"
            raise EmptyProfileError(message)
        return content


@dataclass(frozen=True)
class ProfileRun:
    """The profiles of one run.

    Attributes:
        session: The run folder's name; None for a file given by itself.
        others: Names of the log folder's other runs, sorted.
        folder: The run folder, where all its hosts are meant.
    """

    session: str | None
    files: tuple[ProfileFile, ...]
    others: tuple[str, ...] = ()
    folder: Path | None = None

    def only(self, host: str) -> "ProfileRun":
        """The run with one host alone.

        Raises:
            InputNotFoundError: the run has no such host.
        """
        found = tuple(file for file in self.files if file.host == host)
        if not found:
            known = {file.host: file for file in self.files}
            message = f"no host '{host}' in this run{nearest(host, known)}"
            raise InputNotFoundError(message)
        return ProfileRun(self.session, found, self.others)


def find_run(path: Path, run: str | None = None) -> ProfileRun:
    """The run that a path means.

    Args:
        path: A profile, a run folder, or a log folder.
        run: Which run of a log folder; the newest without it.

    Raises:
        InputNotFoundError: there is nothing there, no profile in it, or no such run.
    """
    try:
        if path.is_dir():
            return _in_folder(path, run)
        if path.exists():
            return ProfileRun(None, (ProfileFile(_host_of(path), path),))
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise InputNotFoundError(message) from error
    cloud, slash, rest = str(path).partition(":/")
    if slash and cloud in {"s3", "gs"}:
        message = (
            f"profiles of a bucket are analysed by a service: bring them there with 'podscope "
            f"import {cloud}://{rest}', or copy the run folder to this machine"
        )
        raise InputNotFoundError(message)
    message = f"{path} does not exist; give a profile, a run folder or a log folder"
    raise InputNotFoundError(message)


def find_runs(path: Path) -> list[ProfileRun]:
    """Every run that a path means, by name.

    Raises:
        InputNotFoundError: there is nothing there, or no profile in it.
    """
    try:
        if not path.is_dir():
            message = f"{path} is no folder; give a log folder or a run folder"
            raise InputNotFoundError(message)
        if _has_profiles(path):
            return [_run(path, ())]
        runs = [_run(folder, ()) for folder in _runs_below(path)]
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise InputNotFoundError(message) from error
    if not runs:
        raise InputNotFoundError(_NO_PROFILES.format(path=path))
    return runs


def _in_folder(path: Path, run: str | None) -> ProfileRun:
    if _has_profiles(path):
        if run is not None and run != path.name:
            message = f"{path} is a run folder itself; leave --run out, or give the log folder"
            raise InputNotFoundError(message)
        return _run(path, ())
    runs = _runs_below(path)
    if not runs:
        raise InputNotFoundError(_NO_PROFILES.format(path=path))
    by_name = {folder.name: folder for folder in runs}
    if run is not None:
        if run not in by_name:
            message = f"no run '{run}' in {path}{nearest(run, by_name)}"
            raise InputNotFoundError(message)
        chosen = by_name[run]
    else:
        chosen = max(runs, key=_age)
    return _run(chosen, tuple(sorted(name for name in by_name if name != chosen.name)))


def _age(folder: Path) -> tuple[str, float]:
    # Copies lose their times; a run that is named by its time keeps it.
    name = folder.name if _TIMESTAMP.match(folder.name) else ""
    return name, max(file.stat().st_mtime for file in folder.iterdir())


def _runs_below(path: Path) -> list[Path]:
    candidates = [path]
    for _ in range(_MAX_DEPTH):
        found = [folder / _PROFILE_FOLDER for folder in candidates]
        # `plugins` and `plugins/profile` are understood too.
        found += [folder / "profile" for folder in candidates if folder.name == "plugins"]
        found += [folder for folder in candidates if folder.name == "profile"]
        runs = [run for folder in found if folder.is_dir() for run in _folders(folder)]
        runs = [run for run in runs if _has_profiles(run)]
        if runs:
            return runs
        candidates = [below for folder in candidates for below in _folders(folder)]
    return []


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink())


def _has_profiles(path: Path) -> bool:
    return any(entry.name.endswith(_ENDINGS) for entry in path.iterdir())


def _run(folder: Path, others: tuple[str, ...]) -> ProfileRun:
    entries = sorted(folder.iterdir())
    files: dict[str, ProfileFile] = {}
    for suffix in _ENDINGS:
        for file in entries:
            if file.name.endswith(suffix):
                files.setdefault(_host_of(file), ProfileFile(_host_of(file), file))
    return ProfileRun(folder.name, tuple(files[host] for host in sorted(files)), others, folder)


def _host_of(path: Path) -> str:
    suffix = next((suffix for suffix in _ENDINGS if path.name.endswith(suffix)), "")
    return path.name.removesuffix(suffix) or path.name
