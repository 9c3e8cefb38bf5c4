"""The compiled kernels on disk: one file of machine code for this source, compiler and processor.

Loading it takes a millisecond and no compiler. The file is only trusted when nobody but its
owner, who is this user or root, can write to it, and when it is whole.
"""

import contextlib
import ctypes
import json
import logging
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np

from podscope_analyzers.kernels.linking import Linked

try:
    # Python's own module: importing hashlib loads OpenSSL, which takes longer than all else here.
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

_log: Final = logging.getLogger("podscope_analyzers")

_MAGIC: Final = b"podscope kernels 1\n"
_MAX_BYTES: Final = 16 << 20
_PREFIX: Final = "podscope-"
_SUFFIX: Final = ".kernels"


def is_supported() -> bool:
    """Whether code is compiled and loaded this way here."""
    return sys.platform == "linux" and os.uname().machine == "x86_64" and sys.maxsize > 1 << 32


def key() -> str | None:
    """What the code depends on, as a hash; None when some of it cannot be told."""
    digest = blake2b(digest_size=16)
    try:
        for source in sorted(Path(__file__).parent.glob("*.py")):
            digest.update(source.read_bytes())
        for package in ("numba", "llvmlite"):
            digest.update(_version(package))
        digest.update(_processor())
    except OSError:
        return None
    digest.update(str(sys.implementation.cache_tag).encode())
    for name, value in sorted(os.environ.items()):
        # Numba's own settings, of the processor for example; where it caches is none of them.
        if name.startswith("NUMBA_") and name != "NUMBA_CACHE_DIR":
            digest.update(f"{name}={value}\n".encode())
    return digest.hexdigest()


def _version(package: str) -> bytes:
    """The file that says a package's version: reading it is cheaper than importing anything."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(package)
    return Path(spec.origin).with_name("_version.py").read_bytes()


def _processor() -> bytes:
    """What the first processor is and can do; all of a machine are of one kind."""
    told = ("vendor_id", "cpu family", "model", "stepping", "flags")
    with Path("/proc/cpuinfo").open("rb") as file:
        # Of large machines this file has megabytes, which take their time to make.
        rows = file.read(8192).split(b"\n\n")[0].decode(errors="replace").splitlines()
    return "\n".join(row for row in rows if row.startswith(told)).encode()


def folders() -> list[Path]:
    """Where the file may be, the first that can be written to before the others."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return [Path(chosen)]
    found = [Path(__file__).parent / "__pycache__"]
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # raises nothing
    if Path(home).is_absolute():
        found.append(Path(home) / "podscope")
    return found


def load(name: str) -> dict[str, int] | None:
    """Addresses of the kernels by name, from the first folder that has their code."""
    for folder in folders():
        with contextlib.suppress(OSError):
            content = _read(folder / f"{_PREFIX}{name}{_SUFFIX}")
            linked = unpack(content) if content is not None else None
            if linked is not None:
                return place(linked)
    return None


def _read(path: Path) -> bytes | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        is_ours = found.st_uid in {0, os.geteuid()}
        is_private = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISREG(found.st_mode) or not is_ours or not is_private:
            return None
        return file.read(_MAX_BYTES) if found.st_size < _MAX_BYTES else None


def pack(linked: Linked) -> bytes:
    """The file's bytes: a line that says what it is, a hash, the entries, the code."""
    content = json.dumps(dict(linked.entries)).encode() + b"\n" + linked.code
    return _MAGIC + blake2b(content, digest_size=32).digest() + content


def unpack(raw: bytes) -> Linked | None:
    """What ``pack`` was given; None for any other bytes."""
    begin = len(_MAGIC) + 32
    content = raw[begin:]
    digest = blake2b(content, digest_size=32).digest()
    if not raw.startswith(_MAGIC) or raw[len(_MAGIC) : begin] != digest:
        return None
    entries, _, code = content.partition(b"\n")
    return Linked(code, json.loads(entries))


def save(name: str, linked: Linked) -> bool:
    """Keeps the code for later processes; whether a folder could be written to."""
    import tempfile

    raw = pack(linked)
    for folder in folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, place_for_now = tempfile.mkstemp(dir=folder, prefix=_PREFIX)
        except OSError:
            continue
        temporary = Path(place_for_now)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(raw)
            # Readable by all, so that a service may run as another user than the one who compiled.
            temporary.chmod(0o644)
            temporary.replace(folder / f"{_PREFIX}{name}{_SUFFIX}")
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            continue
        return True
    return False


@contextlib.contextmanager
def only_one(name: str) -> Iterator[None]:
    """Lets one process compile while others wait for it; where locks do not work, none waits."""
    import fcntl

    with contextlib.ExitStack() as stack:
        for folder in folders():
            with contextlib.suppress(OSError):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                lock = stack.enter_context((folder / f"{_PREFIX}{name}.lock").open("wb"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                break
        yield


def place(linked: Linked) -> dict[str, int]:
    """Puts code into memory, where it stays; addresses by name.

    Raises:
        OSError: the system does not let this process run code that it loads.
    """
    # Never writable and executable at once.
    memory = mmap.mmap(-1, len(linked.code), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(linked.code)
    start = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    library = ctypes.CDLL(None, use_errno=True)
    protect: Callable[[ctypes.c_void_p, ctypes.c_size_t, int], int] = library.mprotect
    length = ctypes.c_size_t(len(linked.code))
    if protect(ctypes.c_void_p(start), length, mmap.PROT_READ | mmap.PROT_EXEC):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    _placed.append(memory)
    return {name: start + at for name, at in linked.entries.items()}


# Code in use must not be unmapped.
_placed: Final[list[mmap.mmap]] = []


def entries(build: Callable[[], Linked]) -> Mapping[str, int]:
    """Addresses of all kernels by name: loaded, or compiled and kept.

    Args:
        build: Compiles them.

    Raises:
        OSError: the system does not let this process run code that it loads.
    """
    name = key()
    if name is None:
        return place(build())
    found = load(name)
    if found is not None:
        return found
    with only_one(name):
        # Another process may have compiled them meanwhile.
        found = load(name)
        if found is not None:
            return found
        linked = build()
        if not save(name, linked):
            warn_uncached()
        return place(linked)


def warn_uncached() -> None:
    """Says, once in a process, that compiled kernels cannot be kept."""
    if not _warned:
        _warned.append(True)
        _log.warning(
            "no folder for compiled kernels is writable, so each start compiles them "
            "anew; set NUMBA_CACHE_DIR to a writable folder"
        )


_warned: Final[list[bool]] = []
