"""Reads what runtimes say when a request for memory cannot be served.

Sizes are written with binary multiples by all of them, whatever the unit is called: XLA's
``17.30G``, TensorFlow's ``2.50GiB``, PyTorch's ``20.00 MiB``, NumPy's ``256. PiB``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

_MAX_MESSAGE: Final = 4000
# Whole and short: in a long run of digits every one of them would be tried as the first.
_NUMBER: Final = r"(?<![\d,])[\d,]{1,32}(?![\d,])(?:\.\d*)?"
_SIZE: Final = rf"({_NUMBER}) ?([KMGTPE]?i?(?:B\b|bytes?\b|(?![A-Za-z])))"
_POWERS: Final[Mapping[str, int]] = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_TELLS: Final = re.compile(
    r"out of memory[ .:]|OOM when allocating|RESOURCE_EXHAUSTED.*(?:memory|alloc)|"
    r"attempting to (?:reserve|allocate) \d|can't allocate memory|Unable to allocate \d",
    re.IGNORECASE,
)
_REQUESTED: Final = (
    re.compile(rf"(?:tried|trying|unable) to allocate {_SIZE}", re.IGNORECASE),
    re.compile(rf"attempting to (?:reserve|allocate) {_SIZE}", re.IGNORECASE),
    re.compile(rf"out of memory allocating {_SIZE}", re.IGNORECASE),
)
_FREE: Final = (
    re.compile(rf"of which {_SIZE} is free"),
    re.compile(rf"{_SIZE} free\b"),
)
_CAPACITY: Final = (
    re.compile(rf"total capacity of {_SIZE}"),
    re.compile(rf"{_SIZE} total capacity"),
    re.compile(rf"Used [\d.]+[KMGTP]? of {_SIZE} \w+"),
)
_USED: Final = (
    re.compile(rf"{_SIZE} already allocated"),
    re.compile(rf"Of the allocated memory {_SIZE} is allocated by"),
    re.compile(rf"Used {_SIZE} of [\d.]"),
)
_ALLOCATOR: Final = (
    re.compile(r"by allocator (\S+)"),
    re.compile(r"Allocator \((\S+?)\) ran out of memory"),
)
_ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "int64": 8, "uint64": 8, "int32": 4,
    "uint32": 4, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex64": 8,
    "complex128": 16,
}  # fmt: skip
_SHAPE: Final = re.compile(r"tensor with shape ?(\[[\d,]*\]) and type (\w+)")


@dataclass(frozen=True)
class MemoryMessage:
    """What a message says; None for what it does not.

    Attributes:
        used_bytes: In use when the request came; for a compiler, what the program needs.
        shape: Of the tensor that was asked for.
    """

    text: str
    requested_bytes: int | None
    free_bytes: int | None
    used_bytes: int | None
    capacity_bytes: int | None
    allocator: str
    shape: str
    data_type: str


def tells_of_no_memory(text: str) -> bool:
    """Whether a text is a runtime's message that memory ran out, with a size or a tensor in it."""
    if _TELLS.search(text[:_MAX_MESSAGE]) is None:
        return False
    found = read_message(text)
    return bool(found.requested_bytes or found.shape or (found.used_bytes and found.capacity_bytes))


def read_message(text: str) -> MemoryMessage:
    """The sizes and names in a message."""
    shown = text[:_MAX_MESSAGE]
    shape = _SHAPE.search(shown)
    tensor = _tensor_bytes(shape[1], shape[2]) if shape else None
    allocators = [found[1] for found in (one.search(shown) for one in _ALLOCATOR) if found]
    return MemoryMessage(
        text=shown,
        requested_bytes=_first(_REQUESTED, shown) or tensor,
        free_bytes=_first(_FREE, shown),
        used_bytes=_first(_USED, shown),
        capacity_bytes=_first(_CAPACITY, shown),
        allocator=allocators[0].rstrip(".,;") if allocators else "",
        shape=shape[1] if shape else "",
        data_type=shape[2] if shape else "",
    )


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int | None:
    for pattern in patterns:
        found = pattern.search(text)
        if found:
            return _bytes(found[1], found[2])
    return None


def _tensor_bytes(shape: str, data_type: str) -> int | None:
    sizes = [int(size) for size in shape.strip("[]").split(",") if size]
    element = _ELEMENT_BYTES.get(data_type)
    return None if element is None else int(prod(sizes)) * element


def _bytes(number: str, unit: str) -> int | None:
    power = _POWERS.get(unit[:1].upper(), 0)
    try:
        return round(float(number.replace(",", "")) * 1024.0**power)
    except (ValueError, OverflowError):
        return None
