"""Which profiles a path means, be it a file, a run folder or a log folder, here or in a bucket."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from podscope_analyzers.registry import nearest
from podscope_collector.errors import InputNotFoundError
from podscope_collector.profile_folders import (
    BUCKETS,
    FoundFile,
    LocalFolder,
    ProfileFolder,
    local_file,
)

SUFFIX: Final = ".xplane.pb"
# Of one host's files the first of these is taken.
_SUFFIXES: Final = (SUFFIX, f"{SUFFIX}.gz", f"{SUFFIX}.zst")
# Listed with the others, so that whoever reads it says what it is.
_UNREAD: Final = ".xplane.riegeli"
_ENDINGS: Final = (*_SUFFIXES, _UNREAD)
# How deep below a log folder runs are looked for: `train/plugins/profile/<run>` and the like.
_MAX_DEPTH: Final = 4
_TIMESTAMP: Final = re.compile(r"\d{4}_\d{2}_\d{2}_\d{2}_\d{2}_\d{2}")
_NO_PROFILES: Final = (
    "no profiles in {path}: it holds no *.xplane.pb file and no plugins/profile/<run> folder; "
    "give a profile, a run folder or the log folder that was captured into"
)


@dataclass(frozen=True)
class ProfileFile:
    """The profile of one host.

    Attributes:
        host: Name of the host, which is the file's without its endings.
        place: Where it lies, for people.
        read: Its bytes; see ``FoundFile``.
        size: Bytes; 0 where nobody can tell.
    """

    host: str
    place: str
    read: Callable[[], bytes | memoryview]
    size: int = 0


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
    folder: ProfileFolder | None = None

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


def find_run(path: str, run: str | None = None) -> ProfileRun:
    """The run that a path means.

    Args:
        path: A profile, a run folder, or a log folder; ``s3://…`` and ``gs://…`` likewise.
        run: Which run of a log folder; the newest without it.

    Raises:
        InputNotFoundError: there is nothing there, no profile in it, or no such run.
    """
    place = _at(path)
    if isinstance(place, FoundFile):
        return ProfileRun(None, (_profile(place),))
    return _in_folder(place, run)


def find_runs(path: str) -> list[ProfileRun]:
    """Every run that a path means, by name.

    Raises:
        InputNotFoundError: there is nothing there, or no profile in it.
    """
    place = _at(path)
    if isinstance(place, FoundFile):
        message = f"{path} is no folder; give a log folder or a run folder"
        raise InputNotFoundError(message)
    if _has_profiles(place):
        return [_run(place, ())]
    runs = [_run(folder, ()) for folder in _runs_below(place)]
    if not runs:
        raise InputNotFoundError(_NO_PROFILES.format(path=path))
    return runs


def _at(path: str) -> FoundFile | ProfileFolder:
    """What is at a path.

    Raises:
        InputNotFoundError: nothing is, or it cannot be looked at.
    """
    if path.startswith(BUCKETS):
        # Brings the library for object stores: only who names a bucket pays for it.
        from podscope_collector.bucket_folders import BucketFolder

        folder = BucketFolder.of(path)
        found = folder.file() if path.endswith(_ENDINGS) else None
        return folder if found is None else found
    local = Path(path)
    try:
        if local.is_dir():
            return LocalFolder(local)
        if local.exists():
            return local_file(local)
    except OSError as error:
        message = f"cannot read {path}: {error.strerror or error}"
        raise InputNotFoundError(message) from error
    message = f"{path} does not exist; give a profile, a run folder or a log folder"
    raise InputNotFoundError(message)


def _in_folder(folder: ProfileFolder, run: str | None) -> ProfileRun:
    if _has_profiles(folder):
        if run is not None and run != folder.name:
            message = (
                f"{folder.place} is a run folder itself; leave --run out, or give the log folder"
            )
            raise InputNotFoundError(message)
        return _run(folder, ())
    runs = _runs_below(folder)
    if not runs:
        raise InputNotFoundError(_NO_PROFILES.format(path=folder.place))
    by_name = {found.name: found for found in runs}
    if run is not None:
        if run not in by_name:
            message = f"no run '{run}' in {folder.place}{nearest(run, by_name)}"
            raise InputNotFoundError(message)
        chosen = by_name[run]
    else:
        chosen = max(runs, key=_age)
    return _run(chosen, tuple(sorted(name for name in by_name if name != chosen.name)))


def _age(folder: ProfileFolder) -> tuple[str, float]:
    # Copies lose their times; a run that is named by its time keeps it.
    name = folder.name if _TIMESTAMP.match(folder.name) else ""
    return name, max(file.changed for file in _profiles_in(folder))


def _runs_below(path: ProfileFolder) -> list[ProfileFolder]:
    candidates: list[ProfileFolder] = [path]
    for _ in range(_MAX_DEPTH):
        found = [folder.below("plugins").below("profile") for folder in candidates]
        # `plugins` and `plugins/profile` are understood too.
        found += [folder.below("profile") for folder in candidates if folder.name == "plugins"]
        found += [folder for folder in candidates if folder.name == "profile"]
        runs = [run for folder in found for run in folder.folders() if _has_profiles(run)]
        if runs:
            return runs
        candidates = [below for folder in candidates for below in folder.folders()]
    return []


def _has_profiles(folder: ProfileFolder) -> bool:
    return bool(_profiles_in(folder))


def _profiles_in(folder: ProfileFolder) -> list[FoundFile]:
    # A name with a dot in front is a copy under way, or what macOS lays beside its copies; but
    # a server that was told no name writes nothing else.
    return [
        file
        for file in folder.files()
        if file.name.endswith(_ENDINGS) and (file.name[0] != "." or file.name in _ENDINGS)
    ]


def _run(folder: ProfileFolder, others: tuple[str, ...]) -> ProfileRun:
    entries = _profiles_in(folder)
    files: dict[str, ProfileFile] = {}
    for suffix in _ENDINGS:
        for file in entries:
            if file.name.endswith(suffix):
                files.setdefault(_host_of(file.name), _profile(file))
    return ProfileRun(folder.name, tuple(files[host] for host in sorted(files)), others, folder)


def _profile(file: FoundFile) -> ProfileFile:
    return ProfileFile(_host_of(file.name), file.place, file.read, file.size)


def _host_of(name: str) -> str:
    suffix = next((suffix for suffix in _ENDINGS if name.endswith(suffix)), "")
    return name.removesuffix(suffix) or name
