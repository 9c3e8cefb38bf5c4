"""Shapes as XLA prints them, with their layouts."""

from collections.abc import Callable, Sequence
from typing import Final

from podscope_protos.v1 import hlo_pb2

_TYPE: Final = hlo_pb2.PrimitiveType
_NO_BOUND: Final = -(1 << 63)
_NAMES: Final = {number: name.lower() for name, number in _TYPE.items()} | {
    _TYPE.OPAQUE_TYPE: "opaque"
}
_MARK_EVERY: Final = 5
# Hostile protos nest as deep as protobuf parses; nobody reads on so far.
_MAX_DEPTH: Final = 64


def type_name(element_type: int) -> str:
    """The element type as XLA writes it: ``f32``, ``bf16``, ``pred``."""
    return _NAMES.get(element_type, "invalid")


def shape_text(shape: hlo_pb2.ShapeProto, depth: int = 0) -> str:
    """``f32[2,3]{1,0:T(8,128)}``; tuples in parentheses, every fifth element marked."""
    if depth > _MAX_DEPTH:
        return "..."
    if shape.element_type == _TYPE.TUPLE:
        return f"({_marked(shape.tuple_shapes, lambda inner: shape_text(inner, depth + 1))})"
    if shape.element_type == _TYPE.BUFFER:
        inner = shape_text(shape.tuple_shapes[0], depth + 1) if shape.tuple_shapes else ""
        return f"b({inner})"
    if shape.element_type in (_TYPE.TOKEN, _TYPE.OPAQUE_TYPE):
        return f"{type_name(shape.element_type)}[]"
    dims = ",".join(_dimension(shape, index) for index in range(len(shape.dimensions)))
    return f"{type_name(shape.element_type)}[{dims}]{_layout(shape, depth)}"


def _marked(shapes: Sequence[hlo_pb2.ShapeProto], text: Callable[[hlo_pb2.ShapeProto], str]) -> str:
    marks = [
        f"/*index={index}*/" if index and index % _MARK_EVERY == 0 else ""
        for index in range(len(shapes))
    ]
    return ", ".join(mark + text(shape) for mark, shape in zip(marks, shapes, strict=True))


def _dimension(shape: hlo_pb2.ShapeProto, index: int) -> str:
    size = shape.dimensions[index]
    is_dynamic = index < len(shape.is_dynamic_dimension) and shape.is_dynamic_dimension[index]
    if size == _NO_BOUND:
        return "?"
    return f"<={size}" if is_dynamic else str(size)


def _layout(shape: hlo_pb2.ShapeProto, depth: int) -> str:
    if not shape.HasField("layout"):
        return ""
    layout = shape.layout
    parts = []
    if layout.tiles:
        parts.append("T" + "".join(_tile(tile) for tile in layout.tiles))
    if layout.tail_padding_alignment_in_elements not in (0, 1):
        parts.append(f"L({layout.tail_padding_alignment_in_elements})")
    if layout.index_primitive_type:
        parts.append(f"#({type_name(layout.index_primitive_type)})")
    if layout.pointer_primitive_type:
        parts.append(f"*({type_name(layout.pointer_primitive_type)})")
    if layout.element_size_in_bits:
        parts.append(f"E({layout.element_size_in_bits})")
    if layout.memory_space:
        parts.append(f"S({layout.memory_space})")
    parts += [
        f"SC({split.dimension}:{','.join(map(str, split.split_indices))})"
        for split in layout.split_configs
    ]
    if layout.HasField("physical_shape"):
        parts.append(f"P({shape_text(layout.physical_shape, depth + 1)})")
    if layout.dynamic_shape_metadata_prefix_bytes > 0:
        parts.append(f"M({layout.dynamic_shape_metadata_prefix_bytes})")
    order = ",".join(map(str, layout.minor_to_major))
    more = ":" + "".join(parts) if parts else ""
    # A scalar's layout says nothing unless something follows the colon.
    return f"{{{order}{more}}}" if shape.dimensions or more else ""


def _tile(tile: hlo_pb2.TileProto) -> str:
    return f"({','.join('*' if d == _NO_BOUND else str(d) for d in tile.dimensions)})"
