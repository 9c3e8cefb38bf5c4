"""Ancestors in forests of events: deep nests, which walks for each event alone never end on."""

import numpy as np

from podscope_analyzers.kernels.forest import BRANCHES, nearest_on_chains

DEPTH = 300_000


def test_every_event_of_a_deep_nest_finds_its_ancestor() -> None:
    parent = np.arange(-1, DEPTH - 1, dtype=np.int32)
    no_edges = np.zeros(DEPTH + 1, np.int32)
    mark = np.zeros(DEPTH, np.int32)
    mark[[1, 1000]] = 5
    starts = np.arange(DEPTH, dtype=np.int32)
    for is_self_included in (True, False):
        found = np.empty(DEPTH, np.int32)
        nearest_on_chains(
            parent,
            no_edges,
            no_edges,
            mark,
            np.full(DEPTH, 5, np.int64),
            is_self_included,
            starts[::-1].copy(),
            found,
            np.empty(DEPTH, np.int32),
            np.full(DEPTH, -1, np.int64),
            np.empty(DEPTH, np.int32),
        )
        above = starts if is_self_included else starts - 1
        expected = np.where(above >= 1000, 1000, np.where(above >= 1, 1, -1))
        assert np.array_equal(found[::-1], expected)


def test_where_the_ways_up_branch_the_search_is_left_to_another() -> None:
    parent = np.array([-1, 0, 1, 2], np.int32)
    # The second event has a parent by an extra edge.
    edges = np.array([0, 0, 1, 1, 1], np.int32)
    mark = np.array([1, 0, 0, 1], np.int32)
    starts = np.array([0, 1, 2, 3], np.int32)
    found = np.empty(4, np.int32)
    nearest_on_chains(
        parent,
        edges,
        np.zeros(5, np.int32),
        mark,
        np.ones(4, np.int64),
        True,
        starts,
        found,
        np.empty(4, np.int32),
        np.full(4, -1, np.int64),
        np.empty(4, np.int32),
    )
    assert found.tolist() == [0, BRANCHES, BRANCHES, 3]
