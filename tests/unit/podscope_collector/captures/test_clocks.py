import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_collector.captures.agents import PingTurns
from podscope_collector.captures.clocks import (
    ClockCheck,
    ClockOffset,
    HostWindow,
    Ping,
    align,
    better,
    between,
    check_clocks,
    offset_of,
)

MS = 1_000_000


def ping(at_ns: int, there_ns: int, back_ns: int, offset_ns: int, work_ns: int = 1000) -> Ping:
    arrived = at_ns + there_ns + offset_ns
    return Ping(at_ns, arrived, arrived + work_ns, at_ns + there_ns + work_ns + back_ns)


def test_the_shortest_round_trip_tells_the_offset() -> None:
    pings = [ping(0, 5 * MS, MS, 70 * MS), ping(9, MS, MS, 70 * MS), ping(20, 8 * MS, 0, 70 * MS)]
    assert offset_of(pings) == ClockOffset(70 * MS, MS)


def test_without_a_usable_ping_nothing_is_claimed() -> None:
    assert offset_of([]) is None
    # Its own time jumped back while it answered.
    assert offset_of([Ping(0, 100, 5_000_000, 10)]) is None


ways = st.integers(0, 10**9)


@given(
    st.lists(st.tuples(ways, ways), min_size=1, max_size=8),
    st.integers(-(10**15), 10**15),
    st.integers(0, 10**6),
)
def test_the_true_offset_lies_within_the_error(
    trips: list[tuple[int, int]], offset_ns: int, work_ns: int
) -> None:
    now = 1_800_000_000_000_000_000
    found = offset_of(ping(now, there, back, offset_ns, work_ns) for there, back in trips)
    assert found is not None
    # Half a nanosecond is lost to whole numbers.
    assert abs(found.offset_ns - offset_ns) <= found.error_ns + 1
    assert found.error_ns <= (min(there + back for there, back in trips) + 1) // 2


def test_drift_between_two_measurements_widens_the_error() -> None:
    before, after = ClockOffset(10 * MS, MS), ClockOffset(14 * MS, 2 * MS)
    assert between(before, after) == ClockOffset(12 * MS, 4 * MS)
    assert between(before, None) == before
    assert between(None, None) is None


def test_the_surer_of_two_measurements_counts() -> None:
    sure, unsure = ClockOffset(1, 5), ClockOffset(2, 50)
    assert better(unsure, sure) == better(sure, None) == sure
    assert better(None, None) is None


def window(host: str, start_ms: int, stop_ms: int | None, offset_ms: int | None = 0) -> HostWindow:
    offset = None if offset_ms is None else ClockOffset(offset_ms * MS, MS // 10)
    stop = None if stop_ms is None else stop_ms * MS
    return HostWindow(host, start_ms * MS, stop, offset)


def test_clocks_are_corrected_before_starts_are_compared() -> None:
    # The second host's clock is 500 ms ahead; both began 3 ms apart.
    found = align([window("a", 1000, 3000), window("b", 1503, 3503, offset_ms=500)])
    assert found is not None
    assert (found.skew_ns, found.error_ns) == (3 * MS, 200_000)
    assert (found.common_start_ns, found.common_ns) == (1003 * MS, 1997 * MS)
    assert found.outside == ()


def test_an_unknown_clock_makes_the_error_unknown() -> None:
    found = align([window("a", 1000, 3000), window("b", 1003, 3003, offset_ms=None)])
    assert found is not None
    assert (found.skew_ns, found.error_ns) == (3 * MS, None)


def test_a_host_that_missed_the_others_is_named_and_the_rest_have_a_common_window() -> None:
    found = align(
        [
            window("early", 0, 900),
            window("a", 1000, 3000),
            window("b", 1010, 3010),
            window("c", 1020, 3020),
        ]
    )
    assert found is not None
    assert found.outside == ("early",)
    assert (found.common_start_ns, found.common_ns) == (1020 * MS, 1980 * MS)
    assert found.skew_ns == 1020 * MS


def test_a_host_that_was_captured_again_later_is_outside_and_not_the_others() -> None:
    found = align(
        [
            window("again", 31_000, 33_000),
            window("a", 1000, 3000),
            window("b", 1010, 3010),
            window("c", 1020, 3020),
        ]
    )
    assert found is not None
    assert found.outside == ("again",)
    assert (found.common_start_ns, found.common_ns) == (1020 * MS, 1980 * MS)
    assert found.skew_ns == 30_000 * MS


def test_the_most_hosts_that_record_at_one_moment_are_the_capture() -> None:
    # Two together, two that were busy and came one after the other.
    found = align(
        [
            window("late", 2600, 3100),
            window("a", 1000, 1500),
            window("later", 3200, 3700),
            window("b", 1100, 1600),
        ]
    )
    assert found is not None
    assert found.outside == ("late", "later")
    assert (found.common_start_ns, found.common_ns) == (1100 * MS, 400 * MS)


def test_a_profile_that_does_not_tell_its_end_leaves_the_common_window_open() -> None:
    found = align([window("a", 1000, None), window("b", 1003, 3003)])
    assert found is not None
    assert found.common_ns is None


def _ends(basis: str = "collective_ends", **apart: int) -> dict[str, Any]:
    return {
        "basis": basis,
        "difference_ns": apart,
        "end_count": 8,
        "error_ns": 20_000,
        "unplaced": ["d"],
    }


def test_common_ends_tell_what_is_left_of_wrong_clocks_and_when_hosts_really_began() -> None:
    # By the pings a and b began 3 ms apart; the ends show that b's clock still is 2 ms ahead.
    windows = [window("a", 1000, 3000), window("b", 1503, 3503, offset_ms=500)]
    measured = {"a": ClockOffset(0, MS // 10), "b": ClockOffset(500 * MS, MS // 5)}
    check = check_clocks(_ends(a=0, b=2 * MS), windows, measured)
    assert check == ClockCheck(
        basis="collective_ends",
        hosts=2,
        ends=8,
        residual_ns=2 * MS,
        error_ns=20_000,
        promised_ns=2 * MS // 5,
        ahead="b",
        behind="a",
        unplaced=("d",),
        skew_ns=MS,
    )


def test_stock_servers_have_a_skew_by_their_collectives_and_none_by_their_steps() -> None:
    windows = [window("a", 1000, 3000, None), window("b", 1503, 3503, None)]
    check = check_clocks(_ends(a=0, b=500 * MS), windows, {})
    assert check is not None
    assert (check.skew_ns, check.promised_ns) == (3 * MS, None)
    check = check_clocks(_ends("step_ends", a=0, b=500 * MS), windows, {})
    assert check is not None
    assert (check.skew_ns, check.residual_ns) == (None, 500 * MS)


def test_no_common_ends_say_nothing_of_clocks() -> None:
    assert check_clocks(None, [window("a", 1000, 3000)], {}) is None


def test_nothing_is_said_without_a_window() -> None:
    assert align([]) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_hosts_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    windows = [
        window(f"h{n}", start := rng.randrange(2000), start + rng.randrange(1, 2000))
        for n in range(9)
    ]
    found = align(windows)
    rng.shuffle(windows)
    again = align(windows)
    assert found is not None
    assert again is not None
    assert {**found.to_json(), "outside": set(found.outside)} == {
        **again.to_json(),
        "outside": set(again.outside),
    }


def test_clocks_are_measured_a_few_at_once_and_nobody_waits_for_ever() -> None:
    async def scenario() -> tuple[int, int]:
        turns = PingTurns(at_once=2, patience_s=30)
        now = most = 0

        async def measure() -> None:
            nonlocal now, most
            async with turns.turn():
                now += 1
                most = max(most, now)
                await asyncio.sleep(0)
                now -= 1

        await asyncio.gather(*(measure() for _ in range(10)))
        impatient = PingTurns(at_once=1, patience_s=0.01)
        passed = 0
        async with impatient.turn(), impatient.turn():
            passed += 1
        # A turn that was never had is not given back.
        async with impatient.turn(), impatient.turn():
            passed += 1
        return most, passed

    assert asyncio.run(scenario()) == (2, 2)
