"""Compiles kernels side by side, in processes of their own, which leave no compiler in this one."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from podscope_analyzers.kernels import image
from podscope_analyzers.kernels.linking import Linked, LinkError

# Each process imports the compiler and compiles what its kernels share with others': more of
# them only make a machine hotter.
_MOST: Final = 4
_PAGE: Final = 4096


def build(kernels: Mapping[str, Any], most: int = _MOST) -> Linked:
    """Machine code of kernels for this processor; see ``building.build``.

    Args:
        kernels: By name, of those that ``compiled.all_kernels`` knows.
        most: Processes, of which there are no more than processors.

    Raises:
        LinkError: no process came to its end.
    """
    count = min(len(os.sched_getaffinity(0)), most, len(kernels))
    if not Path(sys.executable or "").name.startswith("python"):
        # A program that Python is embedded in would start itself.
        problem = f"{sys.executable} is not Python"
        raise LinkError(problem)
    with contextlib.ExitStack() as stack:
        try:
            processes = [stack.enter_context(_process(names)) for names in divide(kernels, count)]
            linked = [image.unpack(process.communicate()[0]) for process in processes]
        except OSError as error:
            problem = f"no process could be started: {error}"
            raise LinkError(problem) from error
    return join(linked)


def divide(kernels: Mapping[str, Any], count: int) -> list[list[str]]:
    """Names of kernels in shares of about equal work, the longest kernels first."""
    shares: list[list[str]] = [[] for _ in range(count)]
    work = [0] * count
    for name in sorted(kernels, key=lambda name: (-kernels[name].size, name)):
        least = work.index(min(work))
        shares[least].append(name)
        work[least] += kernels[name].size
    return shares


def join(parts: Sequence[Linked | None]) -> Linked:
    """All code in one piece.

    Raises:
        LinkError: a part is missing.
    """
    code = bytearray()
    entries: dict[str, int] = {}
    for part in parts:
        if part is None:
            problem = "a compiling process did not come to its end"
            raise LinkError(problem)
        code.extend(bytes(-len(code) % _PAGE))
        entries.update({name: len(code) + at for name, at in part.entries.items()})
        code.extend(part.code)
    return Linked(bytes(code), entries)


@contextlib.contextmanager
def _process(names: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that writes the code of these kernels, and is ended with the context."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from podscope_analyzers.kernels.one_share import main; main({list(names)!r})"
    )
    with subprocess.Popen(  # noqa: S603  # this Python, with names of this package
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        # What goes wrong there goes wrong here, where all is compiled then.
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
