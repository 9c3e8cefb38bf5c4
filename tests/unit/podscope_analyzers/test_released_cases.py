"""Small captures with the answers of the released reference, and what we say of them beyond."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope
from podscope_protos.v1 import hlo_pb2, xplane_pb2

US = 1_000_000
Stats = Mapping[str, str | int | bytes]
Event = tuple[str, float, float, Stats]


class Space:
    """An XSpace of planes, lines and events; times in microseconds."""

    def __init__(self) -> None:
        self.space = xplane_pb2.XSpace(hostnames=["vm"])
        self._rows: dict[tuple[str, str, tuple[tuple[str, object], ...]], int] = {}
        self._stats: dict[tuple[str, str], int] = {}

    def _fill(self, plane: xplane_pb2.XPlane, owner: Any, stats: Stats) -> None:
        for name, value in stats.items():
            key = self._stats.setdefault((plane.name, name), len(self._stats) + 1)
            plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
            stat = owner.stats.add(metadata_id=key)
            match value:
                case bytes():
                    stat.bytes_value = value
                case str():
                    stat.str_value = value
                case int():
                    stat.int64_value = value

    def plane(self, name: str, stats: Stats | None = None, number: int = 0) -> xplane_pb2.XPlane:
        found = self.space.planes.add(name=name, id=number)
        self._fill(found, found, stats or {})
        return found

    def line(
        self,
        plane: xplane_pb2.XPlane,
        name: str,
        events: Sequence[Event],
        about: Mapping[str, Stats] | None = None,
    ) -> None:
        line = plane.lines.add(id=len(plane.lines) + 1, name=name)
        for event_name, start, duration, stats in events:
            told = (about or {}).get(event_name, {})
            key = (plane.name, event_name, tuple(sorted(told.items())))
            row = self._rows.setdefault(key, len(self._rows) + 1)
            if row not in plane.event_metadata:
                entry = plane.event_metadata[row]
                entry.id, entry.name = row, event_name
                self._fill(plane, entry, told)
            event = line.events.add(
                metadata_id=row, offset_ps=round(start * US), duration_ps=round(duration * US)
            )
            self._fill(plane, event, stats)

    def bytes(self) -> bytes:
        return self.space.SerializeToString()


def _xprof(tool: str, *raws: bytes) -> Any:
    hosts = [analyze_host(raw, f"h{index}") for index, raw in enumerate(raws)]
    return run_tool_xprof(tool, hosts)


def _cells(table: Any) -> list[list[Any]]:
    return [[cell["v"] for cell in row["c"]] for row in table["rows"]]


@pytest.mark.case("W7")
def test_input_of_the_host_explains_idle_time_of_a_core_without_details() -> None:
    made = Space()
    core = made.plane("/device:TPU:0")
    grouped = {"group_id": 1}
    made.line(core, "Steps", [("1", 1000e-6, 10000e-6, grouped)])
    about: dict[str, Stats] = {
        "op": {"hlo_category": "arithmetic", "program_id": 1, "symbol_id": 1, "flops": 1000}
    }
    made.line(core, "XLA Ops", [("op", 2000e-6, 8000e-6, grouped)], about)
    host = made.plane("/host:CPU")
    stage: Stats = {"group_id": 1, "_ipl_stage_id": 1, "_ipl_stage_name": "TFRecord"}
    made.line(host, "main", [("Iterator::Batch::Map::TFRecord", 500e-6, 2300e-6, stage)])
    tables = _xprof("input_pipeline_analyzer", made.bytes())
    (row,) = _cells(tables[1])
    by_id = dict(zip([column["id"] for column in tables[1]["cols"]], row, strict=True))
    assert by_id["stepnum"] == "1"
    assert by_id["tcComputeTimeMs"] == pytest.approx(8e-6)
    assert by_id["tcInfeedTimeMs"] == pytest.approx(2e-6)
    assert by_id["tcIdleTimeMs"] == pytest.approx(0, abs=1e-18)
    assert by_id["infeedPercentAverage"] == pytest.approx(20)
    assert _cells(tables[0])[1] == ["Core name", "unknown"]
    pods = _xprof("pod_viewer", made.bytes())
    (step,) = pods["podStatsSequence"]["podStatsMap"]
    assert (step["stepNum"], step["podStatsPerCore"]) == (1, {})


@pytest.mark.case("W8", "W9")
@pytest.mark.parametrize(
    ("vendor", "used"), [("Nvidia", [True, False]), ("AMD", [False, True]), ("", [False, False])]
)
def test_the_vendor_decides_whose_names_tell_of_tensor_cores(vendor: str, used: list[bool]) -> None:
    made = Space()
    device = made.plane("/device:GPU:0", {"device_vendor": vendor} if vendor else {})
    details: Stats = {"kernel_details": "regs:32 grid:2,1,1 block:32,1,1", "tf_op": "c:Conv2D"}
    kernels = ("volta_fp16_s884gemm_x", "Cijk_MI16x16x4")
    events = [(name, 10.0 * n, 9.0 - n, details) for n, name in enumerate(kernels)]
    made.line(device, "Stream", events)
    table = _xprof("kernel_stats", made.bytes())
    at = [column["id"] for column in table["cols"]].index("is_kernel_using_tensor_core")
    assert [row[at] for row in _cells(table)] == used
    ops = _xprof("framework_op_stats", made.bytes())[1]
    at = [column["id"] for column in ops["cols"]].index("gpu_tensorcore_utilization")
    expected = {"Nvidia": 9 / 17, "AMD": 8 / 17, "": 0}[vendor]
    assert [row[at] for row in _cells(ops)] == [pytest.approx(expected)]


def test_an_occupancy_has_the_32_bits_that_the_release_keeps_of_it() -> None:
    made = Space()
    device = made.plane("/device:GPU:0")
    made.line(device, "Stream", [("k", 0.0, 9.0, {"kernel_details": "occ_pct:33.3"})])
    table = _xprof("kernel_stats", made.bytes())
    at = [column["id"] for column in table["cols"]].index("occupancy_pct")
    assert [row[at] for row in _cells(table)] == [33.29999923706055]


@pytest.mark.case("W10")
def test_host_operations_have_shares_with_and_without_idle_time() -> None:
    made = Space()
    host = made.plane("/host:CPU")
    first: list[Event] = [("TfOp1:TfOp1", 100, 8, {})]
    made.line(host, "A", first)
    made.line(host, "B", [*first, ("TfOp2:TfOp2", 110, 10, {})])
    with_idle, without = _xprof("framework_op_stats", made.bytes())
    ids = [column["id"] for column in with_idle["cols"]]
    wanted = [
        ids.index(n)
        for n in ("operation", "occurrences", "total_self_time", "host_total_self_time_percent")
    ]
    rows = [[row[at] for at in wanted] for row in _cells(with_idle)]
    assert [row[:3] for row in rows] == [["TfOp1", 2, 16], ["TfOp2", 1, 10], ["IDLE", 0, 2]]
    assert [row[3] for row in rows] == pytest.approx([16 / 28, 10 / 28, 2 / 28])
    assert [row[wanted[3]] for row in _cells(without)] == pytest.approx([16 / 26, 10 / 26])


@pytest.mark.case("W14")
@pytest.mark.parametrize(
    ("category", "flops", "duty", "sure", "idle"),
    [
        ("custom-call", False, "33.3%", "22.2%", "7e+08"),
        ("custom-call", True, "33.3%", "33.3%", "6e+08"),
        ("async-start", False, "33.3%", "33.3%", "6e+08"),
        ("host send", False, "22.2%", "22.2%", "7e+08"),
    ],
)
def test_the_duty_cycle_tells_operations_of_unknown_work(
    category: str, flops: bool, duty: str, sure: str, idle: str
) -> None:
    made = Space()
    core = made.plane("/device:TPU:0", {"device_type_string": "TPU v5"}, number=1)
    made.line(core, "XLA Modules", [("jit_f(1)", 0, 900, {"run_id": 1})])
    known: Stats = {"flops": 10} if flops else {}
    about: dict[str, Stats] = {
        "a": {"hlo_category": "convolution", "program_id": 1, "symbol_id": 1, "flops": 1000},
        "b": {"hlo_category": category, "program_id": 1, "symbol_id": 2, **known},
    }
    made.line(core, "XLA Ops", [("a", 100, 200, {}), ("b", 400, 100, {})], about)
    properties = _xprof("overview_page", made.bytes())[0]["p"]
    assert properties["device_duty_cycle_percent"] == duty
    assert properties["device_duty_cycle_high_confidence_percent"] == sure
    assert properties["idle_time_high_confidence_ps"] == idle


def test_kernels_of_one_operation_are_one_row_in_our_own_result() -> None:
    made = Space()
    device = made.plane("/device:GPU:0", {"device_vendor": "Nvidia"})
    details = {"kernel_details": "regs:32 grid:2,1,1 block:32,1,1"}
    events: list[Event] = [
        ("hmma_a", 0, 30, {**details, "tf_op": "l/MatMul:MatMul"}),
        ("hmma_a", 40, 30, {**details, "tf_op": "l/MatMul:MatMul"}),
        ("copy", 80, 20, {**details, "tf_op": "l/MatMul:MatMul"}),
        ("other", 120, 50, {**details}),
    ]
    made.line(device, "Stream", events)
    result = run_tool("kernel_stats", [analyze_host(made.bytes(), "h")], Scope(["h"]))
    # Without steps there is no spread over steps: the last two columns are empty.
    assert [list(row) for row in result.tables["operations"].rows] == [
        ["l/MatMul", 2, 3, 80.0, True, 60.0, 0.75, None, None],
        [None, 1, 1, 50.0, None, 0.0, 0.0, None, None],
    ]


def _steps(input_events: Callable[[int], list[Event]]) -> bytes:
    """A CPU host of seven steps of 100 us, with what gets its data in the first 40 us of each."""
    made = Space()
    host = made.plane("/host:CPU")
    events: list[Event] = []
    for step in range(7):
        begin = 1000.0 * step
        events.append(("train", begin, 100, {"_r": 1, "step_num": step}))
        events += [(name, begin + at, took, stats) for name, at, took, stats in input_events(step)]
        events.append(("work", begin + 50, 45, {}))
    made.line(host, "main", events)
    return made.bytes()


@pytest.mark.parametrize(
    ("name", "stats", "operation"),
    [
        # tf.data, a loader of stages (Grain), and what a loop of its own annotates.
        ("IteratorGetNext", {}, None),
        ("Iterator::Root::Batch", {}, "Iterator::Root::Batch"),
        (
            "BatchIterDataset",
            {"_ipl_stage_id": 7, "_ipl_stage_name": "Batch", "_ipl_stage_cat": "preprocessing"},
            "BatchIterDataset",
        ),
        ("next_batch", {}, None),
    ],
)
def test_every_way_of_getting_data_makes_a_job_input_bound(
    name: str, stats: Stats, operation: str | None
) -> None:
    raw = _steps(lambda _: [(name, 0.0, 40.0, stats)])
    result = run_tool("input_pipeline_analyzer", [analyze_host(raw, "h")], Scope(["h"]))
    assert result.result["classification"] == "host"
    assert result.result["input_ratio"]["average"] == pytest.approx(0.4)
    names = [column.id for column in result.tables["host_ops"].columns]
    rows = [dict(zip(names, row, strict=True)) for row in result.tables["host_ops"].rows]
    if operation is None:
        assert rows == []
        # Nothing that frameworks call input was recorded: no time of it is known.
        assert result.result["host_input_time_us"] is None
        return
    (row,) = rows
    assert (row["operation"], row["count"], row["category"]) == (operation, 7, "Preprocessing")
    assert result.result["host_input_time_us"]["preprocessing"] == pytest.approx(280)


@pytest.mark.case("W13")
@pytest.mark.parametrize(
    ("on_event", "on_metadata", "flops", "moved"), [(True, False, 0, 0), (False, True, 2000, 512)]
)
def test_the_reference_reads_costs_of_custom_calls_from_metadata_alone(
    on_event: bool, on_metadata: bool, flops: int, moved: int
) -> None:
    made = Space()
    core = made.plane("/device:TPU:0", {"device_type_string": "TPU v5"}, number=1)
    cost: Stats = {"flops": 1000, "bytes_accessed": 256}
    about: dict[str, Stats] = {
        "custom-call.1": {
            "hlo_category": "custom-call",
            "program_id": 1,
            "symbol_id": 1,
            **(cost if on_metadata else {}),
        }
    }
    stats = cost if on_event else {}
    events: list[Event] = [("custom-call.1", 100 * n, 50, stats) for n in range(2)]
    made.line(core, "XLA Ops", events, about)
    table = _xprof("hlo_stats", made.bytes())
    ids = [column["id"] for column in table["cols"]]
    row = dict(zip(ids, next(r for r in _cells(table) if "custom-call" in r), strict=True))
    assert row["occurrences"] == 2
    # 100 us in all: FLOP/s in billions, GiB/s.
    assert row["model_flop_rate"] == pytest.approx(flops / 100e-6 / 1e9)
    assert row["measured_memory_bw"] == pytest.approx(moved / 100e-6 / 2**30)


@pytest.mark.case("U5")
@pytest.mark.parametrize(
    ("stat", "named", "found"),
    [
        ("HLO Proto", "train_step (12345)", ["train_step(12345)"]),
        ("Hlo Proto", "train_step (12345)", ["train_step(12345)"]),
        ("program", "train_step (12345)", []),
        (None, "train_step (12345)", []),
    ],
)
def test_programs_are_known_by_either_spelling_and_by_the_id_in_their_name(
    stat: str | None, named: str, found: list[str]
) -> None:
    made = Space()
    plane = made.plane("/host:metadata")
    module = hlo_pb2.HloModuleProto(name="train_step", entry_computation_name="main")
    computation = module.computations.add(id=1, name="main", root_id=2)
    root = computation.instructions.add(id=2, name="constant.2", opcode="constant")
    root.shape.element_type = hlo_pb2.PrimitiveType.F32
    raw = hlo_pb2.HloProto(hlo_module=module).SerializeToString()
    entry = plane.event_metadata[7]
    entry.id, entry.name = 7, named
    if stat is not None:
        plane.stat_metadata[1].id, plane.stat_metadata[1].name = 1, stat
        entry.stats.add(metadata_id=1, bytes_value=raw)
    host = analyze_host(made.bytes(), "h0")
    assert [host.program_titles[i] for i in sorted(host.program_titles)] == found
    assert sorted(host.program_titles) == [12345] * len(found)
