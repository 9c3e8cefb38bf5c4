"""Every rule on a capture where it applies, and on one next to it where it does not."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.advice import RULES
from podscope_analyzers.advice.engine import judge
from podscope_analyzers.advice.metrics import Metrics, StepMetrics
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Advice, MissingHost, Scope
from podscope_protos.v1 import xplane_pb2

US = 1_000_000
Stats = Mapping[str, Any]
Hosts = Sequence[bytes]
Make = Callable[[], Hosts]


class Plane:
    """A plane that numbers its names and stats itself."""

    def __init__(self, space: xplane_pb2.XSpace, name: str, stats: Stats | None = None) -> None:
        self.plane = space.planes.add(name=name, id=len(space.planes))
        self._names: dict[str, int] = {}
        self._stats: dict[str, int] = {}
        for stat, value in (stats or {}).items():
            self._set(self.plane, stat, value)

    def _set(self, owner: Any, name: str, value: object) -> None:
        key = self._stats.setdefault(name, len(self._stats) + 1)
        self.plane.stat_metadata[key].id = key
        self.plane.stat_metadata[key].name = name
        stat = owner.stats.add(metadata_id=key)
        match value:
            case int():
                stat.int64_value = value
            case float():
                stat.double_value = value
            case _:
                stat.str_value = str(value)

    def line(self, name: str) -> Any:
        return self.plane.lines.add(name=name, id=len(self.plane.lines) + 1)

    def event(
        self,
        line: Any,
        name: str,
        begin_us: float,
        duration_us: float,
        stats: Stats | None = None,
        metadata: Stats | None = None,
        display: str = "",
    ) -> None:
        is_new = name not in self._names
        key = self._names.setdefault(name, len(self._names) + 1)
        if is_new:
            about = self.plane.event_metadata[key]
            about.id, about.name, about.display_name = key, name, display
            for stat, value in (metadata or {}).items():
                self._set(about, stat, value)
        event = line.events.add(
            metadata_id=key, offset_ps=round(begin_us * US), duration_ps=round(duration_us * US)
        )
        for stat, value in (stats or {}).items():
            self._set(event, stat, value)


@dataclass(frozen=True)
class Op:
    """An operation of every step, at a time from the step's begin, in microseconds."""

    begin: float
    duration: float
    category: str = "loop fusion"
    text: str = "f = f32[8,128]{1,0} fusion()"
    metadata: Stats = field(default_factory=dict)
    stats: Stats = field(default_factory=dict)


PEAKS: Stats = {
    "device_type_string": "TPU v5 lite",
    "peak_teraflops_per_second": 100.0,
    "peak_hbm_bw_gigabytes_per_second": 1000.0,
}


def tpu(
    ops: Sequence[Op],
    *,
    steps: int = 5,
    period: float = 102,
    length: float = 100,
    host: Sequence[tuple[str, float, float, Stats]] = (),
    host_stats: Stats | None = None,
    sparse_busy: float | None = None,
    extra: Sequence[tuple[str, float, float]] = (),
) -> bytes:
    """A TPU with one core whose steps begin every ``period`` and last ``length`` microseconds.

    Args:
        ops: Of every step.
        steps: How many.
        period: From begin to begin.
        length: Of a step.
        host: Events of the host by name, begin, duration and stats, from the capture's begin.
        host_stats: Stats of the host's plane.
        sparse_busy: For how long of each step a SparseCore works; None without one.
        extra: Events on a line of their own on the TPU, in every step.
    """
    space = xplane_pb2.XSpace(hostnames=["vm"])
    core = Plane(space, "/device:TPU:0", PEAKS)
    marks, line = core.line("Steps"), core.line("XLA Ops")
    own = core.line("Other events") if extra else None
    for step in range(steps):
        begin = step * period
        # Cores of two kinds are matched by the groups that the file has, or else by their events.
        grouped = {} if sparse_busy is None else {"group_id": step}
        core.event(marks, str(step), begin, length, grouped)
        for number, op in enumerate(ops, start=1):
            known = {"hlo_category": op.category, "program_id": 1, "symbol_id": number}
            core.event(
                line,
                f"%op{number} {op.text}",
                begin + op.begin,
                op.duration,
                {**op.stats, **grouped},
                {**known, **op.metadata},
                f"op{number}",
            )
        for name, at, duration in extra:
            core.event(
                own, name, begin + at, duration, {"device_duration_ps": round(duration * US)}
            )
    if sparse_busy is not None:
        sparse = Plane(space, "/device:TPU:0 SparseCore 0")
        marks, line = sparse.line("Sparse Core Steps"), sparse.line("Sparse Core Ops")
        for step in range(steps):
            grouped = {"group_id": step}
            sparse.event(marks, str(step), step * period, length, grouped)
            sparse.event(
                line,
                "lookup",
                step * period,
                sparse_busy,
                grouped,
                {"hlo_category": "sparse", "program_id": 1, "symbol_id": 99},
            )
    known = {} if sparse_busy is None else {"group_id": 0}
    cpu = Plane(space, "/host:CPU", {**(host_stats or {}), **known})
    if host:
        threads = cpu.line("main")
        for name, at, duration, stats in sorted(host, key=lambda event: (event[1], -event[2])):
            cpu.event(threads, name, at, duration, stats)
    return space.SerializeToString()


def cpu(
    inside: Sequence[tuple[str, float, float, Stats]], *, steps: int = 5, fill: bool = True
) -> bytes:
    """A host without accelerator: steps of 100 us, one every 200, each with the same events.

    Args:
        inside: Name, begin in the step, duration, stats.
        steps: How many.
        fill: Whether ``work`` takes the rest of the step, from the end of the last event on.
    """
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = Plane(space, "/host:CPU")
    line = plane.line("python")
    end = max((begin + duration for _, begin, duration, _ in inside), default=0)
    rest: list[tuple[str, float, float, Stats]] = (
        [("work", end, 100 - end, {})] if fill and end < 100 else []
    )
    for step in range(steps):
        plane.event(line, "train", 200 * step, 100, {"step_num": step, "_r": 1})
        for name, begin, duration, stats in [*inside, *rest]:
            plane.event(line, name, 200 * step + begin, duration, stats)
    return space.SerializeToString()


def allocations(free: int, *, fragmentation: float = 0.0) -> list[tuple[str, float, float, Stats]]:
    """One allocation that leaves that many of 1,000 bytes free."""
    stats = {
        "allocator_name": "hbm",
        "bytes_allocated": 1000 - free,
        "bytes_available": free,
        "allocation_bytes": 1000 - free,
        "requested_bytes": 1000 - free,
        "addr": 1,
        "fragmentation": fragmentation,
    }
    return [("MemoryAllocation", 10, 0, stats)]


MATRIX = "f = {dtype}[{dims}]{{1,0:T(8,128)}} fusion()"
MODEST: Stats = {"matrix_unit_utilization_percent": 20.0, "hbm_utilization_percent": 20.0}


def advice_on(hosts: Hosts, tool: str = "overview_page", missing: int = 0) -> list[Advice]:
    partials = [analyze_host(host, f"h{index}") for index, host in enumerate(hosts)]
    scope = Scope(
        [partial.host for partial in partials],
        missing_hosts=[MissingHost(f"m{index}", "deadline") for index in range(missing)],
    )
    return list(run_tool(tool, partials, scope).advice)


def codes(found: Sequence[Advice]) -> set[str]:
    return {advice.code for advice in found}


@cache
def simulated(device: str, hosts: int = 1, **options: float) -> tuple[bytes, ...]:
    pod = Pod(device=device, hosts=hosts, steps=6, seed=3, **options)  # type: ignore[arg-type]
    return tuple(build_xspace(pod, host) for host in range(hosts))


def warned(message: str) -> Hosts:
    space = xplane_pb2.XSpace()
    space.ParseFromString(simulated("cpu")[0])
    space.warnings.append(message)
    return [space.SerializeToString()]


def busy(**parts: float) -> list[Op]:
    """Operations of these categories (``_`` for blanks), one after the other."""
    begin, ops = 0.0, []
    for category, duration in parts.items():
        ops.append(Op(begin, duration, category.replace("_", " ")))
        begin += duration
    return ops


def matrix(dtype: str, dims: str, **metadata: int) -> list[Op]:
    text = MATRIX.format(dtype=dtype, dims=dims)
    return [Op(0, 100, "convolution fusion", text, metadata)]


def gpu_kernels(duration_us: int) -> Hosts:
    """A simulated GPU host whose kernels last no longer than that."""
    space = xplane_pb2.XSpace()
    space.ParseFromString(simulated("gpu-h100")[0])
    for plane in space.planes:
        for line in plane.lines if plane.name.startswith("/device:GPU") else ():
            for event in line.events:
                event.duration_ps = min(event.duration_ps, duration_us * 1_000_000)
    return [space.SerializeToString()]


def function_calls(mode: str) -> Hosts:
    """A function that is called in every step; its first call traces."""
    host = [("step_fn", 10.0, 80.0, {"tf_function_call": mode})]
    return [cpu([*host])]


def eager(device_share: int) -> Hosts:
    """A grouped GPU capture: that many of 100 us of kernels in a step were launched eagerly."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    for plane_name in ("/device:GPU:0", "/host:CPU"):
        plane = Plane(space, plane_name, {"clock_rate": 1000} if "GPU" in plane_name else None)
        line = plane.line("Stream #1(Compute)" if "GPU" in plane_name else "main")
        for step in range(4):
            at = 0
            for is_eager, share in ((1, device_share), (0, 100 - device_share)):
                stats: dict[str, Any] = {
                    "group_id": step,
                    "is_eager": is_eager,
                    "correlation_id": 2 * step + 1,
                }
                stats["tf_op"] = f"op{is_eager}:MatMul"
                name = f"kernel{is_eager}" if "GPU" in plane_name else f"op{is_eager}:MatMul"
                plane.event(line, name, 100 * step + at, share, stats)
                at += share
    return [space.SerializeToString()]


CASES: dict[str, tuple[Make, Make]] = {
    "events_dropped": (
        lambda: warned("12 events dropped because of the limit"),
        lambda: warned("0 events dropped because of the limit"),
    ),
    "straggler": (
        lambda: simulated("tpu-v5e", 3, slow_host=1),
        lambda: simulated("tpu-v5e", 3),
    ),
    "throttling": (
        lambda: [cpu([("GPU power throttling", 10, 5, {})])],
        lambda: [cpu([("GPU power", 10, 5, {})])],
    ),
    "slow_clock": (
        lambda: [tpu([Op(0, 90, stats={"Time Scale Multiplier": 0.9})])],
        lambda: [tpu([Op(0, 90, stats={"Time Scale Multiplier": 0.99})])],
    ),
    "input_bound": (lambda: [tpu(busy(infeed=6, fusion=94))], lambda: [tpu(busy(infeed=4))]),
    "input_enqueue": (
        lambda: [cpu([("next_batch", 0, 80, {}), ("i/q:InfeedEnqueueTuple", 5, 70, {})])],
        lambda: [cpu([("next_batch", 0, 80, {}), ("i/q:InfeedEnqueueTuple", 5, 50, {})])],
    ),
    "input_processing": (
        lambda: [cpu([("next_batch", 0, 40, {}), ("Iterator::Map", 10, 20, {})])],
        lambda: [cpu([("Iterator::Map", 10, 5, {})])],
    ),
    "input_unobserved": (
        lambda: [tpu(busy(infeed=40, fusion=60))],
        lambda: [tpu(busy(infeed=40, fusion=60), host=[("Iterator::Map", 5, 20, {})])],
    ),
    "output_bound": (lambda: [tpu(busy(outfeed=6, fusion=94))], lambda: [tpu(busy(outfeed=4))]),
    "communication_bound": (
        lambda: [tpu([Op(0, 84), Op(84, 16, "all-gather")])],
        lambda: [tpu([Op(0, 86), Op(86, 14, "all-gather")])],
    ),
    "host_bound": (lambda: [tpu(busy(fusion=89))], lambda: [tpu(busy(fusion=91))]),
    "unaccounted_time": (
        lambda: [cpu([("work", 0, 96, {})], fill=False)],
        lambda: [cpu([("work", 0, 98, {})], fill=False)],
    ),
    "idle_between_steps": (
        lambda: [tpu(busy(fusion=100), period=106)],
        lambda: [tpu(busy(fusion=100), period=104)],
    ),
    "short_kernels": (lambda: gpu_kernels(5), lambda: gpu_kernels(1000)),
    "recompilation": (
        lambda: [cpu([("backend_compile", 0, 5, {})])],
        lambda: [cpu([("compile_report", 0, 5, {})])],
    ),
    "function_retracing": (
        lambda: function_calls("traced-xla"),
        lambda: function_calls("notTraced-xla"),
    ),
    "memory_near_limit": (
        lambda: [tpu(busy(fusion=100), host=allocations(free=90))],
        lambda: [tpu(busy(fusion=100), host=allocations(free=110))],
    ),
    "memory_fragmentation": (
        lambda: [tpu(busy(fusion=100), host=allocations(free=400, fragmentation=0.3))],
        lambda: [tpu(busy(fusion=100), host=allocations(free=600, fragmentation=0.3))],
    ),
    # 100 us: 1e8 FLOP are 1 TFLOP/s of 100, 5e7 bytes 500 GB/s of 1,000.
    "memory_bound_ops": (
        lambda: [tpu(matrix("bf16", "512,512", flops=10**8, bytes_accessed=5 * 10**7))],
        lambda: [tpu(matrix("bf16", "512,512", flops=10**8, bytes_accessed=10**5))],
    ),
    "low_flops": (
        lambda: [tpu(matrix("bf16", "512,512", flops=10**9, bytes_accessed=10**5))],
        lambda: [tpu(matrix("bf16", "512,512", flops=4 * 10**9, bytes_accessed=10**5))],
    ),
    # 512 x 100 fill 100 of 128 lanes; 20 x 128 fill 20 of 24 rows; 512 x 640 fill whole tiles.
    "padding": (
        lambda: [tpu(matrix("bf16", "512,100"))],
        lambda: [tpu(matrix("bf16", "512,640"))],
    ),
    "few_16bit": (
        lambda: [tpu(matrix("f32", "512,640"))],
        lambda: [tpu(matrix("bf16", "512,640"))],
    ),
    "device_eager": (lambda: eager(11), lambda: eager(9)),
    "host_eager": (lambda: eager(11), lambda: eager(9)),
    "outside_compilation": (
        lambda: [tpu([Op(0, 94), Op(94, 6, metadata={"tf_op": "s:XlaSendToHost"})])],
        lambda: [tpu([Op(0, 96), Op(96, 4, metadata={"tf_op": "s:XlaSendToHost"})])],
    ),
    "data_shuffling": (
        lambda: [tpu(busy(gather=20, sort=11, fusion=69))],
        lambda: [tpu(busy(gather=20, sort=9, fusion=71))],
    ),
    "barrier_cores": (
        lambda: [tpu(busy(fusion=100), extra=[("barrier-cores.1", 50, 11)])],
        lambda: [tpu(busy(fusion=100), extra=[("barrier-cores.1", 50, 9)])],
    ),
    "debug_print": (
        lambda: [tpu(busy(fusion=100), extra=[("debug_print.2", 50, 6)])],
        lambda: [tpu(busy(fusion=100), extra=[("debug_print.2", 50, 4)])],
    ),
    "memory_bandwidth_bound": (
        lambda: [
            tpu(busy(fusion=100), host_stats={**MODEST, "hbm_utilization_percent": 71.0}),
        ],
        lambda: [
            tpu(busy(fusion=100), host_stats={**MODEST, "hbm_utilization_percent": 69.0}),
        ],
    ),
    "compute_bound": (
        lambda: [
            tpu(busy(fusion=100), host_stats={**MODEST, "matrix_unit_utilization_percent": 71.0}),
        ],
        lambda: [
            tpu(busy(fusion=100), host_stats={"matrix_unit_utilization_percent": 71.0}),
        ],
    ),
    "tensor_core_idle": (
        lambda: [tpu(busy(fusion=88), host_stats=MODEST)],
        lambda: [tpu(busy(fusion=88), host_stats={**MODEST, "hbm_utilization_percent": 51.0})],
    ),
    "sparse_core_bound": (
        lambda: [tpu(busy(fusion=100), host_stats=MODEST, sparse_busy=20)],
        lambda: [tpu(busy(fusion=100), host_stats=MODEST, sparse_busy=5)],
    ),
    "async_wait": (
        lambda: [tpu([Op(0, 85), Op(85, 15, "async-done")], host=allocations(free=600))],
        lambda: [tpu([Op(0, 85), Op(85, 15, "async-done")], host=allocations(free=400))],
    ),
}
# The reference's step database has no launches; a host that is missing is no part of a capture.
ELSEWHERE = {"kernel_launch_bound", "hosts_missing", "slow_core"}


def test_every_rule_has_its_cases() -> None:
    assert set(CASES) | ELSEWHERE == {rule.id for rule in RULES}


def test_rules_are_shown_by_tools_that_there_are() -> None:
    assert {tool for rule in RULES for tool in rule.tools} <= set(TOOLS)


@pytest.mark.parametrize(("skipped", "applies"), [(20, True), (5, False), (0, False)])
def test_clocks_that_were_skipped_count_beside_the_cycles(skipped: int, applies: bool) -> None:
    counters = {"CYCLES": 1000, "Ext Throttle Clocks Skipped": skipped}
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = Plane(space, "/device:TPU:0")
    line = plane.line("_counters_")
    for name, value in counters.items():
        plane.event(line, name, 0, 1, {"counter_value": value})
    assert ("throttling" in codes(advice_on([space.SerializeToString()]))) == applies


@pytest.mark.parametrize("code", CASES)
def test_a_rule_applies_where_its_threshold_is_reached(code: str) -> None:
    found = {advice.code: advice for advice in advice_on(CASES[code][0]())}
    assert code in found
    advice = found[code]
    assert advice.link == f"docs/reference/advice.md#{code}"
    assert advice.evidence
    compared = [one for one in advice.evidence if one.threshold is not None]
    assert compared or code == "async_wait"


@pytest.mark.parametrize("code", CASES)
def test_a_rule_is_silent_below_its_threshold_or_without_its_evidence(code: str) -> None:
    assert code not in codes(advice_on(CASES[code][1]()))


def test_a_missing_host_is_advised_on_and_none_is_not() -> None:
    assert "hosts_missing" in codes(advice_on(simulated("cpu"), missing=1))
    assert "hosts_missing" not in codes(advice_on(simulated("cpu")))


def test_hosts_that_meet_in_no_collective_are_not_said_to_wait() -> None:
    alone = [cpu([("next_batch", 0, 60 if host == 1 else 10, {})]) for host in range(3)]
    # Each has its own work for the whole step: only a longer step tells the slow one.
    longer = xplane_pb2.XSpace()
    longer.ParseFromString(alone[1])
    for event in longer.planes[0].lines[0].events:
        event.duration_ps = round(event.duration_ps * 1.5)
    found = advice_on([alone[0], longer.SerializeToString(), alone[2]])
    (late,) = [advice for advice in found if advice.code == "straggler"]
    assert late.message.startswith("h1 is slower: it is 0.05 ms late in a typical step (50% of it)")
    (waited,) = [
        a for a in advice_on(simulated("tpu-v5e", 3, slow_host=1)) if a.code == "straggler"
    ]
    assert waited.message.startswith("The other hosts wait for h1: ")


def late_core(wait_us: int) -> bytes:
    """A TPU of four cores in lock step: one of them waits that long for the others, they 50 us."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    for core, wait in enumerate((50, 50, wait_us, 50)):
        ops = [Op(0, 100 - wait), Op(100 - wait, wait, "all-reduce")]
        one = xplane_pb2.XSpace()
        one.ParseFromString(tpu(ops))
        one.planes[0].name, one.planes[0].id = f"/device:TPU:{core}", core
        space.planes.append(one.planes[0])
    return space.SerializeToString()


def test_a_core_that_the_others_wait_for_is_named_and_an_even_one_is_not() -> None:
    (advice,) = [a for a in advice_on([late_core(10)]) if a.code == "slow_core"]
    assert advice.message.startswith("Core 2 of h0: it takes 0.04 ms of a step (40% of it)")
    assert "slow_core" not in codes(advice_on([late_core(46)]))


@pytest.mark.parametrize(
    ("category", "applies"),
    [
        *((name, True) for name in ("megacore fusion", "recv-done", "send", "reduce-scatter")),
        *((name, False) for name in ("async-done", "host recv-done", "copy")),
    ],
)
def test_what_cores_exchange_is_communication(category: str, applies: bool) -> None:
    found = advice_on([tpu([Op(0, 84), Op(84, 16, category)])])
    assert ("communication_bound" in codes(found)) == applies


@pytest.mark.parametrize(
    ("shares", "named"),
    [
        # Deviations of the median's: 0.1 / 0.01 * 0.6745 = 6.7, and 0.05 / 0.01 * 0.6745 = 3.4.
        ((20, 21, 20, 19, 10), "That of h4 stands out: 10.0%."),
        ((20, 21, 20, 19, 15), ""),
        # Equal but for one; a difference below half a percent of the step is none.
        ((20, 20, 12), "That of h2 stands out: 12.0%."),
        ((20, 20, 20.4), ""),
        ((20, 10), ""),
        ((20, 21, 20, 19, 20, 10, 35), "That of h6, and of 1 more stands out: 35.0%."),
    ],
)
def test_hosts_whose_barriers_differ_are_named(shares: Sequence[float], named: str) -> None:
    hosts = [
        tpu(busy(fusion=100), extra=[("barrier-cores.1", 50, float(share))]) for share in shares
    ]
    (found,) = [advice for advice in advice_on(hosts) if advice.code == "barrier_cores"]
    assert found.message.partition(" of the step.")[2].strip() == named
    evidence = {one.name: one.value for one in found.evidence}
    assert evidence["outlying_hosts"] == (2 if "more" in named else len(named) > 0)


@pytest.mark.parametrize(("share", "severity"), [(0.16, "high"), (0.04, "medium"), (0.02, None)])
def test_kernel_launches_are_judged_by_their_share(share: float, severity: str | None) -> None:
    steps = StepMetrics(True, False, 1.0, 5, shares={"kernel_launch": share})
    found = {a.code: a.severity for a in judge(Metrics(steps=steps))}
    assert found.get("kernel_launch_bound") == severity


def test_a_share_of_more_than_all_there_is_was_not_measured() -> None:
    damaged = tpu(busy(fusion=100), extra=[("barrier-cores.1", 50, 10_000_000)])
    assert "barrier_cores" not in [advice.code for advice in advice_on([damaged])]


def test_a_capture_with_nothing_in_it_gets_no_advice() -> None:
    assert advice_on([xplane_pb2.XSpace(hostnames=["vm"]).SerializeToString()]) == []


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "overview_page"])
def test_a_tool_shows_the_overviews_advice_that_concerns_it(tool: str) -> None:
    hosts = CASES["input_processing"][0]()
    everything = advice_on(hosts)
    shown = {rule.id for rule in RULES if tool in rule.tools}
    assert advice_on(hosts, tool) == [advice for advice in everything if advice.code in shown]


def test_the_most_severe_comes_first_and_evidence_has_the_numbers() -> None:
    found = advice_on([tpu(busy(infeed=30, outfeed=6, fusion=64))])
    assert [a.code for a in found][:1] == ["input_bound"]
    assert [a.severity for a in found] == sorted(
        (a.severity for a in found), key=["high", "medium", "low"].index
    )
    evidence = found[0].evidence[0]
    assert (evidence.name, evidence.unit, evidence.threshold) == ("input_ratio", "ratio", 0.2)
    assert evidence.value == pytest.approx(0.3)
    assert found[0].message.startswith("30.0% of the step time")


def test_padding_names_the_operation_and_its_shape() -> None:
    (advice,) = [a for a in advice_on([tpu(matrix("bf16", "20,100"))]) if a.code == "padding"]
    # 20 of 24 rows and 100 of 128 lanes are used.
    assert advice.evidence[0].value == pytest.approx(1 - 20 / 24 * 100 / 128)
    assert "'op1': 35% of its padded bf16[20,100]" in advice.message


@pytest.mark.parametrize("code", ["memory_near_limit", "function_retracing", "debug_print"])
def test_stored_hosts_give_the_same_advice(code: str) -> None:
    partials = [analyze_host(host, "h0") for host in CASES[code][0]()]
    stored = [type(partial).from_bytes(partial.to_bytes()) for partial in partials]
    fresh, again = (run_tool("overview_page", one, Scope(["h0"])) for one in (partials, stored))
    assert code in codes(fresh.advice)
    assert again.advice == fresh.advice
