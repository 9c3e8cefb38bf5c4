"""Where results for people are printed: a terminal, or a pipe that gets the same text."""

import io
import sys
from typing import Final, TextIO

from rich.console import Console

# A pipe has no width; wide enough that no cell of ours is cut.
_PIPE_WIDTH: Final = 1000


class _WithoutPadding(io.TextIOBase):
    """Passes text on without the blanks that fill the last column of a table."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        self._out.write("\n".join(line.rstrip(" ") for line in text.split("\n")))
        return len(text)

    def flush(self) -> None:
        self._out.flush()


def result_console() -> Console:
    """A console on stdout; to a pipe without colours, padding and line breaks of its own."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    # Its kind of file is any that can be written to.
    out: TextIO = _WithoutPadding(sys.stdout)  # type: ignore[assignment]
    return Console(file=out, highlight=False, width=_PIPE_WIDTH, soft_wrap=True)
