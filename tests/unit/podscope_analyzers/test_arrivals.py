"""Who arrives late at collectives, by what each waited in them."""

from dataclasses import replace

import numpy as np
import pytest

from podscope_analyzers.arrivals import host_arrivals
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


def test_who_waits_least_arrived_last_whatever_the_clocks_say() -> None:
    # Host 1's clock is an hour ahead; the others wait 5 and 6 ms for it, it waits 1 ms.
    waits: Waits = []
    for step in range(3):
        waits += [(step, 0, 7, 10.0, 5.0), (step, 1000, 7, 3.6e6, 1.0), (step, 2000, 7, 9.0, 6.0)]
    found = host_arrivals(_steps(waits, hosts=3))
    assert [found[host].lateness_ps / MS for host in range(3)] == pytest.approx([0, 4, -1])
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
    # At the first host 0 is 1 ms later than the middle of both, at the second host 1 is 3 ms.
    assert [found[host].lateness_ps / MS for host in (0, 1)] == pytest.approx([1, 3])
    assert [found[host].last for host in (0, 1)] == [1, 1]


def test_of_a_hosts_cores_the_last_to_arrive_counts() -> None:
    waits: Waits = [(0, 0, 7, 0.0, 9.0), (0, 1, 7, 0.0, 2.0), (0, 1000, 7, 0.0, 6.0)]
    waits += [(0, 1001, 7, 0.0, 7.0)]
    found = host_arrivals(_steps(waits, hosts=2, cores=2))
    assert [found[host].lateness_ps / MS for host in (0, 1)] == pytest.approx([2, -2])


def test_a_collective_without_an_id_or_a_partner_says_nothing() -> None:
    assert host_arrivals(_steps([(0, 0, 0, 0.0, 1.0), (0, 1000, 0, 0.0, 2.0)], hosts=2)) == {}
    assert host_arrivals(_steps([(0, 0, 5, 0.0, 1.0), (0, 1000, 6, 0.0, 2.0)], hosts=2)) == {}
