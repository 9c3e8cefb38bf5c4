"""Self times of operations by step: kept within bounds, added up, and judged."""

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope
from podscope_analyzers.step_times import MAX_CELLS, MAX_STEPS, MIN_KEPT_STEPS, StepTimes


def _times(table: list[list[int]], first_step: int = 0) -> StepTimes:
    """Of a table with a row per operation and a column per step."""
    values = np.array(table, np.int64)
    op, step = np.indices(values.shape)
    return StepTimes.of(op.ravel(), step.ravel() + first_step, values.ravel())


def _table(times: StepTimes) -> dict[tuple[int, int], int]:
    pairs = zip(times.op.tolist(), times.step.tolist(), strict=True)
    return dict(zip(pairs, times.self_ps.tolist(), strict=True))


def test_events_of_an_operation_and_step_add_up_and_those_of_no_step_are_left_out() -> None:
    found = StepTimes.of(
        np.array([0, 0, 1, -1, 0]), np.array([4, 4, 5, 4, -1]), np.array([1, 2, 4, 8, 16])
    )
    assert _table(found) == {(0, 4): 3, (1, 5): 4}


def test_of_many_steps_and_operations_only_the_pairs_that_happen_take_memory() -> None:
    count = 20_000
    each = np.arange(count)
    tracemalloc.start()
    times = StepTimes.of(np.append(each, 0), np.append(each, 0), np.append(each + 1, 5))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All pairs would take 3.2 GB.
    assert peak_bytes < 20_000_000
    assert _table(times) == {(i, i): i + 1 + 5 * (i == 0) for i in range(count)}


def test_databases_are_combined_by_the_new_rows_of_their_operations() -> None:
    found = StepTimes.combine(
        [_times([[1, 2], [10, 20]]), _times([[100, 200]]), StepTimes()],
        [np.array([0, -1]), np.array([0]), np.array([3])],
    )
    assert _table(found) == {(0, 0): 101, (0, 1): 202}


def test_steps_that_one_database_left_out_are_known_of_none() -> None:
    long = _times([[1] * (2 * MAX_STEPS)]).bounded()
    assert (long.first, long.last) == (MAX_STEPS // 2, MAX_STEPS // 2 + MAX_STEPS - 1)
    found = StepTimes.combine([long, _times([[1] * 400])], [np.array([0]), np.array([0])])
    assert (found.first, found.last) == (long.first, long.last)
    assert set(_table(found).values()) == {2}


def test_of_many_operations_the_longest_are_kept_in_steps_enough_to_judge_them() -> None:
    ops, steps = 2 * MAX_CELLS // MIN_KEPT_STEPS, 2 * MIN_KEPT_STEPS
    found = _times([[1 + op] * steps for op in range(ops)]).bounded()
    assert len(found.op) == MAX_CELLS
    assert len(np.unique(found.step)) == MIN_KEPT_STEPS
    assert set(found.op.tolist()) == set(range(ops // 2, ops))


def test_a_spread_is_the_deviation_over_the_mean_of_all_steps_with_zeros_where_it_did_not_run() -> (
    None
):
    times = _times([[4, 0, 4, 0], [5, 5, 5, 5]], first_step=7)
    found = times.numbered(np.arange(7, 11)).spreads(3)
    assert found[0] is not None
    assert found[0].ratio == pytest.approx(np.std([4, 0, 4, 0], ddof=1) / 2)
    assert found[0].steps == 4
    assert found[1] is not None
    assert found[1].ratio == 0
    assert found[2] is None


def test_operations_that_take_turns_vary_less_together() -> None:
    times = _times([[4, 0, 4, 0], [0, 4, 0, 4]]).numbered(np.arange(4))
    together = times.spread_together(np.array([0, 1]), np.array([8, 8]))
    assert together is not None
    assert together.ratio == 0


def test_a_spread_of_parts_that_are_mostly_unknown_is_unknown() -> None:
    times = _times([[4, 3, 4]]).numbered(np.arange(3))
    assert times.spread_together(np.array([0, 1]), np.array([11, 1])) is not None
    assert times.spread_together(np.array([0, 1]), np.array([11, 11])) is None


def test_two_steps_have_no_spread() -> None:
    assert _times([[4, 3]]).numbered(np.arange(2)).spreads(1) == [None]


def _pod_spreads(partials: Sequence[HostPartial], tool: str, table: str) -> dict[str, float]:
    """By instruction or kernel; of equal names the longest."""
    found = run_tool(tool, partials, Scope([one.host for one in partials])).tables[table]
    ids = [column.id for column in found.columns]
    rows = [dict(zip(ids, row, strict=True)) for row in found.rows]
    name = next(one for one in ("hlo_op_name", "kernel_name") if one in ids)
    return {
        str(row[name]): float(str(row["step_spread_ratio"]))
        for row in reversed(rows)
        if row["step_spread_ratio"] is not None
    }


def _analyzed(pod: Pod) -> list[HostPartial]:
    return [
        analyze_host(build_xspace(pod, host, pod.steps_window()), pod.hostname(host))
        for host in range(pod.hosts)
    ]


@pytest.mark.parametrize(
    ("device", "tool", "table", "collective", "computation"),
    [
        ("tpu-v5e", "hlo_stats", "instructions", "all-reduce", "fusion.11"),
        ("gpu-h100", "kernel_stats", "kernels", "ncclDevKernel", "gemm_fusion_dot_7"),
    ],
)
def test_waiting_for_a_late_host_varies_more_than_computing(
    device: str, tool: str, table: str, collective: str, computation: str
) -> None:
    found = _pod_spreads(
        _analyzed(Pod(device, 2, 10, 5, slow_host=1, slow_factor=1.3)), tool, table
    )
    waiting = max(ratio for name, ratio in found.items() if name.startswith(collective))
    assert 0 < found[computation] < waiting / 2


def test_spreads_survive_storing() -> None:
    (partial,) = _analyzed(Pod("tpu-v5e", 1, 8, 5))
    stored = HostPartial.from_bytes(partial.to_bytes())
    assert _pod_spreads([stored], "hlo_stats", "instructions") == _pod_spreads(
        [partial], "hlo_stats", "instructions"
    )
