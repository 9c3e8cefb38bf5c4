"""Which values of the program before compilation an instruction's results were."""

from typing import Final

from podscope_analyzers.hlo.text.shape_text import braced
from podscope_protos.v1 import hlo_pb2

Origin = hlo_pb2.OriginalValueProto
Index = tuple[int, ...]

# Places are those of tuples' elements; hostile ones must make neither a long text nor a deep tree.
_MAX_PLACE: Final = 10_000
_MAX_DEPTH: Final = 100


def origin_text(origin: Origin) -> str:
    """The values by their places in a result's tuples; places that have none are empty tuples."""
    elements = (one for one in origin.elements if len(one.shape_index) <= _MAX_DEPTH)
    shown = _tree({tuple(one.shape_index): _array(one) for one in elements})
    if origin.HasField("call_hierarchy"):
        shown += f',["{origin.call_hierarchy}"]'
    return shown


def _array(element: hlo_pb2.OriginalValueElementProto) -> str:
    if not element.HasField("original_array"):
        return "{}"
    array = element.original_array
    index = f" {braced(array.shape_index)}" if array.shape_index else ""
    return f'{{"{array.instruction_name}"{index}}}'


def _tree(texts: dict[Index, str]) -> str:
    if () in texts:
        return texts[()]
    below: dict[int, dict[Index, str]] = {}
    for index, text in texts.items():
        if 0 <= index[0] < _MAX_PLACE:
            below.setdefault(index[0], {})[index[1:]] = text
    places = range(max(below, default=-1) + 1)
    return "(" + ", ".join(_tree(below.get(place, {})) for place in places) + ")"
