"""Shapes and layouts as text."""

from collections.abc import Iterable, Iterator
from typing import Final

from podscope_protos.v1 import hlo_pb2

_TYPE: Final = hlo_pb2.PrimitiveType
_NAMES: Final = {value: name.lower() for name, value in _TYPE.items()} | {
    _TYPE.OPAQUE_TYPE: "opaque"
}
TYPE_NAMES: Final = frozenset(_NAMES.values())
"""All of them, such as ``bf16``."""
_INT64_MIN: Final = -(1 << 63)
_MARK_EVERY: Final = 5


def type_name(element_type: int) -> str:
    """Name of an element type, such as ``bf16``."""
    return _NAMES.get(element_type, "invalid")


def joined(texts: Iterable[str], *, marked: bool = True) -> str:
    """Texts in a list, every fifth place marked with its number if wanted."""
    return ", ".join(
        f"/*index={at}*/{text}" if marked and at and at % _MARK_EVERY == 0 else text
        for at, text in enumerate(texts)
    )


def braced(values: Iterable[int]) -> str:
    """Numbers as ``{1,2}``."""
    return "{" + ",".join(map(str, values)) + "}"


def shape_text(shape: hlo_pb2.ShapeProto, *, layout: bool = True) -> str:
    """A shape, with its layout or without any; protobuf limits how deep tuples are.

    Args:
        shape: As serialised.
        layout: Whether layouts are shown.
    """
    kind = shape.element_type
    if kind in (_TYPE.TUPLE, _TYPE.BUFFER):
        inner = (shape_text(s, layout=layout) for s in shape.tuple_shapes)
        return ("b" if kind == _TYPE.BUFFER else "") + f"({joined(inner)})"
    dynamic = shape.is_dynamic_dimension
    sizes = ",".join(
        "?"
        if size == _INT64_MIN
        else f"<={size}"
        if at < len(dynamic) and dynamic[at]
        else str(size)
        for at, size in enumerate(shape.dimensions)
    )
    text = f"{type_name(kind)}[{sizes}]"
    if layout and shape.HasField("layout"):
        shown = layout_text(shape.layout)
        # Scalars show a layout only if it says something.
        if shape.dimensions or shown != "{}":
            text += shown
    return text


class ShapeTexts:
    """Texts of shapes with their layouts, each spelt out once: a program has few shapes."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def __call__(self, shape: hlo_pb2.ShapeProto) -> str:
        """The text of a shape."""
        key = shape.SerializeToString()
        text = self._known.get(key)
        if text is None:
            if shape.element_type == _TYPE.TUPLE:
                text = f"({joined(map(self, shape.tuple_shapes))})"
            else:
                text = shape_text(shape)
            self._known[key] = text
        return text


def layout_text(layout: hlo_pb2.LayoutProto) -> str:
    """A layout in braces: order of dimensions, then what is special about it."""
    order = ",".join(map(str, layout.minor_to_major))
    special = "".join(_special(layout))
    return "{" + order + (f":{special}" if special else "") + "}"


def _special(layout: hlo_pb2.LayoutProto) -> Iterator[str]:
    if layout.tiles:
        yield "T"
        for tile in layout.tiles:
            sizes = ("*" if size == _INT64_MIN else str(size) for size in tile.dimensions)
            yield f"({','.join(sizes)})"
    if layout.tail_padding_alignment_in_elements not in (0, 1):
        yield f"L({layout.tail_padding_alignment_in_elements})"
    if layout.index_primitive_type:
        yield f"#({type_name(layout.index_primitive_type)})"
    if layout.pointer_primitive_type:
        yield f"*({type_name(layout.pointer_primitive_type)})"
    if layout.element_size_in_bits:
        yield f"E({layout.element_size_in_bits})"
    if layout.memory_space:
        yield f"S({layout.memory_space})"
    if layout.split_configs:
        yield "SC"
        for split in layout.split_configs:
            yield f"({split.dimension}:{','.join(map(str, split.split_indices))})"
    if layout.HasField("physical_shape"):
        yield f"P({shape_text(layout.physical_shape)})"
    if layout.dynamic_shape_metadata_prefix_bytes > 0:
        yield f"M({layout.dynamic_shape_metadata_prefix_bytes})"
