"""Grouping on arrays against the same on objects, and the kernels that serve it."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podscope_analyzers import XSpace
from podscope_analyzers.kernels.forest import find_around, merge_runs
from podscope_analyzers.prepare import prepare

HOST = "/host:CPU"


@dataclass
class Node:
    begin: int
    end: int
    level: int
    produced: int
    consumed: int
    number: int | None
    parents: list["Node"] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)
    group: int = -1

    def above(self) -> list["Node"]:
        """Ancestors, nearest first."""
        seen, queue, found = {id(self)}, deque([self]), []
        while queue:
            for parent in queue.popleft().parents:
                if id(parent) not in seen:
                    seen.add(id(parent))
                    queue.append(parent)
                    found.append(parent)
        return found

    def selves(self) -> list["Node"]:
        """Itself, when it consumes what it produces."""
        return [self] if self.produced and self.produced == self.consumed else []


def link(parent: Node, child: Node) -> None:
    parent.children.append(child)
    child.parents.append(parent)


def slow_groups(lines: list[list[Node]]) -> list[str]:
    """Groups the nodes; returns the numbers in the groups' names."""
    nodes = [node for line in lines for node in line]
    for line in lines:
        stack: list[Node] = []
        for node in line:
            while stack and not (stack[-1].begin <= node.begin and node.end <= stack[-1].end):
                stack.pop()
            if stack:
                link(stack[-1], node)
            stack.append(node)
    for producer in nodes:
        for consumer in nodes:
            if (
                producer is not consumer
                and producer.produced
                and producer.produced == consumer.consumed
            ):
                link(producer, consumer)
    names: list[str] = []
    roots = [node for node in nodes if node.level > 0]
    for root in sorted(roots, key=lambda node: (-node.level, node.begin)):
        # A root that consumes what it produces has itself for an ancestor.
        blocked = any(node.level == root.level for node in (*root.above(), *root.selves()))
        if root.group >= 0 or blocked:
            continue
        around = [node.number for node in (root, *root.above()) if node.number is not None]
        names.append(str(around[0]) if around else str(len(names)))
        root.group = len(names) - 1
        queue = deque([root])
        while queue:
            for child in queue.popleft().children:
                if child.group < 0:
                    child.group = root.group
                    queue.append(child)
    return names


small = st.integers(0, 3)
events = st.tuples(st.integers(0, 20), st.integers(0, 10), st.integers(0, 2), small, small, small)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(st.lists(st.lists(events, max_size=8), min_size=1, max_size=4))
def test_grouping_on_arrays_equals_grouping_on_objects(
    make_space: Callable[..., XSpace], drawn: list[list[tuple[int, ...]]]
) -> None:
    lines: list[list[Node]] = []
    stored: dict[str, list[Any]] = {}
    for at, line in enumerate(drawn):
        nodes = [
            # Each line has start times of its own, so that no tie decides the roots' order.
            Node(10 * b + at, 10 * (b + d) + at, level, produced, consumed, n if n < 2 else None)
            for b, d, level, produced, consumed, n in sorted(line, key=lambda e: (e[0], -e[1]))
        ]
        nodes = [n for i, n in enumerate(nodes) if i == 0 or n.begin != nodes[i - 1].begin]
        lines.append(nodes)
        stored[f"line {at}"] = [
            (
                "event",
                node.begin,
                node.end - node.begin,
                {
                    **({"_r": node.level} if node.level else {}),
                    **({"_pt": 1, "_p": node.produced} if node.produced else {}),
                    **({"_ct": 1, "_c": node.consumed} if node.consumed else {}),
                    **({"step_num": node.number} if node.number is not None else {}),
                },
            )
            for node in nodes
        ]
    names = slow_groups(lines)
    space = prepare(make_space({HOST: stored}))
    assert space.host_plane is not None
    ours = [line.group_id.tolist() for line in space.host_plane.lines]
    assert ours == [[node.group for node in line] for line in lines]
    if all(len(node.parents) <= 1 for line in lines for node in line):
        # With one way up only, the nearest ancestor is not a matter of order.
        assert [space.groups.name(g) for g in range(len(names))] == [f"event {n}" for n in names]


sorted_spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8).map(sorted)


def spans_of(spans: list[tuple[int, int]]) -> tuple[Any, Any]:
    array = np.array(spans, np.int64).reshape(-1, 2)
    return array[:, 0].copy(), array[:, 1].copy()


def ends_of(spans: list[tuple[int, int]]) -> tuple[Any, Any]:
    start, duration = spans_of(spans)
    return start, start + duration


@given(sorted_spans, sorted_spans)
def test_the_step_around_an_event_is_the_first_that_ends_after_it(
    outer: list[tuple[int, int]], inner: list[tuple[int, int]]
) -> None:
    found = np.empty(len(inner), np.int32)
    find_around(*ends_of(outer), *spans_of(inner), True, found)
    for (begin, duration), at in zip(inner, found, strict=True):
        first = next((i for i, (b, d) in enumerate(outer) if b + d > begin), None)
        includes = (
            first is not None and outer[first][0] <= begin and begin + duration <= sum(outer[first])
        )
        # A later, longer step may hide behind an earlier one that reaches further.
        if first is not None and all(
            sum(outer[i]) <= sum(outer[i + 1]) for i in range(len(outer) - 1)
        ):
            assert at == (first if includes else -1)


@given(sorted_spans, sorted_spans)
def test_the_step_of_an_event_is_kept_as_long_as_it_overlaps(
    outer: list[tuple[int, int]], inner: list[tuple[int, int]]
) -> None:
    found = np.empty(len(inner), np.int32)
    find_around(*ends_of(outer), *spans_of(inner), False, found)
    current = -1
    for (begin, duration), at in zip(inner, found, strict=True):
        end = begin + duration
        overlapping = [i for i, (b, d) in enumerate(outer) if b <= end and begin <= b + d]
        if current not in overlapping:
            later = [i for i in overlapping if i > current]
            if not later:
                assert at == -1
                continue
            current = later[0]
        assert at == current


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(0, 1), st.integers(-1, 1)),
        max_size=15,
    ).map(sorted)
)
def test_runs_end_at_another_code_group_or_a_long_gap(
    given_events: list[tuple[int, int, int, int]],
) -> None:
    array = np.array(given_events, np.int64).reshape(-1, 4)
    start, end = array[:, 0].copy(), array[:, 0] + array[:, 1]
    run = np.empty(len(array), np.int32)
    count = merge_runs(array[:, 2].astype(np.int32), array[:, 3].copy(), start, end, run)
    expected: list[list[tuple[int, int, int, int]]] = []
    for event in given_events:
        last = expected[-1] if expected else None
        if last is not None:
            reach = max(b + d for b, d, _, _ in last)
            near = reach + 2 * (reach - last[0][0]) >= event[0]
            if last[-1][2:] == event[2:] and (near or event[3] >= 0):
                last.append(event)
                continue
        expected.append([event])
    assert count == len(expected)
    assert run.tolist() == [i for i, members in enumerate(expected) for _ in members]
