import numpy as np
import pytest
from numpy.typing import NDArray

from podscope_analyzers.lateness import lateness
from podscope_analyzers.stragglers import HostWork, find_stragglers

MS = 1_000_000_000
STEPS = 20


def _host(
    name: str,
    own_ms: NDArray[np.float64],
    *,
    step_ms: float = 40.0,
    part: str = "host",
    extra_ms: float = 0.0,
    phases: dict[str, NDArray[np.float64]] | None = None,
) -> HostWork:
    """A host whose steps all last ``step_ms``; ``extra_ms`` of its own work is in ``part``."""
    own = np.rint(own_ms * MS).astype(np.int64)
    extra = np.full(len(own), round(extra_ms * MS))
    total = np.full(len(own), round(step_ms * MS))
    parts = {
        name: np.zeros(len(own), np.int64) for name in ("compute", "input", "host", "communication")
    }
    parts["host"] = own - extra
    parts[part] = parts[part] + extra
    return HostWork(
        host=name,
        total_ps=total,
        waiting_ps=total - own,
        parts_ps=parts,
        phases_ps={k: np.rint(v * MS).astype(np.int64) for k, v in (phases or {}).items()},
    )


def _noise(seed: int, centre: float, scatter: float = 1.0) -> NDArray[np.float64]:
    return centre + np.random.default_rng(seed).normal(0, scatter, STEPS)


def test_lateness_is_the_own_work_less_the_median_of_the_others() -> None:
    own = np.array([[5.0, np.nan], [7.0, 8.0], [30.0, 9.0]])
    expected = [[5 - 18.5, np.nan], [7 - 17.5, -1.0], [30 - 6.0, 1.0]]
    np.testing.assert_allclose(lateness(own), expected)


@pytest.mark.parametrize("part", ["compute", "input", "communication"])
def test_the_host_with_longer_own_work_is_named_with_its_cause(part: str) -> None:
    hosts = [_host(f"h{i}", _noise(i, 5)) for i in range(4)]
    hosts[2] = _host("h2", _noise(2, 25), part=part, extra_ms=20)
    report = find_stragglers(hosts)
    assert report.verdict == "straggler"
    (late,) = report.stragglers
    assert (late.host, late.cause) == ("h2", part)
    assert late.lateness_ps == pytest.approx(20 * MS, rel=0.1)
    assert late.lateness_ratio == pytest.approx(0.5, rel=0.1)
    assert late.persistence_ratio == 1.0
    assert late.slowest_steps == STEPS
    assert "waits" in late.evidence[-1]


def test_the_annotation_that_takes_longer_is_the_evidence() -> None:
    slow, usual = np.full(STEPS, 21.0), np.full(STEPS, 1.0)
    hosts = [_host(f"h{i}", _noise(i, 5), phases={"load_batch": usual}) for i in range(3)]
    hosts.append(_host("h3", _noise(9, 25), part="input", extra_ms=20, phases={"load_batch": slow}))
    (late,) = find_stragglers(hosts).stragglers
    assert "'load_batch' takes 21.00 ms a step, 1.00 ms on the other hosts" in late.evidence


@pytest.mark.parametrize("seed", range(30))
def test_nobody_is_named_when_the_difference_is_noise(seed: int) -> None:
    hosts = [_host(f"h{i}", _noise(100 * seed + i, 10, scatter=4)) for i in range(4)]
    report = find_stragglers(hosts)
    assert (report.verdict, report.stragglers) == ("even", ())


def test_a_lateness_below_a_twentieth_of_the_step_names_nobody() -> None:
    hosts = [_host(f"h{i}", np.full(STEPS, 5.0)) for i in range(3)]
    hosts.append(_host("h3", np.full(STEPS, 6.9)))
    assert find_stragglers(hosts).verdict == "even"


def test_a_host_that_is_late_in_a_few_steps_only_is_not_named() -> None:
    own = np.full(STEPS, 5.0)
    own[:6] = 30.0
    hosts = [_host(f"h{i}", np.full(STEPS, 5.0)) for i in range(3)]
    report = find_stragglers([*hosts, _host("h3", own)])
    assert report.verdict == "even"
    assert [step.host for step in report.steps[:6] if step] == ["h3"] * 6


def test_two_late_hosts_are_both_named_worst_first() -> None:
    hosts = [_host(f"h{i:02}", _noise(i, 5)) for i in range(14)]
    hosts += [_host("h14", _noise(14, 15)), _host("h15", _noise(15, 20))]
    assert [s.host for s in find_stragglers(hosts).stragglers] == ["h15", "h14"]


def test_a_host_that_misses_steps_can_still_be_named_and_breaks_nothing() -> None:
    hosts = [_host(f"h{i}", _noise(i, 5)) for i in range(4)]
    slow = _host("h2", _noise(2, 25), part="input", extra_ms=20)
    slow.total_ps[5:12] = -1
    hosts[2] = slow
    hosts[0].total_ps[:] = -1
    report = find_stragglers(hosts)
    assert [s.host for s in report.stragglers] == ["h2"]
    assert report.stragglers[0].slowest_steps == STEPS - 7
    assert all(step is not None and step.host != "h2" for step in report.steps[5:12])


def test_the_order_of_the_hosts_does_not_matter() -> None:
    hosts = [_host(f"h{i}", _noise(i, 5 + 3 * i)) for i in range(5)]
    one, other = find_stragglers(hosts), find_stragglers(hosts[::-1])
    assert one.stragglers == other.stragglers
    assert one.steps == other.steps


def test_one_host_is_compared_with_nobody() -> None:
    report = find_stragglers([_host("h0", _noise(1, 5))])
    assert (report.verdict, report.stragglers) == ("one_host", ())
    assert set(report.steps) == {None}


def test_two_steps_are_too_few_for_a_verdict() -> None:
    hosts = [_host(f"h{i}", np.full(2, 5.0 + 20 * i)) for i in range(3)]
    assert find_stragglers(hosts).verdict == "too_few_steps"


def test_waiting_is_a_share_of_all_step_time() -> None:
    hosts = [_host("h0", np.full(STEPS, 10.0)), _host("h1", np.full(STEPS, 30.0))]
    assert find_stragglers(hosts).waiting_ratio == pytest.approx(0.5)


def test_the_evidence_is_the_median_of_the_others_over_the_steps_that_they_have() -> None:
    hosts = [_host(f"h{i}", _noise(i, 5 + i / 10)) for i in range(6)]
    hosts[3] = _host("h3", _noise(3, 25), part="input", extra_ms=20.5)
    rng = np.random.default_rng(5)
    for host in hosts:
        host.total_ps[rng.choice(STEPS, 6, replace=False)] = -1
    (late,) = find_stragglers(hosts).stragglers

    def said(of: str, index: int) -> tuple[float, float]:
        rows = [host.waiting_ps if of == "waiting" else host.parts_ps[of] for host in hosts]
        there = [host.total_ps >= 0 for host in hosts]
        own = np.median(rows[index][there[index]]) / MS
        others = [r[t] for i, (r, t) in enumerate(zip(rows, there, strict=True)) if i != index]
        return float(own), float(np.median(np.concatenate(others))) / MS

    own, others = said("input", 3)
    assert (
        late.evidence[0]
        == f"its input takes {own:.2f} ms a step, {others:.2f} ms on the other hosts"
    )
    own, others = said("waiting", 3)
    assert late.evidence[-1] == (
        f"it waits {own:.2f} ms a step in collectives, the other hosts {others:.2f} ms"
    )


def test_a_late_host_that_changes_halfway_leaves_nobody_named_and_its_cost_told() -> None:
    first, second = np.full(STEPS, 5.0), np.full(STEPS, 5.0)
    first[: STEPS // 2] += 20
    second[STEPS // 2 :] += 20
    hosts = [_host(f"h{i}", np.full(STEPS, 5.0)) for i in range(3)]
    report = find_stragglers([*hosts, _host("h3", first), _host("h4", second)])
    assert (report.verdict, report.stragglers) == ("even", ())
    assert report.slowest_lateness_ps == 20 * MS
    assert report.slowest_lateness_ratio == 0.5


@pytest.mark.parametrize("count", [2, 3])
def test_few_hosts_and_steps_are_seldom_named_by_chance(count: int) -> None:
    rng = np.random.default_rng(11)
    named = 0
    for _ in range(150):
        hosts = []
        for i in range(count):
            own = 20 * (1 + 0.1 * rng.standard_normal(3))
            hosts.append(_host(f"h{i}", own, step_ms=32))
        named += bool(find_stragglers(hosts).stragglers)
    assert named <= 3


def test_a_host_with_fewer_steps_is_late_in_a_share_of_its_own() -> None:
    hosts = [_host(f"h{i}", np.full(STEPS, 5.0)) for i in range(4)]
    slow = _host("h3", np.full(STEPS, 25.0))
    slow.total_ps[: STEPS - 4] = -1
    (late,) = find_stragglers([*hosts[:3], slow]).stragglers
    assert (late.host, late.step_count, late.persistence_ratio) == ("h3", 4, 1.0)
