"""The data folder of an embedded service: made, checked and locked."""

import fcntl
import os
from pathlib import Path
from typing import IO

from podscope_collector.errors import DataFolderError


def open_data_folder(folder: Path) -> None:
    """Make the folder if need be, and see that it can be written.

    Raises:
        DataFolderError: it cannot.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".podscope-write-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        message = (
            f"cannot write to the data folder {folder}: {error.strerror or error}; "
            "choose another with --data-dir"
        )
        raise DataFolderError(message) from error


def lock_data_folder(folder: Path) -> IO[str]:
    """Hold the folder for this process; the lock goes when the file is closed.

    Raises:
        DataFolderError: another ``podscope up`` holds it.
    """
    file = (folder / "podscope.lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read().strip()
        file.close()
        message = (
            f"the data folder {folder} is used by another 'podscope up'"
            f"{f' (pid {holder})' if holder else ''}; end it, or choose another with --data-dir"
        )
        raise DataFolderError(message) from error
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
