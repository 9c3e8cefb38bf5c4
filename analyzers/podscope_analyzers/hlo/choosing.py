"""Which program and which instruction a request names, and what is near a name that is unknown."""

from collections.abc import Iterable, Mapping
from typing import Final

from podscope_analyzers.errors import ParameterError
from podscope_analyzers.hlo.programs import Program, Programs
from podscope_analyzers.result import Column, Table
from podscope_protos.v1 import hlo_pb2

_MAX_DIGITS: Final = 20
_MAX_COMPARED: Final = 5_000
_SHOWN: Final = 80
_PROGRAM_COLUMNS: Final = (
    Column("program", "Program", "string"),
    Column("program_id", "Program id", "string"),
    Column("hlo_bytes", "HLO proto", "integer", "bytes"),
)


def chosen_program(
    programs: Programs, parameters: Mapping[str, str], node_name: str = ""
) -> Program | None:
    """The program that ``module_name`` or ``program_id`` names.

    Without either, the one that has ``node_name``; without that, the largest. None without any
    program.

    Raises:
        ParameterError: there is no such program, or several have an instruction of the name.
    """
    titles = programs.titles()
    if not titles:
        return None
    wanted, by_id = parameters.get("module_name", ""), parameters.get("program_id", "").strip()
    if wanted:
        found = [i for i, title in titles.items() if wanted in (title, title.rpartition("(")[0])]
        if not found:
            msg = f"no program '{wanted[:_SHOWN]}'{near(wanted, titles.values())}"
            raise ParameterError(msg)
        return programs.get(max(found, key=programs.size_bytes))
    if by_id:
        if not (by_id.isascii() and by_id.isdecimal() and len(by_id) <= _MAX_DIGITS):
            msg = f"program_id must be a whole number, not '{by_id[:40]}'"
            raise ParameterError(msg)
        program = programs.get(int(by_id))
        if program is None:
            msg = f"no program with id {by_id}; there are {_some(titles.values())}"
            raise ParameterError(msg)
        return program
    if node_name:
        having = [one for one in programs if find_node(one, node_name) is not None]
        if len(having) == 1:
            return having[0]
        if having:
            msg = (
                f"'{node_name[:_SHOWN]}' is in several programs: name one with program_id: "
                f"{_some(one.title for one in having)}"
            )
            raise ParameterError(msg)
    largest = programs.largest()
    return None if largest is None else programs.get(largest)


def program_table(programs: Programs) -> Table:
    """The programs that there are to choose from, the largest first."""
    titles = programs.titles()
    order = sorted(titles, key=programs.size_bytes, reverse=True)
    # Ids are unsigned 64-bit numbers, which JSON readers round.
    return Table(_PROGRAM_COLUMNS, [[titles[i], str(i), programs.size_bytes(i)] for i in order])


Node = hlo_pb2.HloInstructionProto | hlo_pb2.HloComputationProto


def find_node(program: Program, name: str, *, computations_first: bool = False) -> Node | None:
    """The instruction or computation of a name, as people write it: any case, with or without %.

    Args:
        program: Where it is.
        name: The name.
        computations_first: Whether a computation of the name goes before an instruction of it.
    """
    wanted = name.strip().removeprefix("%")
    if computations_first:
        for computation in program.module.computations:
            if computation.name == wanted:
                return computation
    exact = program.instruction(wanted)
    if exact is not None:
        return exact.proto
    folded = wanted.casefold()
    for computation in program.module.computations:
        if computation.name.casefold() == folded:
            return computation
    for computation in program.module.computations:
        for instruction in computation.instructions:
            if instruction.name.casefold() == folded:
                return instruction
    return None


def required_node(program: Program, name: str, *, computations_first: bool = False) -> Node:
    """Like ``find_node``.

    Raises:
        ParameterError: there is none; the message names what is nearest.
    """
    node = find_node(program, name, computations_first=computations_first)
    if node is None:
        stem = name.strip().removeprefix("%").partition(".")[0].casefold()
        names = [one.name for one in program.by_id.values()]
        names += [one.name for one in program.module.computations]
        likely = [one for one in names if stem and stem in one.casefold()] or names
        msg = f"no instruction '{name[:_SHOWN]}' in {program.title}{near(name, likely)}"
        raise ParameterError(msg)
    return node


def near(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: what is nearest, or some of what there is."""
    import difflib

    listed = list(known)[:_MAX_COMPARED]
    close = difflib.get_close_matches(name[:_SHOWN], listed, n=3, cutoff=0.4)
    if close:
        return f"; the nearest: {', '.join(one[:_SHOWN] for one in close)}"
    return f"; there are {_some(listed)}" if listed else ""


def _some(texts: Iterable[str], count: int = 3) -> str:
    listed = [text[:_SHOWN] for text in texts]
    more = len(listed) - count
    return ", ".join(listed[:count]) + (f" and {more} more" if more > 0 else "")
