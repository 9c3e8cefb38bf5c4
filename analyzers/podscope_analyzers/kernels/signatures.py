"""Signatures of kernels: what is passed, and how it reaches compiled code as plain numbers."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

# As numba writes types: a scalar, an array of as many dimensions as there are colons (contiguous
# by rows), or an array that is only read.
_SCALAR: Final = r"(?P<scalar>[biu][1248])"
_WRITABLE: Final = r"(?P<items>[biu][1248])\[(?P<colons>:(?:, ?:)*):1\]"
_READ: Final = r"Array\((?P<read>[biu][1248]), (?P<ndim>[0-9]), 'C', True\)"
_ARGUMENT: Final = re.compile(f"{_SCALAR}$|{_WRITABLE}$|{_READ}$")
_SIGNATURE: Final = re.compile(r"(?P<result>void|[biu][1248])\((?P<arguments>.*)\)")
_BETWEEN: Final = re.compile(r", ?(?![^\[(]*[\])])")


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel.

    Attributes:
        kind: Type of the number, or of an array's items, as numba and numpy write it.
        ndim: Of an array, contiguous by rows; 0 for a number.
        is_written: Whether an array must be writable.
    """

    kind: str
    ndim: int = 0
    is_written: bool = False

    @cached_property
    def dtype(self) -> "np.dtype[Any]":
        """Numpy's type of the items."""
        return np.dtype("?" if self.kind == "b1" else self.kind)

    @cached_property
    def bounds(self) -> range:
        """The numbers that fit."""
        bits = 1 if self.kind == "b1" else 8 * self.dtype.itemsize
        return range(-(1 << bits - 1), 1 << bits - 1) if self.kind[0] == "i" else range(1 << bits)


@dataclass(frozen=True)
class Signature:
    """What a kernel takes and gives; the result is a number, or None for ``void``."""

    result: Argument | None
    arguments: tuple[Argument, ...]

    @property
    def slots(self) -> int:
        """Numbers of 64 bits that a call passes: pointers, lengths, values, and the result."""
        return sum(1 + argument.ndim for argument in self.arguments) + 1


def parse_signature(text: str) -> Signature:
    """The signature that numba's notation means.

    Raises:
        ValueError: it is not of the forms that kernels use.
    """
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        problem = f"not a kernel's signature: {text}"
        raise ValueError(problem)
    result = None if found["result"] == "void" else Argument(found["result"])
    return Signature(result, tuple(map(_argument, _BETWEEN.split(found["arguments"]))))


def _argument(text: str) -> Argument:
    found = _ARGUMENT.match(text.strip())
    if found is None:
        problem = f"not the type of a kernel's argument: {text}"
        raise ValueError(problem)
    if found["scalar"]:
        return Argument(found["scalar"])
    if found["items"]:
        return Argument(found["items"], found["colons"].count(":"), is_written=True)
    return Argument(found["read"], int(found["ndim"]))
