"""Who arrives late at collectives, by what each waited in them."""

from dataclasses import replace

import numpy as np
import pytest

from podscope_analyzers import arrivals
from podscope_analyzers.arrivals import Arrivals, arrivals_of, find_meetings
from podscope_analyzers.clocks import HostClock, Shift, shifts
from podscope_analyzers.steps.database import CORES_PER_HOST, Collectives, StepDatabase

MS = 1_000_000_000
Waits = list[tuple[int, int, int, float, float]]


def _steps(waits: Waits, hosts: int, cores: int = 1) -> StepDatabase:
    """Steps with these collectives: step, core of the capture, id, begin and wait in ms."""
    count = max(step for step, *_ in waits) + 1
    step, host, core = (
        axis.reshape(-1) for axis in np.indices((count, hosts, cores), dtype=np.int64)
    )
    zeros = np.zeros(len(step), np.int64)
    columns = np.array([[s, c, i] for s, c, i, _, _ in waits], np.int64).T
    begin = np.array([b for *_, b, _ in waits]) * MS
    wait = np.array([w for *_, w in waits]) * MS
    return replace(
        StepDatabase.empty("tpu", has_device=True),
        step_numbers=np.arange(count),
        row_step=step,
        core_id=host * CORES_PER_HOST + core,
        host_index=host,
        begin_ps=zeros,
        duration_ps=zeros + 1,
        collectives=Collectives(
            step=columns[0],
            core_id=columns[1],
            id=columns[2],
            begin_ps=begin.astype(np.int64),
            end_ps=(begin + wait).astype(np.int64),
            size_bytes=np.zeros(len(waits), np.int64),
        ),
    )


def host_arrivals(
    steps: StepDatabase, shift_of: dict[int, Shift] | None = None
) -> dict[int, Arrivals]:
    met = find_meetings(steps, shift_of or {})
    return {} if met is None else arrivals_of(met)


def test_who_waits_least_arrived_last_whatever_the_clocks_say() -> None:
    # Host 1's clock is an hour ahead; the others wait 5 and 6 ms for it, it waits 1 ms.
    waits: Waits = []
    for step in range(3):
        waits += [(step, 0, 7, 10.0, 5.0), (step, 1000, 7, 3.6e6, 1.0), (step, 2000, 7, 9.0, 6.0)]
    found = host_arrivals(_steps(waits, hosts=3))
    assert [found[host].lateness_ps / MS for host in range(3)] == pytest.approx([-1.5, 4.5, -3])
    assert [(found[host].meetings, found[host].last) for host in range(3)] == [
        (3, 0),
        (3, 3),
        (3, 0),
    ]


def test_an_id_that_repeats_in_a_step_is_matched_by_its_order() -> None:
    waits: Waits = []
    for host, first, second in ((0, 1.0, 8.0), (1, 3.0, 2.0)):
        waits += [(0, 1000 * host, 7, 20.0, second), (0, 1000 * host, 7, 10.0, first)]
    found = host_arrivals(_steps(waits, hosts=2))
    # At the first host 0 is 2 ms later than the other, at the second host 1 is 6 ms.
    assert [found[host].lateness_ps / MS for host in (0, 1)] == pytest.approx([2, 6])
    assert [found[host].last for host in (0, 1)] == [1, 1]


def test_of_a_hosts_cores_the_last_to_arrive_counts() -> None:
    waits: Waits = [(0, 0, 7, 0.0, 9.0), (0, 1, 7, 0.0, 2.0), (0, 1000, 7, 0.0, 6.0)]
    waits += [(0, 1001, 7, 0.0, 7.0)]
    found = host_arrivals(_steps(waits, hosts=2, cores=2))
    assert [found[host].lateness_ps / MS for host in (0, 1)] == pytest.approx([4, -4])


def test_a_collective_without_an_id_or_a_partner_says_nothing() -> None:
    assert host_arrivals(_steps([(0, 0, 0, 0.0, 1.0), (0, 1000, 0, 0.0, 2.0)], hosts=2)) == {}
    assert host_arrivals(_steps([(0, 0, 5, 0.0, 1.0), (0, 1000, 6, 0.0, 2.0)], hosts=2)) == {}


def test_of_more_meetings_than_can_be_compared_one_of_every_few_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: Waits = [
        (step, 1000 * host, identity, 10.0 * identity, 1.0 + step + identity * (1 + host))
        for step in range(4)
        for identity in (1, 2, 3)
        for host in (0, 1)
    ]
    steps = _steps(waits, hosts=2)
    every = find_meetings(steps, {})
    monkeypatch.setattr(arrivals, "MAX_CELLS", 5)
    some = find_meetings(steps, {})
    assert every is not None
    assert some is not None
    assert every.waited_ps.shape == (2, 12)
    assert some.waited_ps.tolist() == every.waited_ps[:, ::5].tolist()
    assert some.late_ps.tolist() == every.late_ps[:, ::5].tolist()
    for name in ("step", "id", "occurrence"):
        assert getattr(some, name).tolist() == getattr(every, name)[::5].tolist()


def _one_by_one(hosts: int, late: int, steps: int = 4) -> Waits:
    """A collective whose members leave one by one, each 3 ms after it came: all wait alike."""
    return [
        (step, 1000 * host, 7, 100.0 * step + (5.0 if host == late else 0.0), 3.0)
        for step in range(steps)
        for host in range(hosts)
    ]


def _apart(waits: Waits, ahead_ms: dict[int, float]) -> Waits:
    """The same, by clocks that are ahead."""
    return [(s, c, i, begin + ahead_ms.get(c // 1000, 0.0), wait) for s, c, i, begin, wait in waits]


def _long_steps(waits: Waits, hosts: int) -> StepDatabase:
    steps = _steps(waits, hosts)
    return replace(steps, duration_ps=np.full(len(steps.row_step), 100 * MS))


def test_corrected_clocks_tell_who_is_late_where_durations_and_raw_clocks_do_not() -> None:
    ahead = {0: 40.0, 1: -12.0, 2: 7.0}
    steps = _long_steps(_apart(_one_by_one(hosts=4, late=2), ahead), hosts=4)
    clocks = {f"h{host}": HostClock(round(1e6 * ahead.get(host, 0.0)), 50_000) for host in range(4)}
    found = shifts(dict.fromkeys(clocks, 10**18), clocks)
    shift_of = {host: found[f"h{host}"] for host in range(4)}
    told = host_arrivals(steps, shift_of)
    assert (told[2].basis, told[2].last, told[2].meetings) == ("clocks", 4, 4)
    assert told[2].lateness_ps / MS == pytest.approx(5)
    # The error of its own clock and of those that it is compared with.
    assert told[2].error_ps == 100_000_000
    assert max(told, key=lambda host: told[host].lateness_ps) == 2
    # All wait alike, so durations name nobody, and raw clocks name the one that is ahead.
    assert {one.lateness_ps for one in host_arrivals(steps).values()} == {0.0}
    raw = host_arrivals(steps, {host: Shift(0, 100_000) for host in range(4)})
    assert max(raw, key=lambda host: raw[host].lateness_ps) == 0


def test_clocks_that_are_no_more_exact_than_the_lateness_are_not_used() -> None:
    steps = _long_steps(_one_by_one(hosts=3, late=1), hosts=3)
    for error_ms, basis in ((0.8, "clocks"), (0.9, "durations")):
        shift_of = {host: Shift(0, round(error_ms * MS)) for host in range(3)}
        assert host_arrivals(steps, shift_of)[1].basis == basis


def test_a_host_without_a_clock_or_half_a_step_away_is_told_by_durations() -> None:
    steps = _long_steps(_apart(_one_by_one(hosts=4, late=1), {3: 60.0}), hosts=4)
    told = host_arrivals(steps, {host: Shift(0, 1000) for host in (1, 2, 3)})
    assert {host: one.basis for host, one in told.items()} == {
        0: "durations",
        1: "clocks",
        2: "clocks",
        3: "durations",
    }


def test_a_clock_that_is_days_away_is_none() -> None:
    clocks = dict.fromkeys(("a", "b", "c"), HostClock(0, 10))
    found = shifts({"a": 10**18, "b": 10**18 + 5, "c": 2 * 10**18}, clocks)
    assert found == {"a": Shift(0, 10_000), "b": Shift(5000, 10_000)}
    assert shifts({"a": None}, clocks) == {}
    assert shifts({"x": 1}, clocks) == {}


def _kernels(waits: Waits, hosts: int) -> StepDatabase:
    """The same on GPUs, where the id is the kind of the kernel."""
    steps = _long_steps(waits, hosts)
    return replace(steps, kind="generic", core_id=1000 * steps.host_index + 1)


def test_kernels_of_a_kind_are_matched_by_their_order() -> None:
    waits: Waits = []
    for step in range(4):
        for at in range(3):
            end = 100.0 * step + 20 * at + 15
            waits += [(step, 0, 1, end - 9, 9.0), (step, 1000, 1, end - 2, 2.0)]
    told = host_arrivals(_kernels(waits, hosts=2))
    assert told[1].lateness_ps / MS == pytest.approx(7)
    assert (told[1].last, told[1].meetings, told[1].is_by_kind) == (12, 12, True)


def test_kernels_that_not_all_devices_run_equally_often_are_not_matched() -> None:
    waits: Waits = [(0, 0, 1, 0.0, 9.0), (0, 1000, 1, 7.0, 2.0), (0, 1000, 1, 20.0, 2.0)]
    assert host_arrivals(_kernels(waits, hosts=2)) == {}


def test_kernels_that_end_whenever_their_host_gets_there_are_no_meetings() -> None:
    waits: Waits = []
    for step in range(6):
        for at in range(3):
            # Each host meets its own devices; one of them falls behind within the step.
            waits += [(step, 0, 1, 100.0 * step + 10 * at, 2.0)]
            waits += [(step, 1000, 1, 100.0 * step + 14 * at * (1 + step % 3), 1.0)]
    assert host_arrivals(_kernels(waits, hosts=2)) == {}
