"""Hosts of a capture come in any order, some late: the result is that of all at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podscope_agent.simulator import Pod, write_pod
from podscope_analyzers.gpu_kernels import KernelDatabase
from podscope_analyzers.op_metrics.database import TEXT_COLUMNS, OpDatabase
from podscope_analyzers.partials import PARTS, HostPartial
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope

PODS = {
    "cpu": Pod("cpu", hosts=4, steps=4, slow_host=2, input_bound=0.3),
    "tpu-v5e": Pod("tpu-v5e", hosts=3, steps=3, slow_host=1),
    "gpu-h100": Pod("gpu-h100", hosts=3, steps=3),
}
MULTI_HOST = sorted(name for name, tool in TOOLS.items() if tool.scope != "host")
Hosts = Mapping[str, Sequence[HostPartial]]
_settings = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """The partials of every pod, as they are read back from where they are kept."""
    found = {}
    for device, pod in PODS.items():
        folder = tmp_path_factory.mktemp(device)
        for _ in write_pod(pod, folder):
            pass
        found[device] = [
            _kept(analyze_host(path.read_bytes(), path.name.removesuffix(".xplane.pb")))
            for path in sorted(folder.rglob("*.xplane.pb"))
        ]
    # A capture of unlike hosts.
    found["mixed"] = [partials[0] for partials in found.values()]
    return found


def _kept(partial: HostPartial) -> HostPartial:
    read = HostPartial.from_bytes(partial.to_bytes())
    for part in PARTS:
        read = read.with_part(part, partial.part_to_bytes(part))
    return read


def _result(tool: str, partials: Sequence[HostPartial]) -> Any:
    scope = Scope(sorted(partial.host for partial in partials))
    return run_tool(tool, partials, scope).to_json()


@pytest.mark.parametrize("tool", MULTI_HOST)
@pytest.mark.parametrize("device", [*PODS, "mixed"])
def test_hosts_in_any_order_give_the_same_result(hosts: Hosts, device: str, tool: str) -> None:
    partials = hosts[device]
    expected = _result(tool, partials)

    @_settings
    @given(st.permutations(partials))
    def check(order: list[HostPartial]) -> None:
        assert _result(tool, order) == expected

    check()


@pytest.mark.parametrize("tool", MULTI_HOST)
def test_a_late_host_gives_what_all_hosts_together_give(hosts: Hosts, tool: str) -> None:
    """Each arrival adds a stored partial to those that are there: nothing is decoded again."""
    partials = hosts["cpu"]
    expected = [
        _result(tool, [p for p in partials if p in arrived])
        for arrived in (partials[:2], partials[:3], partials)
    ]
    early = _result(tool, partials[1::-1])
    later = _result(tool, [partials[2], *partials[:2]])
    last = _result(tool, [partials[3], partials[1], partials[2], partials[0]])
    assert [early, later, last] == expected


def _state(database: OpDatabase) -> tuple[Any, ...]:
    columns = {
        name: database.text_column(name) if name in TEXT_COLUMNS else database.column(name).tolist()
        for name in database.columns
    }
    totals = (database.total_time_ps, database.total_op_time_ps, database.busy_time_ps)
    return columns, totals


@pytest.mark.parametrize("device", [*PODS, "mixed"])
def test_operations_kernels_and_peaks_add_up_in_any_grouping(hosts: Hosts, device: str) -> None:
    partials = hosts[device]
    for at in range(1, len(partials)):
        parts = (partials[:at], partials[at:])
        for kind in ("device_ops", "host_ops"):
            whole = OpDatabase.combine(getattr(p, kind) for p in partials)
            halves = [OpDatabase.combine(getattr(p, kind) for p in part) for part in parts]
            assert _state(OpDatabase.combine(halves)) == _state(whole)
        kernels = [KernelDatabase.combine(p.kernels for p in part) for part in parts]
        whole_kernels = KernelDatabase.combine(p.kernels for p in partials)
        assert KernelDatabase.combine(kernels).kernels == whole_kernels.kernels
        peaks = [PerfEnv.combine(p.perf_env for p in part) for part in parts]
        assert PerfEnv.combine(peaks) == PerfEnv.combine(p.perf_env for p in partials)
