"""Active and idle time of cores and chips, with numbers worked by hand."""

import numpy as np
import pytest

from podscope_analyzers.op_metrics.duty_cycle import Activity

Spans = list[tuple[int, int]]


def activity(active: Spans, idle: Spans | None = None) -> Activity:
    spans = np.array([*active, *(idle or [])], np.int64).reshape(-1, 2)
    is_active = np.arange(len(spans)) < len(active)
    rows = np.arange(len(spans), dtype=np.int32)
    return Activity.of(spans[:, 0].copy(), spans[:, 1] - spans[:, 0], rows, is_active)


def times(*chips: Activity) -> tuple[int, int]:
    return sum(chip.active_ps for chip in chips), sum(chip.idle_ps for chip in chips)


@pytest.mark.case("J4", "J5", "J7")
@pytest.mark.parametrize(
    ("active", "idle", "expected"),
    [
        ([(10, 20), (30, 40)], [], (20, 10)),
        ([(10, 20), (30, 40), (20, 35)], [], (30, 0)),
        ([(10, 40), (20, 30)], [], (30, 0)),
        ([(10, 20)], [(20, 30)], (10, 10)),
    ],
)
def test_a_core_is_idle_where_it_is_seen_and_does_nothing(
    active: Spans, idle: Spans, expected: tuple[int, int]
) -> None:
    assert times(activity(active, idle)) == expected


@pytest.mark.case("J6")
def test_cores_fill_each_others_gaps() -> None:
    one, other = activity([(0, 10), (20, 30)]), activity([(10, 20), (30, 40)])
    assert times(Activity.union([one, other])) == (40, 0)


@pytest.mark.case("J8")
def test_cores_of_a_chip_join_and_chips_add() -> None:
    first = activity([(10, 20)], [(20, 30)])
    second = activity([(20, 30)], [(10, 20)])
    assert times(Activity.union([first, second])) == (20, 0)
    assert times(first, first) == (20, 20)
    assert times(first, activity([(15, 25)], [(10, 30)])) == (20, 20)
    both = Activity.union([first, second])
    assert times(both, activity([(15, 25)], [(10, 30)])) == (30, 10)
