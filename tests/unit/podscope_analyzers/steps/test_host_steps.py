"""Step databases of hosts; ids H1 to H11, L1 to L3, W2, W11 are conformance cases."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers import XSpace
from podscope_analyzers.input_pipeline.tpu_steps import tpu_steps
from podscope_analyzers.prepare import prepare
from podscope_analyzers.steps import StepDatabase, host_step_database, tpu_breakdown
from podscope_analyzers.steps.database import IDLE, Collectives, Transfers
from podscope_analyzers.steps.device import device_step_events
from podscope_analyzers.steps.event_types import EVENT_TYPES, EventType
from podscope_analyzers.steps.events import StepEvents
from podscope_analyzers.steps.exclusive import exclusive_times
from podscope_analyzers.steps.host import host_step_events
from podscope_analyzers.steps.tpu import attribute_input

SpaceMaker = Callable[..., XSpace]
HOST = "/host:CPU"
GPU = "/device:GPU:0"
TPU = "/device:TPU:0"
SPARSE = "/device:TPU:0 SparseCore 0"


def op(number: int, category: str = "fusion") -> dict[str, Any]:
    return {"program_id": 1, "symbol_id": number, "hlo_category": category}


def breakdown(database: StepDatabase, row: int) -> dict[str, int]:
    return {
        name: int(database.breakdown_ps[row, column])
        for column, name in enumerate(database.categories)
        if database.in_breakdown[row, column]
    }


MAIN = [
    ("TraceContext", 0, 100, {"step_num": 123}),
    ("FunctionRun", 10, 90, {"id": 0, "_pt": 1, "_p": 0}),
]
EXECUTOR = [
    ("ExecutorState::Process", 20, 20, {"id": 0, "_ct": 1, "_c": 0}),
    ("matmul", 30, 10, {"correlation_id": 100}),
]


@pytest.mark.case("H1")
def test_a_cpu_host_has_its_threads_steps(make_space: SpaceMaker) -> None:
    executor = [
        ("ExecutorState::Process", 20, 80, {"id": 0, "_ct": 1, "_c": 0}),
        ("matmul", 30, 70),
    ]
    database = host_step_database(prepare(make_space({HOST: {"main": MAIN, "executor": executor}})))
    assert database.step_numbers.tolist() == [0]
    assert (database.begin_ps.tolist(), database.duration_ps.tolist()) == ([0], [100])
    assert breakdown(database, 0) == {"host_compute": 80, "unknown_time": 20}
    assert database.row_name(0) == "TraceContext 123"
    assert not database.has_device


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("MemcpyHToD", "host_to_device"),
        ("memcpyhtod of a batch", "host_to_device"),
        ("queue/enqueue:InfeedEnqueueTuple", "host_to_device"),
        ("MemcpyHToH", "host_to_host"),
        ("MemcpyHToD:x", "host_compute"),
        ("MEMCPYHTOH:a/b", "host_compute"),
    ],
)
def test_a_copy_is_one_whose_name_has_no_colon(
    make_space: SpaceMaker, name: str, kind: str
) -> None:
    events = [("train", 0, 100, {"_r": 1, "step_num": 1}), (name, 10, 50), ("work", 70, 20)]
    database = host_step_database(prepare(make_space({HOST: {"main": events}})))
    expected = {"host_compute": 20, "unknown_time": 30}
    expected[kind] = expected.get(kind, 0) + 50
    assert breakdown(database, 0) == expected


@pytest.mark.case("H2")
def test_a_gpu_host_has_the_steps_of_its_streams(make_space: SpaceMaker) -> None:
    database = host_step_database(
        prepare(
            make_space(
                {
                    HOST: {"main": MAIN, "executor": EXECUTOR},
                    GPU: {"stream": [("matmul", 50, 40, {"correlation_id": 100})]},
                }
            )
        )
    )
    assert len(database) == 1
    assert (database.precision_32bit_ps, database.precision_16bit_ps) == (40, 0)
    assert (database.begin_ps.tolist(), database.duration_ps.tolist()) == ([50], [40])
    assert breakdown(database, 0) == {"device_compute_32": 40}


@pytest.mark.case("H3")
def test_host_steps_can_be_cut_to_those_of_the_device(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        *MAIN,
                        ("TraceContext", 300, 100, {"step_num": 456}),
                        ("FunctionRun", 310, 90, {"id": 1, "_pt": 1, "_p": 1}),
                    ],
                    "executor": [
                        *EXECUTOR,
                        ("ExecutorState::Process", 320, 20, {"id": 1, "_ct": 1, "_c": 1}),
                        ("matmul", 330, 10, {"correlation_id": 200}),
                    ],
                },
                GPU: {"stream": [("matmul", 50, 40, {"correlation_id": 100})]},
            }
        )
    )
    gpu, host = space.plane(GPU), space.host_plane
    assert gpu is not None
    assert host is not None
    device = device_step_events(gpu)
    assert device.steps().tolist() == [0]
    assert len(device.event_step) == 1
    found = host_step_events(host, device.steps())
    assert found.steps().tolist() == [0]
    assert (len(found.marker_step), len(found.event_step)) == (1, 2)
    assert set(found.event_type.tolist()) == {EventType.HOST_PREPARE}


OPS = [("op1", 0, 50), ("op2", 50, 50), ("op1", 100, 50)]


def grouped(events: list[Any], groups: list[int]) -> list[Any]:
    return [
        (*event[:3], {**(event[3] if len(event) > 3 else {}), "group_id": group})
        for event, group in zip(events, groups, strict=True)
    ]


@pytest.mark.case("H4")
def test_a_tpu_step_has_the_operations_of_its_core(make_space: SpaceMaker) -> None:
    space = prepare(
        make_space(
            {
                TPU: {
                    "XLA Ops": grouped(OPS, [1, 1, 2]),
                    "Steps": grouped([("1", 0, 100), ("2", 100, 100)], [1, 2]),
                }
            },
            ids={TPU: 1},
            metadata={"op1": op(1, "convolution"), "op2": op(2)},
        )
    )
    database = host_step_database(space)
    assert database.step_numbers.tolist() == [1, 2]
    assert database.core_id.tolist() == [1, 1]
    assert breakdown(database, 0) == {IDLE: 0, "convolution": 50, "fusion": 50}
    assert breakdown(database, 1) == {IDLE: 50, "convolution": 50}
    plane = space.plane(TPU)
    assert plane is not None
    assert device_step_events(plane).marker_core.tolist() == [1, 1]


@pytest.mark.case("H5")
def test_operations_without_a_step_line_make_no_steps(make_space: SpaceMaker) -> None:
    space = make_space({TPU: {"XLA Ops": grouped(OPS, [1, 1, 2]), "Steps": []}})
    assert len(host_step_database(prepare(space))) == 0


@pytest.mark.case("H6")
def test_a_sparse_core_alone_has_its_own_steps(make_space: SpaceMaker) -> None:
    database = host_step_database(
        prepare(
            make_space(
                {
                    SPARSE: {
                        "Sparse Core Steps": grouped([("s", 0, 1000)], [1]),
                        "Sparse Core Ops": grouped([("op", 100, 880)], [1]),
                    }
                },
                ids={SPARSE: 1},
                metadata={"op": op(1)},
            )
        )
    )
    assert database.core_id.tolist() == [1_000_001]
    assert (database.begin_ps.tolist(), database.duration_ps.tolist()) == ([0], [1000])
    assert breakdown(database, 0) == {IDLE: 120, "fusion": 880}


@pytest.mark.case("H7")
def test_only_the_outermost_stage_waits_for_input(make_space: SpaceMaker) -> None:

    def stage(name: str, **stats: int) -> dict[str, Any]:
        return {"_ipl_stage_id": len(name), "_ipl_stage_name": name, **stats}

    prefetches = [(3, 9), (13, 9), (23, 50), (74, 10), (85, 5)]
    space = prepare(
        make_space(
            {
                HOST: {
                    "main": [
                        ("read_data 1", 0, 100, {"step_num": 1, "_r": 1}),
                        ("BatchMapDataset", 1, 90, stage("Batch")),
                        ("FirstFitPackIterDataset", 2, 88, stage("FirstFitPack")),
                        *(
                            ("Prefetch", *span, stage("Prefetch", _pt=9999, _p=i + 1))
                            for i, span in enumerate(prefetches)
                        ),
                        ("TpuSystem::execute", 92, 1, {"_pt": 7, "_p": 1}),
                    ],
                    "runtime": [
                        ("IssueSequencedEvent", 94, 4, {"_ct": 7, "_c": 1}),
                        (
                            "DoEnqueueProgram",
                            95,
                            2,
                            {"run_id": 1, "queue_id": 0, "device_ordinal": 0},
                        ),
                    ],
                    **{
                        f"worker {i}": [("MapDataset", 2, 2, stage("Map", _ct=9999, _c=i))]
                        for i in range(1, 6)
                    },
                },
                TPU: {
                    "Steps": [("0", 0, 100)],
                    "XLA Modules": [("jit_multiply(1)", 97, 2, {"run_id": 1, "queue_id": 0})],
                    "XLA Ops": [("multiply", 98, 1)],
                },
            }
        )
    )
    for plane in space.planes:
        for line in plane.lines:
            assert set(line.group_id.tolist()) == {0}, (plane, line)
    assert space.host_plane is not None
    found = host_step_events(space.host_plane)
    assert (len(found.marker_step), len(found.event_step)) == (1, 15)
    waits = np.flatnonzero(found.event_type == EventType.HOST_WAIT_INPUT)
    assert len(waits) == 1
    assert found.event_begin_ps[waits].tolist() == [1]
    assert (found.event_end_ps - found.event_begin_ps)[waits].tolist() == [90]


@pytest.mark.case("H8")
def test_steps_are_those_that_all_tpus_of_a_host_have(make_space: SpaceMaker) -> None:
    other = "/device:TPU:1"
    database = host_step_database(
        prepare(
            make_space(
                {
                    TPU: {
                        "Steps": grouped([("1", 100, 100000)], [1]),
                        "XLA Ops": grouped([("infeed", 110, 10)], [1]),
                    },
                    other: {
                        "Steps": grouped([("1", 300, 100), ("2", 300, 100)], [1, 2]),
                        "XLA Ops": grouped([("infeed", 310, 10), ("infeed", 310, 10)], [1, 2]),
                    },
                },
                ids={TPU: 0, other: 1},
                metadata={"infeed": op(1, "infeed")},
            )
        )
    )
    assert database.step_numbers.tolist() == [1]


@pytest.mark.case("H9")
def test_a_sparse_core_keeps_its_own_span_beside_a_tensor_core(make_space: SpaceMaker) -> None:
    database = host_step_database(
        prepare(
            make_space(
                {
                    TPU: {
                        "Steps": grouped([("1", 100, 100000)], [1]),
                        "XLA Ops": grouped([("infeed", 110, 10)], [1]),
                    },
                    SPARSE: {
                        "Sparse Core Steps": grouped([("1", 1000, 10000)], [1]),
                        "Sparse Core Ops": grouped([("work", 1010, 1000)], [1]),
                    },
                },
                ids={TPU: 1, SPARSE: 2},
                metadata={"infeed": op(1, "infeed"), "work": op(2)},
            )
        )
    )
    assert database.core_id.tolist() == [1, 1_000_002]
    assert database.begin_ps.tolist() == [100, 1000]
    assert database.duration_ps.tolist() == [100000, 10000]
    assert breakdown(database, 1)[IDLE] == 9000


@pytest.mark.case("H10")
def test_every_step_of_both_kinds_of_cores_is_counted(make_space: SpaceMaker) -> None:
    steps = [(str(i), 10 * i, 10) for i in range(1, 5)]
    ops = [(f"op{i}", 10 * i + 5, 5) for i in range(1, 5)]
    database = host_step_database(
        prepare(
            make_space(
                {
                    TPU: {
                        "Steps": grouped(steps, [1, 2, 3, 4]),
                        "XLA Ops": grouped(ops, [1, 2, 3, 4]),
                    },
                    SPARSE: {
                        "Sparse Core Steps": grouped(steps, [1, 2, 3, 4]),
                        "Sparse Core Ops": grouped(
                            [("sc", *span) for _, *span in ops], [1, 2, 3, 4]
                        ),
                    },
                },
                ids={TPU: 0, SPARSE: 1},
                metadata={f"op{i}": op(i) for i in range(1, 5)},
            )
        )
    )
    assert len(database) == 4
    tensor = ~database.is_sparse_core
    assert database.duration_ps[tensor].sum() == 40
    assert database.time_ps("fusion")[tensor].sum() == 20
    assert database.time_ps(IDLE)[~tensor].tolist() == [10] * 4


@pytest.mark.case("H11")
def test_idle_time_behind_a_slow_input_is_infeed(make_space: SpaceMaker) -> None:
    stage = {"_ipl_stage_id": 1, "_ipl_stage_name": "TFRecord"}
    database = host_step_database(
        prepare(
            make_space(
                {
                    TPU: {
                        "Steps": grouped([("1", 1000, 10000)], [1]),
                        "XLA Ops": grouped([("add", 2000, 8000)], [1]),
                    },
                    HOST: {
                        "main": grouped([("Iterator::Batch::Map::TFRecord", 500, 2300, stage)], [1])
                    },
                },
                ids={TPU: 0},
                metadata={"add": op(1, "arithmetic")},
            )
        )
    )
    assert breakdown(database, 0) == {IDLE: 0, "infeed": 2000, "arithmetic": 8000}


def cores(rows: list[tuple[int, int, int, dict[str, int]]]) -> StepDatabase:
    """One step 1 with rows of (core, begin, duration, categories)."""
    categories = tuple(dict.fromkeys([IDLE, *(c for row in rows for c in row[3])]))
    count = len(rows)
    return StepDatabase(
        kind="tpu",
        has_device=True,
        step_numbers=np.array([1]),
        row_step=np.zeros(count, np.int64),
        core_id=np.array([row[0] for row in rows]),
        host_index=np.zeros(count, np.int64),
        begin_ps=np.array([row[1] for row in rows]),
        duration_ps=np.array([row[2] for row in rows]),
        name_code=np.zeros(count, np.int64),
        names=("",),
        categories=categories,
        breakdown_ps=np.array([[row[3].get(c, 0) for c in categories] for row in rows]),
        in_breakdown=np.array([[c in row[3] for c in categories] for row in rows]),
        collectives=Collectives(),
        transfers=Transfers.zeros(1),
    )


HOST_INPUT = StepEvents(
    event_step=np.ones(3, np.int64),
    event_type=np.array(
        [EventType.HOST_WAIT_INPUT, EventType.HOST_TO_DEVICE, EventType.HOST_TO_DEVICE], np.uint8
    ),
    event_begin_ps=np.array([50, 110, 430]),
    event_end_ps=np.array([100, 200, 500]),
)
CORE_2 = (
    2,
    40,
    1000,
    {IDLE: 300, "multiply": 300, "all-gather": 300, "async-start": 50, "async-done": 50},
)
CORE_1 = (
    1,
    45,
    900,
    {IDLE: 250, "multiply": 300, "all-gather": 250, "async-start": 50, "async-done": 50},
)


@pytest.mark.case("L1")
def test_input_takes_its_share_of_the_idle_time() -> None:
    found = breakdown(attribute_input(cores([CORE_2]), HOST_INPUT), 0)
    assert (found[IDLE], found["infeed"]) == (90, 210)


@pytest.mark.case("L2")
def test_every_core_gives_the_same_share_of_its_idle_time() -> None:
    database = attribute_input(cores([CORE_1, CORE_2]), HOST_INPUT)
    first, second = breakdown(database, 0), breakdown(database, 1)
    assert (first[IDLE], first["infeed"]) == (40, 210)
    assert (second[IDLE], second["infeed"]) == (48, 252)


@pytest.mark.case("L3")
def test_a_program_with_infeed_operations_is_left_alone(make_space: SpaceMaker) -> None:
    database = host_step_database(
        prepare(
            make_space(
                {
                    TPU: {
                        "Steps": grouped([("1", 40, 1000)], [1]),
                        "XLA Ops": grouped([("mul", 40, 650), ("infeed", 700, 50)], [1, 1]),
                    },
                    HOST: {"main": grouped([("IteratorGetNext", 50, 200)], [1])},
                },
                ids={TPU: 2},
                metadata={"mul": op(1, "multiply"), "infeed": op(2, "infeed")},
            )
        )
    )
    assert breakdown(database, 0) == {IDLE: 300, "multiply": 650, "infeed": 50}


@pytest.mark.case("L4", "L5")
def test_a_step_of_a_sparse_core_alone_has_its_number_and_times() -> None:
    database = cores([(1_000_001, 0, 1000 * 10**9, {IDLE: 200 * 10**9, "op": 800 * 10**9})])
    (step,) = tpu_steps(database, {}).steps
    assert step.number == 1
    assert (step.sc_compute_ms, step.sc_idle_ms, step.sc_step_ms) == (800, 200, 1000)
    tensor = [value for name, value in vars(step).items() if name.startswith("tc_")]
    assert tensor == [0.0] * len(tensor)
    others = (step.infeed_ms, step.all_reduce_ms, step.host_transfer_ms, step.scv0_compute_ms)
    assert others == (0, 0, 0, 0)


def test_categories_add_up_to_what_people_ask_for() -> None:
    database = cores(
        [
            (
                0,
                0,
                1000,
                {
                    IDLE: 100,
                    "convolution": 200,
                    "output fusion": 50,
                    "infeed": 60,
                    "outfeed": 70,
                    "host send-done": 30,
                    "all-reduce": 40,
                    "all-to-all": 5,
                    "sparsecorev0 infeed": 25,
                    "sparsecorev0 outfeed": 10,
                    "megacore fusion": 20,
                    "fusion": 390,
                },
            )
        ]
    )
    times = tpu_breakdown(database)
    assert times.high_flops_compute_ps.tolist() == [250]
    assert times.cross_replica_sum_ps.tolist() == [45]
    assert times.scv0_infeed_transform_ps.tolist() == [10]
    assert times.wait_for_scv0_ps.tolist() == [15]
    assert times.tc_idle_ps.tolist() == [100]
    assert times.tc_busy_ps.tolist() == [1000 - (100 + 60 + 70 + 30 + 20) - 15]


def us(value: float) -> int:
    return round(value * 1_000_000)


@pytest.mark.case("W2")
def test_kernels_copies_and_collectives_share_a_step(make_space: SpaceMaker) -> None:
    device = [
        ("kernelA_fp16_half", 0, 100),
        ("MemcpyHToD", 50, 200),
        ("ncclKernel_AllReduce", 150, 300),
        ("kernelB", 400, 500),
        ("MemcpyDToH", 450, 600),
        ("MemcpyDToD", 590, 620),
    ]
    database = host_step_database(
        prepare(
            make_space(
                {
                    HOST: {
                        "main": [
                            ("train", 0, us(1000), {"_r": 1, "step_num": 1}),
                            *(
                                ("launch", us(10 + i), us(1), {"correlation_id": i})
                                for i in range(6)
                            ),
                        ]
                    },
                    GPU: {
                        f"stream {i}": [(name, us(b), us(e - b), {"correlation_id": i})]
                        for i, (name, b, e) in enumerate(device)
                    },
                }
            )
        )
    )
    found = {name: time / 1e6 for name, time in breakdown(database, 0).items()}
    assert found == {
        "unknown_time": 100,
        "host_to_device": 50,
        "device_collectives": 150,
        "device_to_device": 20,
        "device_to_host": 100,
        "device_compute_32": 100,
        "device_compute_16": 100,
    }
    assert database.duration_ps.tolist() == [us(620)]
    assert database.transfers.count.tolist() == [[1, 1, 1]]
    assert database.transfers.time_us.tolist() == [[150.0, 150.0, 30.0]]
    assert database.collectives.begin_ps.tolist() == [us(150)]
    assert database.precision_16bit_ps == database.precision_32bit_ps == us(100)


event_lists = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 17), st.integers(0, 40), st.integers(1, 15)),
    max_size=20,
)


def slow_times(
    events: list[tuple[int, int, int, int]], step: int, begin: int, end: int
) -> tuple[dict[int, int], dict[int, int]]:
    """Picosecond by picosecond: within the step, and anywhere."""
    inside: dict[int, int] = {}
    anywhere: dict[int, int] = {}
    mine = [(kind, b, b + d) for s, kind, b, d in events if s == step]
    if not mine:
        return inside, anywhere
    for now in range(min(b for _, b, _ in mine), max(e for _, _, e in mine)):
        kind = max([k for k, b, e in mine if b <= now < e], default=0)
        anywhere[kind] = anywhere.get(kind, 0) + 1
        if begin <= now < end:
            inside[kind] = inside.get(kind, 0) + 1
    return inside, anywhere


@given(event_lists, st.integers(0, 30), st.integers(0, 30), st.integers(-(10**9), 10**9))
def test_every_moment_goes_to_the_highest_type(
    events: list[tuple[int, int, int, int]], begin: int, duration: int, shift: int
) -> None:
    columns = np.array(events, np.int64).reshape(-1, 4)
    steps = np.arange(3)
    given_events = StepEvents(
        event_step=columns[:, 0],
        event_type=columns[:, 1].astype(np.uint8),
        event_begin_ps=columns[:, 2] + shift,
        event_end_ps=columns[:, 2] + columns[:, 3] + shift,
    )
    fast = exclusive_times(given_events, steps, np.full(3, begin + shift), np.full(3, duration))
    total = np.zeros(len(EVENT_TYPES), np.int64)
    for step in range(3):
        inside, anywhere = slow_times(events, step, begin, begin + duration)
        assert {k: int(v) for k, v in enumerate(fast.time_ps[step]) if v} == inside
        for kind, time in anywhere.items():
            total[kind] += time
    assert fast.total_ps.tolist() == total.tolist()


def slow_sweep(events: list[tuple[int, int, int, int]], step: int) -> list[tuple[int, int, int]]:
    """The sweep as it is defined: (type, begin, end) of every span between two boundaries."""
    boundaries = []
    for of_step, kind, begin, duration in events:
        if of_step == step:
            boundaries += [(begin, 1, -kind), (begin + duration, 0, -kind)]
    boundaries.sort()
    count = dict.fromkeys(range(len(EVENT_TYPES)), 0)
    highest, spans = 0, []
    for at, (now, is_start, negative) in enumerate(boundaries[:-1]):
        kind = -negative
        count[kind] += 1 if is_start else -1
        if is_start:
            highest = max(highest, kind)
        elif kind == highest and count[kind] == 0:
            highest = max([k for k in count if count[k] > 0], default=0)
        spans.append((highest, now, boundaries[at + 1][0]))
    return spans


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(1, 17), st.integers(0, 20), st.integers(0, 6)),
        max_size=20,
    ),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_events_without_duration_count_as_the_reference_counts_them(
    events: list[tuple[int, int, int, int]], begin: int, duration: int
) -> None:
    columns = np.array(events, np.int64).reshape(-1, 4)
    fast = exclusive_times(
        StepEvents(
            event_step=columns[:, 0],
            event_type=columns[:, 1].astype(np.uint8),
            event_begin_ps=columns[:, 2],
            event_end_ps=columns[:, 2] + columns[:, 3],
        ),
        np.arange(2),
        np.full(2, begin),
        np.full(2, duration),
    )
    for step in range(2):
        expected = np.zeros(len(EVENT_TYPES), np.int64)
        spans = slow_sweep(events, step)
        for kind, low, high in spans:
            expected[kind] += max(0, min(high, begin + duration) - max(low, begin))
        assert fast.time_ps[step].tolist() == expected.tolist()
        present = np.flatnonzero(fast.present[step])
        assert set(present.tolist()) == {kind for kind, _, _ in spans}


@pytest.mark.case("W5")
def test_hosts_without_events_have_no_steps(make_space: SpaceMaker) -> None:
    assert len(host_step_database(prepare(make_space({HOST: {"main": []}})))) == 0
    assert len(host_step_database(prepare(make_space({GPU: {}})))) == 0
    assert len(host_step_database(prepare(make_space({TPU: {"Steps": []}})))) == 0
