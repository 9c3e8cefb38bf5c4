"""Reads the file that PyTorch saves a trace to, one event at a time.

Parsed as a whole, such a file takes ten times its size of memory, in the process that trains.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TextIO

from podscope.profiler.frameworks.kineto import kept

_EVENTS: Final = "traceEvents"
_PIECE: Final = 1 << 20
_SPACE: Final = " \t\n\r"


def read_trace(file: TextIO) -> dict[str, Any]:
    """The trace in a file; of its events what ``kineto.xspace_of`` reads.

    Raises:
        ValueError: The file is no JSON object.
    """
    reader = _Reader(file)
    found: dict[str, Any] = {}
    reader.expect("{")
    while reader.peek() != "}":
        name = reader.value()
        reader.expect(":")
        if name == _EVENTS:
            events = (kept(event) for event in reader.items())
            found[_EVENTS] = [event for event in events if event is not None]
        else:
            found[name] = reader.value()
        if reader.peek() == ",":
            reader.expect(",")
    return found


class _Reader:
    """A window into a file of JSON, moved on value by value."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        # Names and shapes of a training job hold what JSON does not allow, now and then.
        self._decoder = json.JSONDecoder(strict=False)
        self._text = ""
        self._at = 0
        self._is_whole = False

    def peek(self) -> str:
        """The next character that is no space.

        Raises:
            ValueError: There is none.
        """
        while True:
            while self._at < len(self._text):
                character = self._text[self._at]
                if character not in _SPACE:
                    return character
                self._at += 1
            if not self._read(_PIECE):
                msg = "the trace ends too early"
                raise ValueError(msg)

    def expect(self, character: str) -> None:
        """Pass a character.

        Raises:
            ValueError: Another one stands there.
        """
        if self.peek() != character:
            msg = f"{character} is missing in the trace"
            raise ValueError(msg)
        self._at += 1

    def items(self) -> Iterator[Any]:
        """The items of the array that stands here.

        Raises:
            ValueError: It is no array.
        """
        self.expect("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() == ",":
                self.expect(",")
        self.expect("]")

    def value(self) -> Any:
        """The value that stands here.

        Raises:
            ValueError: It is none.
        """
        self.peek()
        piece = _PIECE
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                if not self._read(piece):
                    raise
                # What is no JSON at all is not tried again and again for every piece.
                piece *= 2
                continue
            # A number may go on in the next piece.
            if end < len(self._text) or not self._read(piece):
                self._at = end
                return value

    def _read(self, size: int) -> bool:
        """Take in more of the file; False at its end."""
        more = "" if self._is_whole else self._file.read(size)
        self._is_whole = not more
        if more:
            self._text = self._text[self._at :] + more
            self._at = 0
        return bool(more)
