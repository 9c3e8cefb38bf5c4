"""Small XSpaces with the numbers that the released reference gives for them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from podscope_analyzers.errors import ParameterError, PartialError, UnknownToolError
from podscope_analyzers.partials import PARTS, HostPartial
from podscope_analyzers.pipeline import analyze_host, combine, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope
from podscope_analyzers.run_environment import RunEnvironment
from podscope_analyzers.states import pack_state, unpack_state
from podscope_analyzers.steps import EVENT_TYPES, Collectives, StepDatabase, Transfers
from podscope_protos.v1 import xplane_pb2

US = 1_000_000
NS = 1_000
Stats = Mapping[str, object]


class PlaneBuilder:
    """A plane whose metadata is made as events need it."""

    def __init__(self, space: xplane_pb2.XSpace, name: str, plane_id: int = 0) -> None:
        self.plane = space.planes.add(name=name, id=plane_id)
        self._events: dict[tuple[str, tuple[tuple[str, object], ...]], int] = {}
        self._stats: dict[str, int] = {}

    def _stat_id(self, name: str) -> int:
        key = self._stats.setdefault(name, len(self._stats) + 1)
        self.plane.stat_metadata[key].id = key
        self.plane.stat_metadata[key].name = name
        return key

    def fill(self, owner: Any, stats: Stats) -> None:
        for name, value in stats.items():
            stat = owner.stats.add(metadata_id=self._stat_id(name))
            match value:
                case bytes():
                    stat.bytes_value = value
                case str():
                    stat.str_value = value
                case float():
                    stat.double_value = value
                case int():
                    stat.int64_value = value

    def line(self, name: str, line_id: int = 0) -> xplane_pb2.XLine:
        return self.plane.lines.add(id=line_id, name=name)

    def event(
        self,
        line: xplane_pb2.XLine,
        name: str,
        start: int,
        duration: int,
        stats: Stats | None = None,
        metadata: Stats | None = None,
    ) -> None:
        about = tuple(sorted((metadata or {}).items()))
        key = self._events.setdefault((name, about), len(self._events) + 1)
        entry = self.plane.event_metadata[key]
        if not entry.id:
            entry.id, entry.name = key, name
            self.fill(entry, metadata or {})
        event = line.events.add(metadata_id=key, offset_ps=start, duration_ps=duration)
        self.fill(event, stats or {})


def gpu_host(
    kernels: Sequence[tuple[str, int, int, Stats]], vendor: str | None = "Nvidia", steps: int = 1
) -> bytes:
    """W1's shape: root events `train`, one launch per device event. Times in microseconds."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    host, device = PlaneBuilder(space, "/host:CPU"), PlaneBuilder(space, "/device:GPU:0")
    if vendor:
        device.fill(device.plane, {"device_vendor": vendor})
    threads, stream = host.line("main", 1), device.line("Stream #1", 1)
    for step in range(steps):
        base = step * 2000
        host.event(threads, "train", base * US, 1000 * US, {"_r": 1, "step_num": step + 1})
        for index, (name, begin, end, stats) in enumerate(kernels):
            at = {"correlation_id": step * 100 + index + 1}
            host.event(threads, "launch", (base + begin) * US, US // 2, at)
            device.event(stream, name, (base + begin) * US, (end - begin) * US, {**at, **stats})
    return space.SerializeToString()


K: Stats = {"kernel_details": "regs:16 block:1,1,1 grid:1,1,1 occ_pct:50"}
W1: list[tuple[str, int, int, Stats]] = [
    ("kernelA", 0, 100, K),
    ("MemcpyH2D", 50, 200, {}),
    ("ncclKernel_AllReduce", 150, 300, K),
    ("kernelB", 400, 500, K),
    ("MemcpyD2H", 450, 600, {}),
    ("MemcpyD2D", 590, 620, {}),
]
W2: list[tuple[str, int, int, Stats]] = [
    ("kernelA_fp16_half", 0, 100, {**K, "tf_op": "a/b:MatMul"}),
    ("MemcpyHToD", 50, 200, {"tf_op": "MemcpyHToD"}),
    ("ncclKernel", 150, 300, K),
    ("kernelB", 400, 500, K),
    ("MemcpyDToH", 450, 600, {"tf_op": "MemcpyDToH"}),
    ("MemcpyDToD", 590, 620, {"tf_op": "MemcpyDToD"}),
]


def cells(table: Any) -> list[list[Any]]:
    return [[cell["v"] for cell in row["c"]] for row in table["rows"]]


def numbers(row: list[Any]) -> list[float]:
    """A generic step's columns, tooltip left out."""
    return [*row[1:10], row[11]]


@pytest.mark.case("W1")
def test_kernels_and_copies_of_a_step_are_told_apart_by_their_spelling() -> None:
    partial = analyze_host(gpu_host(W1), "h1")
    tables: Any = run_tool_xprof("input_pipeline_analyzer", [partial])
    (row,) = cells(tables[1])
    assert row[0] == "0"
    assert numbers(row) == pytest.approx([0.42, 0, 0.1, 0, 0, 0, 0, 0, 0.1, 0.62])
    overview: Any = run_tool_xprof("overview_page", [partial])
    assert overview[0]["p"]["device_compute_32bit_percent"] == "100.0%"
    assert cells(overview[0]) == []


def test_copies_that_are_recognised_count_as_copies() -> None:
    partial = analyze_host(gpu_host(W2), "h2")
    tables: Any = run_tool_xprof("input_pipeline_analyzer", [partial])
    (row,) = cells(tables[1])
    assert numbers(row) == pytest.approx([0.2, 0.02, 0.15, 0, 0, 0.05, 0.1, 0, 0.1, 0.62])
    overview: Any = run_tool_xprof("overview_page", [partial])
    properties = overview[0]["p"]
    assert properties["device_compute_16bit_percent"] == "50.0%"
    assert properties["device_compute_32bit_percent"] == "50.0%"
    top = cells(overview[0])
    assert [row[3] for row in top] == ["MemcpyDToH", "MemcpyHToD", "a/b", "MemcpyDToD"]
    assert [row[0] for row in top] == pytest.approx([150 / 430, 150 / 430, 100 / 430, 30 / 430])


@pytest.mark.case("W3")
def test_two_hosts_stand_side_by_side_in_the_pod_viewer_only() -> None:
    partials = [analyze_host(gpu_host(W1), "h1"), analyze_host(gpu_host(W2), "h2")]
    tables: Any = run_tool_xprof("input_pipeline_analyzer", partials)
    assert [numbers(row) for row in cells(tables[1])] == [
        pytest.approx([0.42, 0, 0.1, 0, 0, 0, 0, 0, 0.1, 0.62])
    ]
    pods: Any = run_tool_xprof("pod_viewer", partials)
    (step,) = pods["podStatsSequence"]["podStatsMap"]
    found = {
        core: [record["stepBreakdownUs"][str(i)] for i in range(1, 10)]
        for core, record in step["podStatsPerCore"].items()
    }
    assert found == {
        "1": pytest.approx([420, 0, 100, 0, 0, 0, 0, 0, 100]),
        "1001": pytest.approx([200, 20, 150, 0, 0, 50, 100, 0, 100]),
    }
    assert {r["totalDurationUs"] for r in step["podStatsPerCore"].values()} == {620}
    overview: Any = run_tool_xprof("overview_page", partials)
    environment = overview[2]["p"]
    assert environment["device_core_count"] == "2"
    assert environment["task_count"] == "2 (num tasks per host = 2)"


@pytest.mark.case("W4")
def test_equal_kernels_of_two_hosts_are_not_merged() -> None:
    partials = [analyze_host(gpu_host(W1), name) for name in ("h1", "h2")]
    table: Any = run_tool_xprof("kernel_stats", partials)
    found = [(row[1], row[11]) for row in cells(table)]
    assert found == [
        ("ncclKernel_AllReduce", 150),
        ("ncclKernel_AllReduce", 150),
        ("kernelA", 100),
        ("kernelA", 100),
        ("kernelB", 100),
        ("kernelB", 100),
    ]


@pytest.mark.case("W6")
def test_one_step_prints_the_deviation_of_zeros_as_the_reference_does() -> None:
    tables: Any = run_tool_xprof("input_pipeline_analyzer", [analyze_host(gpu_host(W1), "h")])
    properties = tables[1]["p"]
    assert properties["compile_time_ms_sdv"] == "-nan"
    assert properties["device_compute_time_ms_sdv"] == "0.0"
    two: Any = run_tool_xprof("input_pipeline_analyzer", [analyze_host(gpu_host(W1, steps=2), "h")])
    assert two[1]["p"]["compile_time_ms_sdv"] == "0.0"


def cpu_host(first: int, last: int) -> bytes:
    """Roots `train` of 100 us every 200 us, numbered; step k at the same time on every host."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    host = PlaneBuilder(space, "/host:CPU")
    line = host.line("main", 1)
    for number in range(first, last + 1):
        start = number * 200 * US
        host.event(line, "train", start, 100 * US, {"_r": 1, "step_num": number})
        host.event(line, "work", start + 10 * US, 80 * US)
    return space.SerializeToString()


@pytest.mark.parametrize("count", [1, 2, 5, 6, 9])
def test_the_first_and_last_of_more_than_five_steps_are_left_out_except_in_the_pod_viewer(
    count: int,
) -> None:
    partial = analyze_host(cpu_host(1, count), "h")
    tables: Any = run_tool_xprof("input_pipeline_analyzer", [partial])
    names = [row[0] for row in cells(tables[1])]
    numbered = range(1, count + 1) if count <= 5 else range(2, count)
    assert names == [f"train {number}" for number in numbered]
    pods: Any = run_tool_xprof("pod_viewer", [partial])
    assert len(pods["podStatsSequence"]["podStatsMap"]) == count


@pytest.mark.case("O2")
@pytest.mark.parametrize("count", [5, 6])
def test_a_step_that_was_cut_is_warned_of_once(count: int) -> None:
    """Of six steps the pod viewer shows the first and the last too."""
    result = run_tool("pod_viewer", [analyze_host(cpu_host(1, count), "h")], Scope(["h"]))
    warnings = result.result["warnings"]
    assert len(warnings) == (count == 6)
    assert all("cut 2 of 6 steps" in warning for warning in warnings)


def test_our_own_overview_shows_all_steps_and_marks_the_incomplete_ones() -> None:
    result = run_tool("overview_page", [analyze_host(cpu_host(1, 8), "h")], Scope(["h"]))
    steps = result.tables["steps"]
    at = [column.id for column in steps.columns].index("is_complete")
    assert [row[at] for row in steps.rows] == [False, *[True] * 6, False]
    assert result.result["complete_step_count"] == 6
    assert result.result["step_time_ms"]["average"] == pytest.approx(0.1)


def test_each_host_drops_its_own_ends_before_the_hosts_are_matched() -> None:
    partials = [analyze_host(cpu_host(1, 8), "h1"), analyze_host(cpu_host(4, 11), "h2")]
    tables: Any = run_tool_xprof("input_pipeline_analyzer", partials)
    assert [row[0] for row in cells(tables[1])] == ["train 5", "train 6", "train 7"]
    pods: Any = run_tool_xprof("pod_viewer", partials)
    assert len(pods["podStatsSequence"]["podStatsMap"]) == 5


def tpu_host(ops: Sequence[tuple[str, int]], step_us: int, *, has_details: bool = True) -> bytes:
    """One step with operations by category, one after the other. Times in microseconds."""
    space = xplane_pb2.XSpace(hostnames=["tpu-host"])
    core = PlaneBuilder(space, "/device:TPU:0", 1)
    about: dict[str, object] = {"device_type_string": "TPU v5"}
    if has_details:
        about["core_details"] = b"\x0a\x05other\x10\x00\x20\x00"
    core.fill(core.plane, about)
    steps, line = core.line("Steps", 1), core.line("XLA Ops", 3)
    core.event(core.line("XLA Modules", 2), "jit_f(1)", 0, step_us * US, {"run_id": 1})
    core.event(steps, "1", 0, step_us * US, {"step_num": 1})
    at = 1
    for index, (category, duration) in enumerate(ops):
        core.event(
            line,
            f"op.{index}",
            at * US,
            duration * US,
            metadata={"hlo_category": category, "program_id": 1, "symbol_id": index + 1},
        )
        at += duration + 1
    return space.SerializeToString()


@pytest.mark.case("2.O17")
def test_the_longest_operations_are_those_of_tensor_cores_and_of_equals_the_last() -> None:
    space = xplane_pb2.XSpace(hostnames=["tpu-host"])
    tensor = PlaneBuilder(space, "/device:TPU:0", 1)
    sparse = PlaneBuilder(space, "/device:TPU:0 SparseCore 0", 2)
    tensor_ops, sparse_ops = tensor.line("XLA Ops", 1), sparse.line("Sparse Core Ops", 1)
    times = {"op1": 100, "op2": 200, "op3": 150, "op4": 150}
    about = {"hlo_category": "loop fusion", "program_id": 1}
    at = 0
    for number, (name, duration) in enumerate(times.items(), start=1):
        named = {**about, "symbol_id": number}
        tensor.event(tensor_ops, name, at, duration, metadata=named)
        at += duration
    sparse.event(sparse_ops, "op5", 0, 300, metadata={**about, "symbol_id": 5})
    result = run_tool("overview_page", [analyze_host(space.SerializeToString(), "h")], Scope(["h"]))
    names = [row[0] for row in result.tables["top_ops"].rows]
    assert names == ["op2", "op4", "op3", "op1"]
    assert names[:2] == ["op2", "op4"]


def test_operations_that_overlap_fill_a_step_at_most() -> None:
    """60 and 50 us that overlap by 10 in a step of 90; XProf has 0 us of computation."""
    space = xplane_pb2.XSpace(hostnames=["tpu-host"])
    core = PlaneBuilder(space, "/device:TPU:0", 1)
    steps, line = core.line("Steps", 1), core.line("XLA Ops", 2)
    core.event(steps, "1", 0, 90 * US, {"step_num": 1})
    for number, (start, duration) in enumerate([(0, 60), (50, 50)], start=1):
        about = {"hlo_category": "convolution", "program_id": 1, "symbol_id": number}
        core.event(line, f"op{number}", start * US, duration * US, metadata=about)
    tables: Any = run_tool_xprof(
        "input_pipeline_analyzer", [analyze_host(space.SerializeToString(), "h")]
    )
    (row,) = cells(tables[1])
    at = {column["id"]: index for index, column in enumerate(tables[1]["cols"])}
    assert row[at["tcComputeTimeMs"]] == pytest.approx(0.09)
    assert row[at["tcIdleTimeMs"]] == 0.0
    assert tables[1]["p"]["tc_active_ms_average"] == "0.09"
    # Of one step without input too.
    assert tables[1]["p"]["infeed_percent_standard_deviation"] == "0.0"


@pytest.mark.case("W15")
@pytest.mark.parametrize(
    ("category", "generic"),
    [
        ("infeed", 6),
        ("outfeed", 7),
        ("send", 2),
        ("all-reduce", 3),
        ("all-gather", 1),
        ("async-done", 2),
    ],
)
def test_a_tpus_categories_fall_into_the_pod_viewers(category: str, generic: int) -> None:
    partial = analyze_host(tpu_host([("convolution", 100), (category, 37)], 900), "h")
    pods: Any = run_tool_xprof("pod_viewer", [partial])
    (step,) = pods["podStatsSequence"]["podStatsMap"]
    (record,) = step["podStatsPerCore"].values()
    expected = dict.fromkeys(map(str, range(1, 10)), 0.0) | {"1": 100.0, "9": 763.0}
    expected[str(generic)] += 37
    assert record["stepBreakdownUs"] == pytest.approx(expected)
    assert record["hostName"] == "tpu-host"


def test_every_kind_of_collective_is_one_in_our_own_result() -> None:
    ops = [("convolution", 100), ("all-gather", 37), ("reduce-scatter", 13)]
    result = run_tool("pod_viewer", [analyze_host(tpu_host(ops, 900), "h")], Scope(["h"]))
    steps = result.tables["steps"]
    (row,) = [dict(zip([c.id for c in steps.columns], row, strict=True)) for row in steps.rows]
    assert (row["device_compute_us"], row["collectives_us"]) == (100, 50)
    assert (row["own_work_us"], row["host"]) == (850, "h")


def test_a_core_without_details_has_no_record() -> None:
    partial = analyze_host(tpu_host([("convolution", 100)], 900, has_details=False), "h")
    pods: Any = run_tool_xprof("pod_viewer", [partial])
    assert [step["podStatsPerCore"] for step in pods["podStatsSequence"]["podStatsMap"]] == [{}]


@pytest.mark.case("W16")
@pytest.mark.parametrize(
    ("category", "row", "active"),
    [
        ("infeed", (0.2, 0, 0.1, 0, 0.699, 0), "0.20"),
        ("host send", (0.2, 0, 0, 0, 0.799, 0.1), "0.20"),
        ("megacore fusion", (0.3, 0, 0, 0, 0.699, 0), "0.20"),
        ("async-done", (0.3, 0, 0, 0, 0.699, 0), "0.20"),
        ("sparsecorev0 infeed", (0.2, 0.1, 0, 0, 0.699, 0), "0.20"),
        ("outfeed", None, "0.20"),
        ("all-reduce", None, "0.30"),
        ("send", None, "0.30"),
        ("sparsecorev0 outfeed", None, "0.30"),
    ],
)
def test_a_tpu_step_is_split_as_the_reference_does(
    category: str, row: tuple[float, ...] | None, active: str
) -> None:
    partial = analyze_host(tpu_host([("convolution", 200), (category, 100)], 999), "h")
    tables: Any = run_tool_xprof("input_pipeline_analyzer", [partial])
    assert tables[1]["p"]["tc_active_ms_average"] == active
    (got,) = cells(tables[1])
    shown = (got[1], got[2], got[4], got[5], got[6], got[7])
    if row is not None:
        assert shown == pytest.approx(row)


def test_the_overview_of_tpu_steps_has_no_bottleneck_there_and_one_here() -> None:
    partial = analyze_host(tpu_host([("convolution", 200), ("infeed", 300)], 900), "h")
    tables: Any = run_tool_xprof("overview_page", [partial])
    assert (tables[3]["p"]["bottleneck"], tables[3]["p"]["statement"]) == ("", "")
    result = run_tool("overview_page", [partial], Scope(["h"])).result
    assert result["bottleneck"]["classification"] == "host"
    assert "33.3%" in result["bottleneck"]["statement"]


def serving_host() -> bytes:
    """Three SessionRun roots of 90, 110 and 120 us of two models, each with its device work."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    host = PlaneBuilder(space, "/host:CPU")
    core = PlaneBuilder(space, "/device:TPU:0", 1)
    line = host.line("main", 1)
    modules = core.line("XLA Modules", 1)
    for index, (duration, model) in enumerate(((90, "m:1"), (110, "m:1"), (120, "m2"))):
        at = (100 + 200 * index) * US
        run: Stats = {"run_id": index + 1, "queue_id": 0, "device_ordinal": 0}
        host.event(line, "SessionRun", at, duration * US, {"_r": 1, "model_id": model})
        host.event(line, "TransferH2DRequest", at + 5 * US, 5 * US)
        host.event(line, "tpu::System::Execute", at + 20 * US, 2 * US)
        host.event(line, "DoEnqueueProgram", at + 30 * US, 2 * US, run)
        host.event(line, "TransferD2HRequest", at + 80 * US, 5 * US)
        core.event(modules, "jit_f(1)", at + 40 * US, 30 * US, {"run_id": index + 1, "queue_id": 0})
    return space.SerializeToString()


def test_requests_are_put_together_from_their_groups() -> None:
    partial = analyze_host(serving_host(), "h")
    requests = partial.inference.requests
    assert sorted(partial.inference.models) == ["m2", "m:1"]
    assert requests.duration_ps.tolist() == [90 * US, 110 * US, 120 * US]
    assert requests["write_ps"].tolist() == [5 * US] * 3
    assert requests["read_ps"].tolist() == [5 * US] * 3
    assert requests["device_ps"].tolist() == [30 * US] * 3
    tables: Any = run_tool_xprof("overview_page", [partial])
    shown = {row[0]: row[1:] for row in cells(tables[4])}
    assert list(shown) == ["Avg", "50.0%", "75.0%", "90.0%", "99.0%", "99.9%"]
    assert shown["50.0%"] == pytest.approx([0.07, 0.03, 0.01, 0.11])
    assert shown["99.9%"] == pytest.approx([0.08, 0.03, 0.01, 0.12])


@pytest.mark.parametrize("with_plane", [False, True])
def test_an_empty_profile_gives_every_tool_an_empty_result(with_plane: bool) -> None:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    if with_plane:
        space.planes.add(name="/host:CPU")
    partial = analyze_host(space.SerializeToString(), "h")
    for name in TOOLS:
        result = run_tool(name, [partial], Scope(["h"]))
        assert result.status == "empty"
        assert result.reasons
        assert result.to_json()
    pods: Any = run_tool_xprof("pod_viewer", [partial])
    assert pods["deviceType"] == "CPU"
    assert len(pods["diagnostics"]["warnings"]) == 1
    tables: Any = run_tool_xprof("input_pipeline_analyzer", [partial])
    assert len(tables[1]["p"]["input_conclusion"].split()) >= 5


def threads_host(hostname: str, **threads: Sequence[tuple[str, int, int, Stats]]) -> bytes:
    """A host of threads with these events, times in picoseconds."""
    space = xplane_pb2.XSpace(hostnames=[hostname], errors=[f"{hostname}: error"] * 2)
    host = PlaneBuilder(space, "/host:CPU")
    for number, (name, events) in enumerate(threads.items(), start=1):
        line = host.line(name, number)
        for event in events:
            host.event(line, *event)
    return space.SerializeToString()


@pytest.mark.case("K1", "K8")
def test_two_hosts_add_and_keep_their_cores_apart() -> None:
    main = [
        ("TraceContext", 0, 100, {"step_num": 123}),
        ("FunctionRun", 10, 90, {"_pt": 1, "_p": 0}),
    ]
    executor = [
        ("ExecutorState::Process", 20, 80, {"id": 456, "_ct": 1, "_c": 0}),
        ("aaa:bbb", 30, 70, {}),
    ]
    partials = [
        analyze_host(threads_host(name, main=main, executor=executor), name)
        for name in ("host1", "host2")
    ]
    assert [partial.errors for partial in partials] == [("host1: error",), ("host2: error",)]
    stats = combine(partials)
    assert stats.diagnostics.errors == ("host1: error", "host2: error")
    names = ("name", "category")
    texts = [[stats.host_ops.text(name, row) for name in names] for row in range(2)]
    assert texts == [["IDLE", "IDLE"], ["aaa", "bbb"]]
    assert stats.host_ops.column("self_time_ps")[1] == 140
    assert (len(stats.steps), stats.steps.core_id.tolist()) == (1, [1, 1001])
    pods: Any = run_tool_xprof("pod_viewer", partials)
    (step,) = pods["podStatsSequence"]["podStatsMap"]
    hosts = {core: record["hostName"] for core, record in step["podStatsPerCore"].items()}
    assert hosts == {"1": "host1", "1001": "host2"}


@pytest.mark.case("K3")
@pytest.mark.parametrize(
    "kinds",
    [
        (("TPU", "TPU"), ("Device", "UNKNOWN_HARDWARE")),
        (("CPU", "CPU_ONLY"), ("TPU", "TPU")),
    ],
)
def test_the_device_of_a_capture_is_that_of_the_hosts_that_have_one(kinds: Any) -> None:
    hosts = [RunEnvironment(kind, hardware, (), 1, 0, False) for kind, hardware in kinds]
    combined = RunEnvironment.combine(hosts)
    assert (combined.device_type, combined.hardware_type) == ("TPU", "TPU")


@pytest.mark.case("M5")
def test_the_overview_has_seven_parts() -> None:
    tables: Any = run_tool_xprof("overview_page", [analyze_host(cpu_host(1, 3), "h")])
    assert len(tables) == 7
    assert tables[2]["p"]["is_training"] == "false"


@pytest.mark.case("N1")
def test_operations_know_how_much_of_them_ran_on_tensor_cores() -> None:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    device = PlaneBuilder(space, "/device:GPU:0")
    device.fill(device.plane, {"device_vendor": "Nvidia"})
    about = "regs:32 static_shared:0 dynamic_shared:0 grid:2,1,1 block:32,1,1 occ_pct:100"
    first, second = {"tf_op": "TfOp1:TfOp1"}, {"tf_op": "TfOp2:TfOp2"}
    convolution = {"tf_op": "Conv2D:Conv2D", "kernel_details": about}
    both: list[tuple[str, int, Stats]] = [("kernel1", 100, first), ("kernel2", 110, first)]
    more: list[tuple[str, int, Stats]] = [
        ("kernel3", 120, second),
        ("volta_fp16_s884gemm", 130, convolution),
        ("kernel5", 150, convolution),
    ]
    for number, events in ((10, both), (20, [*both, *more])):
        line = device.line(f"stream {number}", number)
        for name, start_us, stats in events:
            duration_us = 8 if name == "kernel1" else 10
            device.event(line, name, start_us * US, duration_us * US, stats)
    tables: Any = run_tool_xprof(
        "framework_op_stats", [analyze_host(space.SerializeToString(), "h")]
    )
    at = {column["id"]: index for index, column in enumerate(tables[0]["cols"])}
    wanted = ("operation", "occurrences", "total_self_time", "gpu_tensorcore_utilization")
    rows = [[row[at[name]] for name in wanted] for row in cells(tables[0])]
    assert [row[:3] for row in rows] == [
        ["TfOp1", 2, 36],
        ["Conv2D", 1, 20],
        ["TfOp2", 1, 10],
        ["IDLE", 0, 0],
    ]
    assert [row[3] for row in rows[:3]] == [0, 0.5, 0]


@pytest.mark.case("O1", "O3")
def test_every_kind_of_time_has_its_place_in_the_pod_viewer() -> None:
    times = [350 if name == "device_collectives" else 50 for name in EVENT_TYPES]
    steps = StepDatabase(
        kind="generic",
        has_device=True,
        step_numbers=np.array([2]),
        row_step=np.array([0]),
        core_id=np.array([1]),
        host_index=np.array([0]),
        begin_ps=np.array([0]),
        duration_ps=np.array([1000]),
        name_code=np.array([0]),
        names=("",),
        categories=EVENT_TYPES,
        breakdown_ps=np.array([times]),
        in_breakdown=np.ones((1, len(EVENT_TYPES)), np.bool_),
        collectives=Collectives(),
        transfers=Transfers.zeros(1),
    )
    partial = replace(analyze_host(gpu_host(W1), "h"), steps=steps)
    pods: Any = run_tool_xprof("pod_viewer", [partial])
    assert pods["deviceType"] == "Nvidia GPU"
    (step,) = pods["podStatsSequence"]["podStatsMap"]
    assert step["stepNum"] == 2
    (record,) = step["podStatsPerCore"].values()
    shown = [record["stepBreakdownUs"][str(kind)] for kind in range(1, 10)]
    expected = [1e-4, 1e-4, 3.5e-4, 5e-5, 5e-5, 1.5e-4, 5e-5, 5e-5, 5e-5]
    assert shown == pytest.approx(expected)
    assert record["totalDurationUs"] == pytest.approx(1e-3)
    assert record["bottleneck"] == "Device collective communication"


def called(*events: tuple[str, int, int, str, int]) -> list[tuple[str, int, int, Stats]]:
    return [
        (name, start, duration, {"tf_function_call": mode, "tracing_count": count})
        for name, start, duration, mode, count in events
    ]


@pytest.mark.case("Q1", "Q2", "Q3")
@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        (
            {
                "one": called(
                    ("decrement", 10, 100, "traced-nonXla", 1),
                    ("decrement", 150, 20, "notTraced-nonXla", 2),
                    ("decrement", 200, 80, "traced-nonXla", 3),
                ),
                "two": called(
                    ("decrement", 20, 100, "traced-nonXla", 2),
                    ("decrement", 160, 20, "notTraced-nonXla", 2),
                    ("decrement", 210, 80, "traced-xla", 4),
                ),
            },
            [("decrement", 4, "mixed", {"traced": (4, 360), "not_traced": (2, 40)}, 0.9)],
        ),
        (
            {
                "one": called(
                    ("outer", 10, 100, "traced-nonXla", 1), ("inner", 30, 40, "notTraced-xla", 0)
                )
            },
            [
                ("inner", 0, "xla", {"not_traced": (1, 40)}, 0.0),
                ("outer", 1, "other", {"traced": (1, 60)}, 1.0),
            ],
        ),
        (
            {
                "one": called(("eager", 10, 200, "eager", 0)),
                "two": called(("concrete", 20, 40, "concrete", 0)),
            },
            [
                ("concrete", 0, "", {"concrete": (1, 40)}, 0.0),
                ("eager", 0, "", {"eager": (1, 200)}, 1.0),
            ],
        ),
    ],
)
def test_tracing_and_eager_execution_are_what_a_function_costs(
    threads: dict[str, Any], expected: list[tuple[str, int, str, dict[str, Any], float]]
) -> None:
    partial = analyze_host(threads_host("h", **threads), "h")
    for facts in (partial.facts, HostPartial.from_bytes(partial.to_bytes()).facts):
        found = [
            (
                one.name,
                one.tracing_count,
                one.compiler,
                {mode: (one.mode_calls[mode], one.mode_time_ps[mode]) for mode in one.mode_calls},
                one.expensive_ratio,
            )
            for one in sorted(facts.functions, key=lambda one: one.name)
        ]
        assert found == expected


def test_hosts_may_arrive_in_any_order() -> None:
    partials = [
        analyze_host(cpu_host(1, 8), "h1"),
        analyze_host(cpu_host(4, 11), "h2"),
        analyze_host(cpu_host(2, 9), "h3"),
    ]
    for name in TOOLS:
        expected = run_tool(name, partials, Scope(["h"])).to_json()
        for seed in range(3):
            shuffled = random.Random(seed).sample(partials, len(partials))
            assert run_tool(name, shuffled, Scope(["h"])).to_json() == expected


def test_a_stored_partial_gives_the_same_results() -> None:
    for raw in (gpu_host(W2), cpu_host(1, 8), tpu_host([("convolution", 200)], 900)):
        partial = analyze_host(raw, "h")
        read = HostPartial.from_bytes(partial.to_bytes())
        assert read.summary == partial.summary
        for part in PARTS:
            read = read.with_part(part, partial.part_to_bytes(part))
        for name in TOOLS:
            # Of captures without programs these have a result, the reference none.
            if name not in ("memory_viewer", "graph_viewer"):
                assert run_tool_xprof(name, [read]) == run_tool_xprof(name, [partial])
            scope = Scope(["h"])
            assert (
                run_tool(name, [read], scope).to_json()
                == run_tool(name, [partial], scope).to_json()
            )


def test_a_partial_of_another_version_is_refused_with_advice() -> None:
    state = unpack_state(analyze_host(cpu_host(1, 3), "h").to_bytes())
    with pytest.raises(PartialError, match="upgrade podscope"):
        HostPartial.from_bytes(pack_state({**state, "partial_version": 99}))
    with pytest.raises(PartialError, match="analyze the capture again"):
        HostPartial.from_bytes(pack_state({**state, "partial_version": 0}))
    del state["steps"]
    with pytest.raises(PartialError, match="damaged"):
        HostPartial.from_bytes(pack_state(state))


def test_the_summary_holds_what_lists_and_metrics_show() -> None:
    summary = analyze_host(cpu_host(1, 8), "h").summary
    assert (summary.device_type, summary.step_count) == ("CPU", 8)
    assert summary.step_time_ms == pytest.approx(0.1)
    assert summary.duty_cycle_ratio is None
    assert sum(summary.breakdown.values()) == pytest.approx(1)
    assert summary.breakdown["host_compute"] == pytest.approx(0.8)


def test_unknown_tools_and_parameters_name_the_nearest() -> None:
    partial = analyze_host(cpu_host(1, 3), "h")
    with pytest.raises(UnknownToolError, match="did you mean 'overview_page'"):
        run_tool("overview", [partial], Scope(["h"]))
    with pytest.raises(ParameterError, match="no parameter 'x'"):
        run_tool("overview_page", [partial], Scope(["h"]), {"x": "1"})
