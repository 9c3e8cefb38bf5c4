"""Which values of the program before compilation an instruction's results were."""

from typing import Final

from podscope_analyzers.hlo.text.shape_text import braced
from podscope_protos.v1 import hlo_pb2

Origin = hlo_pb2.OriginalValueProto
Index = tuple[int, ...]

# Places are those of tuples' elements; hostile ones must make neither a long text nor a deep tree.
_MAX_PLACES: Final = 10_000
_MAX_DEPTH: Final = 100


def origin_text(origin: Origin) -> str:
    """The values by their places in a result's tuples; places that have none are empty tuples.

    All empty places together are limited, since no bytes of the program stand for them; where
    there are more the text ends in ``...``.
    """
    elements = (one for one in origin.elements if len(one.shape_index) <= _MAX_DEPTH)
    shown = _Tree({tuple(one.shape_index): _array(one) for one in elements}).text()
    if origin.HasField("call_hierarchy"):
        shown += f',["{origin.call_hierarchy}"]'
    return shown


def _array(element: hlo_pb2.OriginalValueElementProto) -> str:
    if not element.HasField("original_array"):
        return "{}"
    array = element.original_array
    index = f" {braced(array.shape_index)}" if array.shape_index else ""
    return f'{{"{array.instruction_name}"{index}}}'


class _Tree:
    """Texts at places in tuples in tuples.

    Args:
        texts: By place.
    """

    def __init__(self, texts: dict[Index, str]) -> None:
        self._texts = texts
        self._left = _MAX_PLACES
        self._pieces: list[str] = []

    def text(self) -> str:
        """The tree in parentheses, as far as its empty places go."""
        if not self._add(self._texts):
            self._pieces.append("...")
        return "".join(self._pieces)

    def _add(self, texts: dict[Index, str]) -> bool:
        """Adds what is below one place; whether all of it fitted."""
        if () in texts:
            self._pieces.append(texts[()])
            return True
        below: dict[int, dict[Index, str]] = {}
        for index, text in texts.items():
            if 0 <= index[0] < _MAX_PLACES:
                below.setdefault(index[0], {})[index[1:]] = text
        self._pieces.append("(")
        last = -1
        for place in sorted(below):
            if not self._add_empty(place - last - 1) or not self._add(below[place]):
                return False
            self._pieces.append(", ")
            last = place
        if below:
            self._pieces.pop()
        self._pieces.append(")")
        return True

    def _add_empty(self, count: int) -> bool:
        """Adds so many empty places; whether all of them fitted."""
        fitting = min(count, self._left)
        self._left -= fitting
        self._pieces.append("(), " * fitting)
        return fitting == count
