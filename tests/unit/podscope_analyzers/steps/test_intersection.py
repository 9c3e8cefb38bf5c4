"""Common steps of several hosts; ids I1 to I12 are those of the conformance cases."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.kernels.steps import overlap_by_offset
from podscope_analyzers.steps import StepDatabase, combine_step_databases, intersect_steps
from podscope_analyzers.steps.database import Collectives, Transfers

STEP_PS = 2_000_000_000
CORES = 8


def host_steps(
    spans: Sequence[tuple[int, int]],
    *,
    cores: int = CORES,
    first_number: int = 0,
    has_device: bool = True,
    kind: str = "tpu",
) -> StepDatabase:
    """Steps with the same (begin, duration) on every core, half of it idle."""
    begin = np.repeat([b for b, _ in spans], cores).astype(np.int64)
    duration = np.repeat([d for _, d in spans], cores).astype(np.int64)
    rows = len(begin)
    return StepDatabase(
        kind="tpu" if kind == "tpu" else "generic",
        has_device=has_device,
        step_numbers=np.arange(first_number, first_number + len(spans)),
        row_step=np.repeat(np.arange(len(spans)), cores),
        core_id=np.tile(np.arange(cores), len(spans)).astype(np.int64),
        host_index=np.zeros(rows, np.int64),
        begin_ps=begin,
        duration_ps=duration,
        name_code=np.repeat(np.arange(len(spans)), cores),
        names=tuple(f"step {first_number + i}" for i in range(len(spans))),
        categories=("IDLE", "fusion"),
        breakdown_ps=np.stack([duration // 2, duration - duration // 2], axis=1),
        in_breakdown=np.ones((rows, 2), np.bool_),
        collectives=Collectives(),
        transfers=Transfers.zeros(len(spans)),
    )


def regular(count: int, *, first: int = 0, delay: int = 0, short: int = 0) -> StepDatabase:
    """Steps without a gap; the last is ``short`` picoseconds shorter."""
    spans = [((first + i) * STEP_PS + delay, STEP_PS) for i in range(count)]
    if short:
        spans[-1] = (spans[-1][0], STEP_PS - short)
    return host_steps(spans)


@pytest.mark.case("I1")
def test_delayed_hosts_keep_the_steps_that_all_have() -> None:
    hosts = [regular(10, delay=h * STEP_PS, short=1 if h == 0 else 0) for h in range(4)]
    common = intersect_steps(hosts)
    assert (common.step_count, common.steps_dropped, common.is_empty) == (7, 0, False)
    assert common.first_step.tolist() == [3, 2, 1, 0]
    combined = combine_step_databases(hosts)
    assert combined.step_numbers.tolist() == list(range(7))
    assert combined.core_id[: 4 * CORES].tolist() == [
        1000 * h + core for h in range(4) for core in range(CORES)
    ]
    assert set(combined.begin_ps[: 4 * CORES].tolist()) == {3 * STEP_PS}


@pytest.mark.case("I2")
@pytest.mark.parametrize("delay", [0, 100])
def test_hosts_with_hardly_any_delay_keep_all_steps(delay: int) -> None:
    hosts = [regular(10, delay=h * delay, short=1 if h == 0 else 0) for h in range(4)]
    common = intersect_steps(hosts)
    assert (common.step_count, common.first_step.tolist()) == (10, [0, 0, 0, 0])
    assert combine_step_databases(hosts).step_numbers.tolist() == list(range(10))


@pytest.mark.case("I3")
def test_one_host_keeps_its_steps_and_their_numbers() -> None:
    host = host_steps([(i * STEP_PS, STEP_PS) for i in range(10)], first_number=5)
    assert intersect_steps([host]).step_count == 10
    assert intersect_steps([host]).first_step.tolist() == [0]
    assert combine_step_databases([host]) is host


@pytest.mark.case("I4")
def test_more_steps_than_wanted_are_dropped_and_counted() -> None:
    hosts = [regular(10, delay=h * 100, short=1 if h == 0 else 0) for h in range(4)]
    common = intersect_steps(hosts, max_steps=3)
    assert (common.step_count, common.steps_dropped) == (3, 7)
    combined = combine_step_databases(hosts, max_steps=3)
    assert (len(combined), combined.steps_dropped) == (3, 7)


@pytest.mark.case("I5")
def test_hosts_without_steps_have_an_empty_list_not_an_empty_intersection() -> None:
    common = intersect_steps([StepDatabase.empty("tpu", has_device=True)] * 4)
    assert (common.step_count, common.is_empty) == (0, False)


@pytest.mark.case("I6")
def test_hosts_that_never_ran_together_have_an_empty_intersection() -> None:
    hosts = [regular(10, short=1), regular(5, first=8), regular(10, first=11)]
    common = intersect_steps(hosts)
    assert (common.step_count, common.steps_dropped, common.is_empty) == (0, 0, True)
    combined = combine_step_databases(hosts)
    assert (len(combined), combined.is_intersection_empty) == (0, True)


@pytest.mark.case("I7")
def test_the_shorter_list_decides() -> None:
    common = intersect_steps([regular(5, short=1), regular(10)])
    assert (common.step_count, common.steps_dropped) == (5, 0)


@pytest.mark.case("I8")
def test_a_host_without_steps_leaves_none() -> None:
    common = intersect_steps([regular(5), StepDatabase.empty("tpu", has_device=True)])
    assert (common.step_count, common.is_empty) == (0, False)


@pytest.mark.case("I9")
def test_no_hosts_have_no_steps() -> None:
    common = intersect_steps([])
    assert (common.step_count, common.steps_dropped, common.is_empty) == (0, 0, False)
    assert len(combine_step_databases([])) == 0


@pytest.mark.case("I10")
@pytest.mark.parametrize(
    "host",
    [
        pytest.param(host_steps([(0, STEP_PS)], cores=0), id="no cores"),
        pytest.param(host_steps([(0, 0)]), id="no duration"),
        pytest.param(host_steps([(0, STEP_PS)], cores=1), id="one core"),
    ],
)
def test_one_host_keeps_even_odd_steps(host: StepDatabase) -> None:
    assert intersect_steps([host]).step_count == 1


@pytest.mark.case("I11")
def test_steps_without_duration_do_not_disturb_the_alignment() -> None:
    spans = [(0, STEP_PS), (STEP_PS, 0), (2 * STEP_PS, STEP_PS)]
    assert intersect_steps([host_steps(spans), host_steps(spans)]).step_count == 3


@pytest.mark.case("I12")
def test_gaps_between_steps_do_not_disturb_the_alignment() -> None:
    spans = [(i * 2 * STEP_PS, STEP_PS) for i in range(5)]
    assert intersect_steps([host_steps(spans), host_steps(spans)]).step_count == 5


def test_a_coordinator_without_devices_takes_no_part() -> None:
    coordinator = host_steps([(0, 10)], cores=1, has_device=False, kind="generic")
    hosts = [coordinator, regular(4), regular(4)]
    assert intersect_steps(hosts).first_step.tolist() == [-1, 0, 0]
    assert set(combine_step_databases(hosts).host_index.tolist()) == {1, 2}


def test_names_and_spans_of_every_host_are_kept() -> None:
    first = host_steps([(0, 10), (10, 10)], cores=1, first_number=7)
    second = host_steps([(2, 9), (12, 8)], cores=1)
    combined = combine_step_databases([first, second])
    assert [combined.row_name(row) for row in range(4)] == ["step 7", "step 0", "step 8", "step 1"]
    assert combined.begin_ps.tolist() == [0, 2, 10, 12]
    assert combined.duration_ps.tolist() == [10, 9, 10, 8]
    assert combined.step_numbers.tolist() == [0, 1]


def test_hosts_with_other_categories_share_one_breakdown() -> None:
    first = host_steps([(0, 10)], cores=1)
    other = host_steps([(0, 10)], cores=1)
    second = StepDatabase.from_state(other.to_state() | {"categories": ["infeed", "IDLE"]})
    combined = combine_step_databases([first, second])
    assert combined.categories == ("IDLE", "fusion", "infeed")
    assert combined.breakdown_ps.tolist() == [[5, 5, 0], [5, 0, 5]]
    assert combined.in_breakdown.tolist() == [[True, True, False], [True, False, True]]


@pytest.mark.case("W11")
@pytest.mark.parametrize(("count", "kept"), [(4, 4), (5, 5), (6, 4), (9, 7)])
def test_the_first_and_last_of_more_than_five_steps_are_incomplete(count: int, kept: int) -> None:
    host = host_steps([(i * 10, 10) for i in range(count)], cores=1, kind="generic", first_number=1)
    complete = combine_step_databases([host])
    assert len(complete) == kept
    if kept < count:
        assert complete.step_numbers.tolist() == list(range(2, count))
    assert len(combine_step_databases([host], keep_incomplete=True)) == count


@pytest.mark.case("W11")
def test_hosts_lose_their_incomplete_steps_before_they_are_intersected() -> None:
    """Hosts with steps 1 to 8 and 4 to 11 share 5 to 7, or 4 to 8 with all kept."""
    first = host_steps([(i * 10, 10) for i in range(1, 9)], cores=1, kind="generic")
    second = host_steps([(i * 10, 10) for i in range(4, 12)], cores=1, kind="generic")
    complete = combine_step_databases([first, second])
    assert complete.begin_ps[::2].tolist() == [50, 60, 70]
    everything = combine_step_databases([first, second], keep_incomplete=True)
    assert everything.begin_ps[::2].tolist() == [40, 50, 60, 70, 80]


@pytest.mark.case("W12")
def test_steps_of_tpus_are_all_complete() -> None:
    assert len(combine_step_databases([regular(7)])) == 7


span_lists = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 15)), min_size=0, max_size=12
).map(sorted)


def slow_overlap_by_offset(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> dict[int, int]:
    """The sweep as it is defined, on lists of (begin, duration)."""
    mine_left = [(i, b, b + d) for i, (b, d) in enumerate(mine) if d > 0]
    theirs_left = [(j, b, b + d) for j, (b, d) in enumerate(theirs) if d > 0]
    found: dict[int, int] = {}
    while mine_left and theirs_left:
        (i, b, e), (j, other_b, other_e) = mine_left[0], theirs_left[0]
        shared = min(e, other_e) - max(b, other_b)
        if shared > 0:
            found[j - i] = found.get(j - i, 0) + shared
        if e <= other_e:
            mine_left.pop(0)
        if other_e <= e:
            theirs_left.pop(0)
    return found


@given(span_lists, span_lists)
def test_the_compiled_sweep_equals_the_obvious_one(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    a = np.array(mine, np.int64).reshape(-1, 2)
    b = np.array(theirs, np.int64).reshape(-1, 2)
    fast = overlap_by_offset(a[:, 0].copy(), a.sum(axis=1), b[:, 0].copy(), b.sum(axis=1))
    slow = slow_overlap_by_offset(mine, theirs)
    assert {k - len(mine): int(v) for k, v in enumerate(fast) if v} == slow


@given(st.lists(span_lists, min_size=2, max_size=4), st.integers(-1000, 1000))
def test_shifting_all_times_changes_no_common_step(
    hosts: list[list[tuple[int, int]]], shift: int
) -> None:
    still = intersect_steps([host_steps(spans, cores=1) for spans in hosts])
    moved = intersect_steps(
        [host_steps([(b + shift, d) for b, d in spans], cores=1) for spans in hosts]
    )
    assert still.step_count == moved.step_count
    assert still.first_step.tolist() == moved.first_step.tolist()


def test_a_database_survives_its_state() -> None:
    database = regular(3)
    again = StepDatabase.from_state(database.to_state())
    assert again.to_state().keys() == database.to_state().keys()
    assert again.categories == database.categories
    assert again.names == database.names
    np.testing.assert_array_equal(again.breakdown_ps, database.breakdown_ps)
    np.testing.assert_array_equal(again.row_offsets, [0, 8, 16, 24])
