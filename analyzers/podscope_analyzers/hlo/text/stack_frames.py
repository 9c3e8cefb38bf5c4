"""The tables of source locations that stand in front of a module's text."""

from collections.abc import Iterator, Sequence
from typing import Final

from podscope_analyzers.hlo.text.escapes import c_escaped
from podscope_protos.v1 import hlo_pb2

_MAX_DEPTH: Final = 10_000


class StackFrames:
    """Frames that instructions use, numbered by first use and each once.

    XLA builds these tables anew when it loads a module, so the numbers in the text are not those
    that are stored.

    Args:
        module: With its instructions and its frames.
    """

    def __init__(self, module: hlo_pb2.HloModuleProto) -> None:
        self._index = module.stack_frame_index
        self._frame_count = len(self._index.stack_frames)
        self._numbers: dict[int, int] = {0: 0}
        self._files: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._locations: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[int, int], int] = {}
        for frame in _used(module):
            self.number(frame)

    def number(self, stored: int) -> int:
        """The number in the text of a frame's stored id; 0 for one that does not exist."""
        if stored in self._numbers:
            return self._numbers[stored]
        chain: list[int] = []
        while stored not in self._numbers and len(chain) < _MAX_DEPTH:
            if not 1 <= stored <= self._frame_count:
                break
            chain.append(stored)
            # Held as known: a frame that is its own caller must not be walked for ever.
            self._numbers[stored] = 0
            stored = self._index.stack_frames[stored - 1].parent_frame_id
        parent = self._numbers.get(stored, 0)
        for one in reversed(chain):
            parent = self._numbers[one] = self._added(one, parent)
        return parent

    def _added(self, stored: int, parent: int) -> int:
        index = self._index
        place = index.stack_frames[stored - 1].file_location_id
        location = 0
        if 1 <= place <= len(index.file_locations):
            at = index.file_locations[place - 1]
            key = (
                _numbered(self._files, _entry(index.file_names, at.file_name_id)),
                _numbered(self._functions, _entry(index.function_names, at.function_name_id)),
                *(at.line, at.end_line, at.column, at.end_column),
            )
            location = self._locations.setdefault(key, len(self._locations) + 1)
        return self._frames.setdefault((location, parent), len(self._frames) + 1)

    def lines(self) -> Iterator[str]:
        """The four tables; nothing when no instruction uses a frame."""
        if not self._frames:
            return
        yield "FileNames"
        yield from (f'{number} "{c_escaped(name)}"' for name, number in self._files.items())
        yield from ("", "FunctionNames")
        yield from (f'{number} "{c_escaped(name)}"' for name, number in self._functions.items())
        yield from ("", "FileLocations")
        for (file, function, line, end_line, column, end_column), number in self._locations.items():
            yield (
                f"{number} {{file_name_id={file} function_name_id={function} line={line} "
                f"end_line={end_line} column={column} end_column={end_column}}}"
            )
        yield from ("", "StackFrames")
        for (location, parent), number in self._frames.items():
            # A frame without a caller shows 1, every other one its caller's number and one more.
            yield f"{number} {{file_location_id={location} parent_frame_id={parent + 1}}}"
        yield ""


def _used(module: hlo_pb2.HloModuleProto) -> Iterator[int]:
    for computation in module.computations:
        for instruction in computation.instructions:
            frame = instruction.metadata.stack_frame_id
            if frame:
                yield frame


def _entry(names: Sequence[str], number: int) -> str:
    return names[number - 1] if 1 <= number <= len(names) else ""


def _numbered(known: dict[str, int], name: str) -> int:
    return known.setdefault(name, len(known) + 1)
