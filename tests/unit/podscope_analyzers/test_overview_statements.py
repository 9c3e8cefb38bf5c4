import re
from collections.abc import Callable

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers import XSpace
from podscope_analyzers.hlo.programs import read_programs
from podscope_analyzers.op_metrics.run_environment import host_run_environment
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.prepare import prepare
from podscope_analyzers.result import Scope


@pytest.mark.parametrize("device", ["tpu-v5e", "cpu"])
def test_the_statement_on_input_says_what_the_breakdown_shows(device: str) -> None:
    pod = Pod(device=device, hosts=2, steps=8, seed=4, input_bound=0.3)
    hosts = [analyze_host(build_xspace(pod, host), f"h{host}") for host in range(2)]
    found = run_tool("overview_page", hosts, Scope(["h0", "h1"])).result
    (share,) = [one["ratio"] for one in found["breakdown"] if one["category"] == "input"]
    said = re.search(r"(\d+\.\d)% of the step time", found["bottleneck"]["statement"])
    assert said is not None
    assert float(said[1]) == pytest.approx(100 * share, abs=0.06)


def test_a_counter_that_the_tracer_lacks_is_null_and_one_that_it_has_is_a_ratio() -> None:
    hosts = [analyze_host(build_xspace(Pod(device="tpu-v5e", hosts=1, steps=4, seed=1), 0), "h0")]
    found = run_tool("overview_page", hosts, Scope(["h0"])).result["utilization"]
    assert 0 < found["mxu_utilization_ratio"] < 1
    assert found["hbm_utilization_ratio"] is None


def test_a_utilization_that_was_measured_as_0_is_0(make_space: Callable[..., XSpace]) -> None:
    space = make_space(
        {"/host:CPU": {"main": [("work", 10, 10)]}},
        plane_stats={"/host:CPU": {"hbm_utilization_percent": 0.0}},
    )
    prepared = prepare(space)
    environment = host_run_environment(prepared, read_programs(prepared))
    assert environment.hbm_utilization_ratio == 0
    assert environment.mxu_utilization_ratio is None
