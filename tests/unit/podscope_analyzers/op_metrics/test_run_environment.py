from collections.abc import Callable
from typing import Any

import pytest

from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.run_environment import host_run_environment
from podscope_analyzers.prepared import PreparedSpace
from podscope_analyzers.run_environment import RunEnvironment

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]


def _environment(make_planes: MakePlanes, *planes: dict[str, Any]) -> RunEnvironment:
    return host_run_environment(make_planes(list(planes)), Programs({}))


def _host(*names: str) -> dict[str, Any]:
    return {"name": "/host:CPU", "lines": {"t": [(name, 0, 100) for name in names]}}


def _core(number: int, *names: str) -> dict[str, Any]:
    runs = [(name, at * 10**7, 2_000_000) for at, name in enumerate(names)]
    return {"name": f"/device:TPU:{number}", "lines": {"XLA Modules": runs}}


@pytest.mark.case("K7")
def test_decode_steps_are_runs_of_the_generating_program_on_a_serving_host(
    make_planes: MakePlanes,
) -> None:
    found = _environment(make_planes, _host("WizServable"), _core(0, "jit_generate"))
    assert (found.decode_step_count, found.mean_decode_step_ps) == (1, 2_000_000)
    for host, core in (
        (_host("WizServable"), _core(0, "jit_prefill", "jit_generate_all")),
        (_host("Other"), _core(0, "jit_generate")),
        (_host("Other"), _core(0, "jit_prefill")),
    ):
        found = _environment(make_planes, host, core)
        assert (found.decode_step_count, found.mean_decode_step_ps) == (0, None)
    # Named, but never done.
    named: dict[str, Any] = {**_host("Other"), "metadata": {"WizServable": {}}}
    assert not _environment(make_planes, named, _core(0, "jit_generate")).decode_step_count


def test_a_step_on_several_cores_is_one(make_planes: MakePlanes) -> None:
    runs = ["jit_generate(17)", "jit_prefill(3)", "jit_generate(18)"]
    cores = [_core(0, "jit_prefill(3)"), _core(1, *runs), _core(2, *runs)]
    found = _environment(make_planes, _host("WizServable"), *cores)
    assert (found.decode_step_count, found.decode_time_ps) == (2, 4_000_000)


@pytest.mark.case("K6")
def test_decode_steps_of_hosts_add_and_their_mean_is_over_all_of_them() -> None:
    hosts = [_told(decode_step_count=10, decode_time_ps=1000), _told(), _told(**_TWENTY)]
    combined = RunEnvironment.combine(hosts)
    assert combined.decode_step_count == 30
    assert combined.mean_decode_step_ps == pytest.approx(166.6667, abs=1e-4)
    assert RunEnvironment.from_state(combined.to_state()) == combined


@pytest.mark.case("K2")
def test_the_profile_is_as_long_as_the_longest_host_s(make_planes: MakePlanes) -> None:
    for lengths in ((100, 0), (0, 100)):
        hosts = [_told(profile_duration_ps=length) for length in lengths]
        assert RunEnvironment.combine(hosts).profile_duration_ps == 100
    start = 1_790_000_000_000_000_000
    for stop, expected in ((start + 5, 5000), (start - 5, 0), (2**64 - 1, (1 << 52) * 1000)):
        stats = {"profile_start_time": ("uint", start), "profile_stop_time": ("uint", stop)}
        plane = {"name": "Task Environment", "stats": stats}
        assert _environment(make_planes, plane).profile_duration_ps == expected
    assert _environment(make_planes, _host("x")).profile_duration_ps == 0


_TWENTY = {"decode_step_count": 20, "decode_time_ps": 4000}


def _told(**told: int) -> RunEnvironment:
    return RunEnvironment("TPU v4", "TPU", ("h",), 1, 4, is_training=False, **told)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        (("", ""), ""),
        (("CPU", ""), ""),
        (("", "CPU"), "CPU"),
        (("", "TPU v4"), "TPU v4"),
        (("TPU v4", "CPU"), "TPU v4"),
        (("CPU", "CPU"), "CPU"),
    ],
)
def test_hosts_whose_tpus_have_no_type_are_no_cpus(kinds: tuple[str, str], told: str) -> None:
    # What the released XProf says of two hosts with, or without, device_type_string.
    parts = [
        RunEnvironment(
            kind, "CPU_ONLY" if kind == "CPU" else "TPU", (f"h{at}",), 1, 0, is_training=False
        )
        for at, kind in enumerate(kinds)
    ]
    assert RunEnvironment.combine(parts).device_type == told
