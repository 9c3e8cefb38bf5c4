"""The walk over calls of input pipelines, against a recursion that does the same."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.kernels.iterators import walk_iterators

Span = tuple[int, int]
_spans = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 15), st.booleans()), min_size=1, max_size=8
)


def _shared(one: Span, other: Span) -> int:
    return min(one[1], other[1]) - max(one[0], other[0])


def _visited(
    roots: list[int], children: list[list[int]], spans: list[Span], has_id: list[bool]
) -> list[tuple[int, int, int, bool]]:
    """Root, node, own time and whether the root waits, of every call that is met."""
    found: list[tuple[int, int, int, bool]] = []

    def visit(root: int, node: int, waits: bool) -> None:
        if not has_id[node]:
            return
        begin, end = spans[node]
        taken = sum(max(_shared(spans[node], spans[child]), 0) for child in children[node])
        found.append((root, node, end - begin - taken, waits))
        for child in children[node]:
            visit(root, child, waits and _shared(spans[node], spans[child]) > 0)

    for at, root in enumerate(roots):
        visit(at, root, True)
    return found


@given(_spans, st.data())
def test_a_walk_visits_what_a_recursion_visits(
    drawn: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    count = len(drawn)
    # Children come after their parents, so that no walk is endless; some have several parents.
    later = [st.integers(node + 1, count - 1) for node in range(count - 1)]
    children = [data.draw(st.lists(nodes, max_size=2)) for nodes in later] + [[]]
    roots = data.draw(st.lists(st.integers(0, count - 1), max_size=3))
    spans = [(begin, begin + duration) for begin, duration, _ in drawn]
    has_id = [known for *_, known in drawn]
    visits = walk_iterators(
        np.array(roots, np.int32),
        np.cumsum([0, *map(len, children)]).astype(np.int32),
        np.array([child for of_node in children for child in of_node], np.int32),
        np.array([begin for begin, _ in spans], np.int64),
        np.array([end for _, end in spans], np.int64),
        np.array(has_id, np.bool_),
    )
    assert visits.is_complete
    columns = (visits.root, visits.node, visits.self_ps, visits.is_blocking.astype(bool))
    found = list(zip(*(column.tolist() for column in columns), strict=True))
    assert found == _visited(roots, children, spans, has_id)
