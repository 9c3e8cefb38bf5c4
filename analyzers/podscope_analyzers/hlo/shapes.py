"""Sizes of shapes as the cost analysis counts them."""

from collections.abc import Iterator
from math import prod
from typing import Final

from podscope_protos.v1 import hlo_pb2

ShapeProto = hlo_pb2.ShapeProto
Index = tuple[int, ...]

POINTER_BYTES: Final = 8
_TUPLE: Final = hlo_pb2.PrimitiveType.TUPLE
_TOKEN: Final = hlo_pb2.PrimitiveType.TOKEN
_OPAQUE: Final = hlo_pb2.PrimitiveType.OPAQUE_TYPE
_BITS: Final = {
    hlo_pb2.PrimitiveType.Value(name): bits
    for names, bits in (
        ("S1 U1", 1),
        ("S2 U2", 2),
        ("S4 U4 F4E2M1FN", 4),
        ("F6E3M2FN F6E2M3FN", 6),
        ("PRED S8 U8 F8E5M2 F8E4M3 F8E4M3FN F8E4M3B11FNUZ F8E3M4 F8E5M2FNUZ F8E4M3FNUZ", 8),
        ("F8E8M0FNU", 8),
        ("S16 U16 F16 BF16", 16),
        ("S32 U32 F32", 32),
        ("S64 U64 F64 C64", 64),
        ("C128", 128),
    )
    for name in names.split()
}


def bit_width(element_type: int) -> int:
    """Bits of one element; 0 for what is no array."""
    return _BITS.get(element_type, 0)


def is_tuple(shape: ShapeProto) -> bool:
    """Whether the shape holds others."""
    return shape.element_type == _TUPLE


def leaves(shape: ShapeProto, index: Index = ()) -> Iterator[tuple[Index, ShapeProto]]:
    """Every shape that is no tuple, with its place in those around it."""
    if not is_tuple(shape):
        yield index, shape
        return
    for position, inner in enumerate(shape.tuple_shapes):
        yield from leaves(inner, (*index, position))


def first_leaf(shape: ShapeProto) -> ShapeProto:
    """The first shape that is no tuple; an empty tuple itself."""
    return next((leaf for _, leaf in leaves(shape)), shape)


def elements(shape: ShapeProto) -> int:
    """Elements of an array, or of all arrays in a tuple."""
    return sum(prod(leaf.dimensions) for _, leaf in leaves(shape))


def size_bytes(shape: ShapeProto) -> int:
    """Bytes of an array; of a tuple, those of its table of pointers."""
    if is_tuple(shape):
        return POINTER_BYTES * len(shape.tuple_shapes)
    if shape.element_type == _TOKEN:
        return 0
    if shape.element_type == _OPAQUE:
        return POINTER_BYTES
    if not shape.HasField("layout"):
        return 0
    count = prod(shape.dimensions)
    if shape.layout.element_size_in_bits:
        return -(-count * shape.layout.element_size_in_bits // 8)
    return count * max(1, bit_width(shape.element_type) // 8)


def leaf_bytes(shape: ShapeProto) -> int:
    """Bytes of all arrays in a shape, without tables of pointers."""
    return sum(size_bytes(leaf) for _, leaf in leaves(shape))
