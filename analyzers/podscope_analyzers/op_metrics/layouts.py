"""How an instruction's result lies in memory, from its text: tiles, and what they leave empty."""

import re
from dataclasses import dataclass
from math import prod
from typing import Final

# The first array of a result: element type, dimensions, order from the minor one, first tile.
_SHAPE: Final = re.compile(
    r"\b(?P<type>[a-z]+\d*[a-z0-9]*)\[(?P<sizes>[\d,<=]*)\]"
    r"(?:\{(?P<order>[\d,]*)(?::(?P<tiles>[^}]*))?\})?"
)
_TILE: Final = re.compile(r"T\(([\d,]+)\)")
_BITS: Final = re.compile(r"(?:bf|f|s|u|c)(\d+)|f8e\w+|pred")
_MAX_SEARCHED: Final = 4096


@dataclass(frozen=True)
class Dimension:
    """One dimension of an array, and the multiple of elements that it takes."""

    size: int
    alignment: int

    @property
    def padded(self) -> int:
        """Elements that it takes with padding."""
        return -(-self.size // self.alignment) * self.alignment

    def hint(self) -> str:
        """Whether it fits, in words."""
        tiles = f"{self.padded // self.alignment} x {self.alignment}"
        if self.padded == self.size:
            return f"{self.size}: exact fit ({tiles})"
        return f"{self.size}: pad to {self.padded} ({tiles})"


@dataclass(frozen=True)
class Layout:
    """The array that an instruction gives; of several the first.

    Attributes:
        element_bits: Width of an element; 0 when unknown.
        dimensions: In the order of the shape.
    """

    element_bits: int
    dimensions: tuple[Dimension, ...]

    @property
    def padding_ratio(self) -> float:
        """Elements of padding per element."""
        elements = prod(one.size for one in self.dimensions)
        padded = prod(one.padded for one in self.dimensions)
        return padded / elements - 1 if elements else 0.0

    def hint(self) -> str:
        """The dimensions that come in multiples, and whether they fit."""
        return ", ".join(one.hint() for one in self.dimensions if one.alignment > 1)


def result_layout(expression: str) -> Layout | None:
    """Layout of an instruction's result; None when its text tells none."""
    _, equals, right = expression.partition(" = ")
    found = _SHAPE.search(right, 0, _MAX_SEARCHED) if equals else None
    if found is None:
        return None
    # A bound of a dynamic dimension is its size.
    sizes = [int(text.lstrip("<=") or 0) for text in found["sizes"].split(",") if text]
    order = [int(text) for text in (found["order"] or "").split(",") if text]
    alignments = [1] * len(sizes)
    tile = _TILE.search(found["tiles"] or "")
    if tile and sorted(order) == list(range(len(sizes))):
        # A tile's last number is of the most minor dimension.
        for dimension, alignment in zip(order, reversed(tile[1].split(",")), strict=False):
            alignments[dimension] = max(int(alignment or 1), 1)
    return Layout(
        _element_bits(found["type"]),
        tuple(Dimension(*pair) for pair in zip(sizes, alignments, strict=True)),
    )


def _element_bits(name: str) -> int:
    found = _BITS.fullmatch(name)
    if found is None:
        return 0
    return int(found[1]) if found[1] else 8
