"""The HLO programs that a capture carries in its metadata plane."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from google.protobuf.message import DecodeError

from podscope_analyzers.hlo.instructions import Instruction
from podscope_analyzers.op_names import is_jax_training, is_tensorflow_training
from podscope_analyzers.plane_views import OpPlane, OpSpace
from podscope_protos.v1 import hlo_pb2

METADATA_PLANE: Final = "/host:metadata"
_HLO_STATS: Final = ("Hlo Proto", "HLO Proto")
_ID_AT_END: Final = re.compile(r"\((\d+)\)\Z")
_MAX_STACK_DEPTH: Final = 1000
_SIGNED: Final = 1 << 64


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
    def _by_name(self) -> Mapping[str, hlo_pb2.HloInstructionProto]:
        found: dict[str, hlo_pb2.HloInstructionProto] = {}
        for computation in self.module.computations:
            for instruction in computation.instructions:
                found.setdefault(instruction.name, instruction)
        return found

    @cached_property
    def _found(self) -> dict[str, Instruction]:
        return {}

    def instruction(self, name: str) -> Instruction | None:
        """The instruction of this name, in any computation."""
        known = self._found.get(name)
        if known is None and name in self._by_name:
            known = self._found[name] = Instruction(self, self._by_name[name])
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
    """Programs by id, each parsed when it is first asked for."""

    def __init__(self, serialised: Mapping[int, bytes]) -> None:
        self._serialised = serialised
        self._parsed: dict[int, Program | None] = {}

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
            return Program(program_id, hlo_pb2.HloProto.FromString(raw))
        except DecodeError:
            # One damaged program is as one that was not captured; the rest stays readable.
            return None

    def instruction(self, program_id: int, name: str) -> Instruction | None:
        """An instruction by its program and name."""
        program = self.get(program_id)
        return program.instruction(name) if program else None

    @property
    def is_training(self) -> bool:
        """Whether any program computes gradients."""
        return any(program.is_training for program in self)

    def titles(self) -> dict[int, str]:
        """``module(program id)`` of every program by id."""
        return {program.id: program.title for program in self}


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
