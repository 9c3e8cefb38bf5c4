"""Kernels on trees of events against their rules as they are written."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from podscope_analyzers.kernels.forest import link_siblings, spread_below


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """A parent for every node, before it in the list; -1 for none."""
    count = draw(st.integers(0, 20))
    return [draw(st.integers(-1, node - 1)) for node in range(count)]


@settings(deadline=None)
@given(trees())
def test_children_are_linked_in_their_order(parents: list[int]) -> None:
    parent = np.array(parents, np.int32)
    first, following = np.empty_like(parent), np.empty_like(parent)
    link_siblings(parent, first, following)
    for node in range(len(parents)):
        found, child = [], int(first[node])
        while child >= 0:
            found.append(child)
            child = int(following[child])
        assert found == [other for other, above in enumerate(parents) if above == node]


@settings(deadline=None)
@given(trees(), st.data())
def test_marks_spread_to_all_that_lies_below(parents: list[int], data: st.DataObject) -> None:
    flags = st.lists(st.booleans(), min_size=len(parents), max_size=len(parents))
    own, source = data.draw(flags), data.draw(flags)
    below = np.empty(len(parents), np.bool_)
    spread_below(
        np.array(parents, np.int32), np.array(own, np.bool_), np.array(source, np.bool_), below
    )
    for node in range(len(parents)):
        expected, at = own[node], parents[node]
        while at >= 0:
            expected = expected or own[at] or source[at]
            at = parents[at]
        assert below[node] == expected
