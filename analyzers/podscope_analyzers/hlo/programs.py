"""The HLO programs that a capture carries in its metadata plane."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Self

from google.protobuf.message import DecodeError

from podscope_analyzers.hlo.instructions import Instruction
from podscope_analyzers.hlo.payloads import put_back
from podscope_analyzers.hlo.text import Printer
from podscope_analyzers.op_names import is_jax_training, is_tensorflow_training
from podscope_analyzers.plane_views import OpPlane, OpSpace
from podscope_protos.v1 import hlo_pb2

METADATA_PLANE: Final = "/host:metadata"
_HLO_STATS: Final = ("Hlo Proto", "HLO Proto")
_ID_AT_END: Final = re.compile(r"\((\d+)\)\Z")
_MAX_STACK_DEPTH: Final = 1000
_SIGNED: Final = 1 << 64
MAX_STORED_BYTES: Final = 512 << 20
"""Of all HLO protos of a host that are kept beside its partial."""


class Program:
    """One compiled program.

    Attributes:
        id: Unsigned program id.
        proto: The module with its buffer assignment.
    """

    def __init__(self, program_id: int, proto: hlo_pb2.HloProto) -> None:
        self.id = program_id
        self.proto = proto

    @property
    def module(self) -> hlo_pb2.HloModuleProto:
        """The program's module."""
        return self.proto.hlo_module

    @property
    def title(self) -> str:
        """``module(program id)``, by which module lists name it."""
        return f"{self.module.name}({self.id})"

    @cached_property
    def computations(self) -> Mapping[int, hlo_pb2.HloComputationProto]:
        """Computations by id."""
        return {computation.id: computation for computation in self.module.computations}

    @cached_property
    def by_id(self) -> Mapping[int, hlo_pb2.HloInstructionProto]:
        """Instructions of all computations by id."""
        return {
            instruction.id: instruction
            for computation in self.module.computations
            for instruction in computation.instructions
        }

    @cached_property
    def expressions(self) -> Printer:
        """Prints single instructions as profiles show them."""
        return Printer(self)

    @cached_property
    def _by_name(self) -> Mapping[str, hlo_pb2.HloInstructionProto]:
        found: dict[str, hlo_pb2.HloInstructionProto] = {}
        for computation in self.module.computations:
            for instruction in computation.instructions:
                found.setdefault(instruction.name, instruction)
        return found

    @cached_property
    def _found(self) -> dict[str, Instruction]:
        return {}

    def close(self) -> None:
        """Forgets what was found in it: instructions, and what prints them, know their program."""
        known = vars(self)
        for name in known.keys() - {"id", "proto"}:
            del known[name]

    def instruction(self, name: str) -> Instruction | None:
        """The instruction of this name, in any computation."""
        known = self._found.get(name)
        if known is None and name in self._by_name:
            known = self._found[name] = Instruction(self, self._by_name[name])
        return known

    def instructions(self) -> Iterator[Instruction]:
        """The instructions of all computations, in the program's order."""
        for computation in self.module.computations:
            for proto in computation.instructions:
                yield Instruction(self, proto)

    @cached_property
    def _callers(self) -> dict[int, tuple[str, int, str]]:
        return {}

    def caller(self, frame_id: int) -> tuple[str, int, str]:
        """File and line of a stack frame, and its stack as ``file:line:column`` lines."""
        known = self._callers.get(frame_id)
        if known is None:
            frames = list(self.stack(frame_id))
            text = "\n".join(f"{file}:{line}:{column}" for file, line, column in frames)
            file, line = frames[0][:2] if frames else ("", 0)
            known = self._callers[frame_id] = (file, line, text)
        return known

    def stack(self, frame_id: int) -> Iterator[tuple[str, int, int]]:
        """File, line and column of a stack frame and of its callers."""
        index = self.module.stack_frame_index
        for _ in range(_MAX_STACK_DEPTH):
            if not 1 <= frame_id <= len(index.stack_frames):
                return
            frame = index.stack_frames[frame_id - 1]
            frame_id = frame.parent_frame_id
            if not 1 <= frame.file_location_id <= len(index.file_locations):
                return
            place = index.file_locations[frame.file_location_id - 1]
            file_id = place.file_name_id
            file = index.file_names[file_id - 1] if 1 <= file_id <= len(index.file_names) else ""
            yield file, place.line, place.column

    def described_stack(self, frame_id: int) -> Iterator[str]:
        """``file:function:line:column`` of a stack frame and of its callers."""
        index = self.module.stack_frame_index
        for _ in range(_MAX_STACK_DEPTH):
            if not 1 <= frame_id <= len(index.stack_frames):
                return
            frame = index.stack_frames[frame_id - 1]
            frame_id = frame.parent_frame_id
            if not 1 <= frame.file_location_id <= len(index.file_locations):
                return
            place = index.file_locations[frame.file_location_id - 1]
            file, function = (
                names[number - 1] if 1 <= number <= len(names) else ""
                for names, number in (
                    (index.file_names, place.file_name_id),
                    (index.function_names, place.function_name_id),
                )
            )
            column = f":{place.column}" if place.column else ""
            yield f"{file}:{function}:{place.line}{column}"

    @cached_property
    def is_training(self) -> bool:
        """Whether an instruction's framework name speaks of gradients."""
        seen: set[tuple[str, str]] = set()
        for computation in self.module.computations:
            for instruction in computation.instructions:
                metadata = instruction.metadata
                key = (metadata.op_name, metadata.op_type)
                if key in seen:
                    continue
                seen.add(key)
                if is_tensorflow_training(*key) or is_jax_training(*key):
                    return True
        return False


class Programs:
    """Programs by id, each parsed when it is first asked for.

    Args:
        serialised: HLO protos by unsigned program id.
        titles: ``module(program id)`` of each, where they are known already.
        left_out: Programs that were too large to keep.
    """

    def __init__(
        self,
        serialised: Mapping[int, bytes],
        titles: Mapping[int, str] | None = None,
        left_out: int = 0,
    ) -> None:
        self._serialised = serialised
        self._titles = titles
        self._parsed: dict[int, Program | None] = {}
        self.left_out = left_out

    def to_state(self, max_bytes: int = MAX_STORED_BYTES) -> dict[str, Any]:
        """The programs as a state, those that fit into ``max_bytes``, small ones first."""
        titles = self.titles()
        kept: dict[int, bytes] = {}
        total = 0
        for program_id in sorted(titles, key=self.size_bytes):
            total += self.size_bytes(program_id)
            if total > max_bytes:
                break
            kept[program_id] = self._serialised[program_id]
        # In the capture's order again, which decides between programs of one size.
        return {
            "programs": {i: kept[i] for i in titles if i in kept},
            "titles": {i: titles[i] for i in titles if i in kept},
            "left_out": self.left_out + len(titles) - len(kept),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The programs that ``to_state`` described."""
        return cls(state["programs"], state["titles"], int(state["left_out"]))

    @classmethod
    def combine(cls, parts: Iterable["Programs"]) -> "Programs":
        """The programs of several hosts; of equal ids the first."""
        serialised: dict[int, bytes] = {}
        titles: dict[int, str] = {}
        left_out = 0
        for part in parts:
            for program_id, title in part.titles().items():
                serialised.setdefault(program_id, part._serialised[program_id])
                titles.setdefault(program_id, title)
            left_out += part.left_out
        return cls(serialised, titles, left_out)

    def unparsed(self) -> "Programs":
        """The same programs, nothing of them parsed: parsed ones take several times the memory."""
        titles = self.titles()
        return Programs({i: self._serialised[i] for i in titles}, titles, self.left_out)

    def close(self) -> None:
        """Forgets what was parsed."""
        for program in self._parsed.values():
            if program is not None:
                program.close()
        self._parsed.clear()

    def size_bytes(self, program_id: int) -> int:
        """Bytes of a program's HLO proto."""
        return len(self._serialised[program_id % _SIGNED])

    def largest(self) -> int | None:
        """Id of the program with the largest HLO proto, the first of equals; None without any."""
        return max(self.titles(), key=self.size_bytes, default=None)

    def __len__(self) -> int:
        return len(self._serialised)

    def __iter__(self) -> Iterator[Program]:
        """All programs that can be read, in the order of the capture."""
        for program_id in self._serialised:
            program = self.get(program_id)
            if program is not None:
                yield program

    def get(self, program_id: int) -> Program | None:
        """The program of an id (signed or unsigned); None if it is unknown or damaged."""
        program_id %= _SIGNED
        if program_id not in self._parsed:
            self._parsed[program_id] = self._parse(program_id)
        return self._parsed[program_id]

    def _parse(self, program_id: int) -> Program | None:
        raw = self._serialised.get(program_id)
        if raw is None:
            return None
        try:
            proto = hlo_pb2.HloProto.FromString(raw)
        except DecodeError:
            # One damaged program is as one that was not captured; the rest stays readable.
            return None
        put_back(proto.hlo_module)
        return Program(program_id, proto)

    def serialised(self, program_id: int) -> bytes:
        """A program's HLO proto as the capture has it."""
        return self._serialised[program_id % _SIGNED]

    def instruction(self, program_id: int, name: str) -> Instruction | None:
        """An instruction by its program and name."""
        program = self.get(program_id)
        return program.instruction(name) if program else None

    @property
    def is_training(self) -> bool:
        """Whether any program computes gradients."""
        return any(program.is_training for program in self)

    def titles(self) -> dict[int, str]:
        """``module(program id)`` of every readable program by id, in the capture's order."""
        if self._titles is None:
            self._titles = {program.id: program.title for program in self}
        return dict(self._titles)


def read_programs(space: OpSpace) -> Programs:
    """The programs of all metadata planes; of equal ids the first."""
    found: dict[int, bytes] = {}
    for plane in space.planes:
        if plane.name == METADATA_PLANE:
            for program_id, raw in _serialised(plane):
                found.setdefault(program_id % _SIGNED, raw)
    return Programs(found)


def _serialised(plane: OpPlane) -> Iterator[tuple[int, bytes]]:
    table = plane.event_metadata
    for row, metadata_id in enumerate(table.ids.tolist()):
        stats = table.stats(row)
        raw = next((stats[name] for name in _HLO_STATS if name in stats), None)
        if not isinstance(raw, bytes):
            continue
        program_id = stats.get("program_id")
        if not isinstance(program_id, int):
            named = _ID_AT_END.search(table.names[row])
            program_id = int(named[1]) if named else metadata_id
        yield program_id, raw
