"""Places the code of an object file so that it runs wherever it is loaded.

Compilers leave object files to a linker, which few machines that run podscope have. Kernels
need little of one: they call nothing outside, so that it is enough to lay the sections with
code and constants out behind each other and to fill in the distances between them.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")

_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"
_OBJECT_FILE: Final = 1
_X86_64: Final = 62
_PROGBITS, _SYMTAB, _RELA, _NOBITS = 1, 2, 4, 8
_WRITE, _ALLOCATED = 1, 2

# Distances from the place to the symbol; a call through a table is a call, for what is inside.
_PC32, _PLT32 = 2, 4
_PC64: Final = 24


class LinkError(Exception):
    """The object needs more of a linker than this one does."""


@dataclass(frozen=True)
class Linked:
    """Code that runs at any address.

    Attributes:
        code: The bytes, to be loaded at a multiple of 4,096.
        entries: Where each function starts in them.
    """

    code: bytes
    entries: Mapping[str, int]


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    content: bytes
    size: int
    link: int
    target: int
    alignment: int


def link(object_file: bytes, functions: Mapping[str, str]) -> Linked:
    """Lays out an ELF object file of x86-64.

    Args:
        object_file: Position-independent code that refers to nothing outside of itself.
        functions: By its name in the result, each wanted function's symbol.

    Raises:
        LinkError: it is of another machine, has variables, or refers to something outside.
    """
    sections = _sections(object_file)
    places: dict[int, int] = {}
    image = bytearray()
    for number, section in enumerate(sections):
        # Tables for unwinding are of use to C++ alone.
        if not section.flags & _ALLOCATED or section.name == ".eh_frame" or not section.size:
            continue
        if section.flags & _WRITE or section.kind == _NOBITS:
            problem = f"the section {section.name} is written to"
            raise LinkError(problem)
        image.extend(bytes(-len(image) % max(section.alignment, 1)))
        places[number] = len(image)
        image.extend(section.content)
    symbols = _symbols(sections, places)
    for section in sections:
        if section.kind == _RELA and section.target in places:
            start = places[section.target]
            for offset, what, addend in _RELOCATION.iter_unpack(section.content):
                name, at = symbols[what >> 32]
                if at is None:
                    problem = f"the code refers to {name}, which is not in it"
                    raise LinkError(problem)
                _fill(image, start + offset, what & 0xFFFF_FFFF, at + addend)
    known = {name: at for name, at in symbols if at is not None}
    try:
        entries = {name: known[symbol] for name, symbol in functions.items()}
    except KeyError as error:
        problem = f"the code has no {error}"
        raise LinkError(problem) from error
    return Linked(bytes(image), entries)


def _fill(image: bytearray, place: int, kind: int, target: int) -> None:
    if kind in {_PC32, _PLT32}:
        struct.pack_into("<i", image, place, target - place)
    elif kind == _PC64:
        struct.pack_into("<q", image, place, target - place)
    else:
        problem = f"the code has a relocation of type {kind}"
        raise LinkError(problem)


def _sections(raw: bytes) -> list[_Section]:
    header = _HEADER.unpack_from(raw)
    if not header[0].startswith(_ELF_64_LITTLE) or header[1:3] != (_OBJECT_FILE, _X86_64):
        problem = "not an object file of x86-64"
        raise LinkError(problem)
    table, count, names_at = header[6], header[12], header[13]
    rows = [_SECTION.unpack_from(raw, table + i * _SECTION.size) for i in range(count)]
    names = raw[rows[names_at][4] :]
    return [
        _Section(
            name=_text(names, name),
            kind=kind,
            flags=flags,
            content=b"" if kind == _NOBITS else raw[offset : offset + size],
            size=size,
            link=linked,
            target=target,
            alignment=alignment,
        )
        for name, kind, flags, _, offset, size, linked, target, alignment, _ in rows
    ]


def _symbols(sections: list[_Section], places: Mapping[int, int]) -> list[tuple[str, int | None]]:
    """Name and place of each symbol; None for what is elsewhere."""
    table = next(section for section in sections if section.kind == _SYMTAB)
    names = sections[table.link].content
    return [
        (_text(names, name), places[section] + value if section in places else None)
        for name, _, _, section, value, _ in _SYMBOL.iter_unpack(table.content)
    ]


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(0, at)].decode()
