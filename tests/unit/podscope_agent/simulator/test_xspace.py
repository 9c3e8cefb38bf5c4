"""What a simulated host records is valid, deterministic and what was planted."""

import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace

import pytest

from podscope_agent.errors import SimulationError
from podscope_agent.simulator import (
    DEVICES,
    Pod,
    ServedHost,
    TraceOptions,
    build_xspace,
    planted_truth,
)
from podscope_protos.v1 import hlo_pb2, xplane_pb2

DEVICE_NAMES = sorted(DEVICES)


def space_of(pod: Pod, host: int = 0, options: TraceOptions | None = None) -> xplane_pb2.XSpace:
    return xplane_pb2.XSpace.FromString(build_xspace(pod, host, options=options))


def plane_of(space: xplane_pb2.XSpace, name: str) -> xplane_pb2.XPlane:
    return next(plane for plane in space.planes if plane.name == name)


def stats_of(plane: xplane_pb2.XPlane, stats: list[xplane_pb2.XStat]) -> dict[str, object]:
    values: dict[str, object] = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        assert kind is not None
        value = getattr(stat, kind)
        if kind == "ref_value":
            value = plane.stat_metadata[value].name
        values[plane.stat_metadata[stat.metadata_id].name] = value
    return values


def truth_of(pod: Pod) -> dict[str, object]:
    hosts = [ServedHost(i, pod.hostname(i), "", None) for i in range(pod.hosts)]
    return planted_truth(pod, hosts)


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_the_same_pod_gives_the_same_bytes(device: str) -> None:
    first = build_xspace(Pod(device, hosts=3, seed=5), 1)
    assert build_xspace(Pod(device, hosts=3, seed=5), 1) == first
    assert build_xspace(Pod(device, hosts=3, seed=6), 1) != first
    assert build_xspace(Pod(device, hosts=3, seed=5), 2) != first


def test_another_process_gives_the_same_bytes() -> None:
    """Nothing depends on hash seeds, object addresses or what was simulated before."""
    program = (
        "import hashlib, sys; from podscope_agent.simulator import Pod, build_xspace;"
        "sys.stdout.write(hashlib.sha256(build_xspace(Pod('gpu-h100', hosts=2), 1)).hexdigest())"
    )
    environment = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "7"}
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    build_xspace(Pod("cpu", seed=3))
    here = hashlib.sha256(build_xspace(Pod("gpu-h100", hosts=2), 1)).hexdigest()
    assert answer.stdout == here


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_the_encoding_is_canonical_protobuf(device: str) -> None:
    """Parsing and writing again loses nothing: no unknown field, no padded number."""
    encoded = build_xspace(Pod(device, hosts=2, steps=3))
    parsed = xplane_pb2.XSpace.FromString(encoded)
    assert parsed.ByteSize() == len(encoded)
    assert xplane_pb2.XSpace.FromString(parsed.SerializeToString()) == parsed


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_events_are_in_order_and_within_the_profile(device: str) -> None:
    pod = Pod(device, hosts=3, slow_host=1, input_bound=0.2)
    window = pod.steps_window()
    length_ps = (window.stop_ns - window.start_ns) * 1000
    for plane in space_of(pod, 1).planes:
        for line in plane.lines:
            previous = (-1, 0)
            for event in line.events:
                key = (event.offset_ps, -event.duration_ps)
                assert previous <= key, (plane.name, line.name)
                previous = key
                start = line.timestamp_ns * 1000 + event.offset_ps
                assert start >= 0
                assert start + event.duration_ps <= length_ps


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_events_of_a_thread_or_core_nest(device: str) -> None:
    for plane in space_of(Pod(device, hosts=2, input_bound=0.3)).planes:
        for line in plane.lines:
            if line.name == "Async XLA Ops":
                continue
            open_ends: list[int] = []
            for event in line.events:
                while open_ends and open_ends[-1] <= event.offset_ps:
                    open_ends.pop()
                end = event.offset_ps + event.duration_ps
                if open_ends and event.duration_ps:
                    name = plane.event_metadata[event.metadata_id].name
                    assert end <= open_ends[-1], (plane.name, line.name, name)
                open_ends.append(end)


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_every_id_that_is_used_is_defined(device: str) -> None:
    for plane in space_of(Pod(device, steps=2)).planes:
        owners = [plane.stats, *(entry.stats for entry in plane.event_metadata.values())]
        for line in plane.lines:
            for event in line.events:
                assert event.metadata_id in plane.event_metadata
                owners.append(event.stats)
        for stats in owners:
            for stat in stats:
                assert stat.metadata_id in plane.stat_metadata
                if stat.WhichOneof("value") == "ref_value":
                    assert stat.ref_value in plane.stat_metadata
        for key, entry in plane.event_metadata.items():
            assert entry.id == key


def test_a_tpu_core_records_what_was_planted() -> None:
    """Self times per category of the XLA ops, summed by hand, equal the truth to the picosecond."""
    pod = Pod("tpu-v5e", hosts=3, slow_host=2, input_bound=0.25, steps=4)
    truth = truth_of(pod)
    for host in range(3):
        totals: dict[str, int] = defaultdict(int)
        flops = 0
        space = space_of(pod, host)
        for core in range(4):
            plane = plane_of(space, f"/device:TPU:{core}")
            line = next(line for line in plane.lines if line.name == "XLA Ops")
            loop: tuple[int, str] | None = None
            for event in line.events:
                values = stats_of(plane, list(plane.event_metadata[event.metadata_id].stats))
                category = str(values["hlo_category"])
                flops += int(str(values["flops"]))
                totals[category] += event.duration_ps
                end = event.offset_ps + event.duration_ps
                if category == "while":
                    loop = (end, category)
                elif loop is not None and end <= loop[0]:
                    totals["while"] -= event.duration_ps
        planted = truth["hosts"][host]["category_ps"]  # type: ignore[index] # a JSON document
        assert dict(totals) == planted
        program = truth["program"]
        per_step = program["flops_per_core_step"]  # type: ignore[index] # a JSON document
        assert flops == 4 * 4 * per_step


def test_the_all_reduce_ends_for_all_cores_of_the_pod_together() -> None:
    pod = Pod("tpu-v5e", hosts=3, slow_host=1, steps=3)
    ends: dict[int, set[int]] = defaultdict(set)
    shortest: dict[int, tuple[int, int]] = {}
    for host in range(3):
        space = space_of(pod, host)
        for core in range(4):
            plane = plane_of(space, f"/device:TPU:{core}")
            for event in next(line for line in plane.lines if line.name == "XLA Ops").events:
                unique = stats_of(plane, list(event.stats)).get("all_reduce_unique_id")
                if isinstance(unique, int):
                    ends[unique].add(event.offset_ps + event.duration_ps)
                    best = (event.duration_ps, host)
                    shortest[unique] = min(shortest.get(unique, best), best)
    assert len(ends) == 3 * 2
    assert all(len(values) == 1 for values in ends.values())
    first_of_step = [host for unique, (_, host) in shortest.items() if unique & 0xFFFF == 1]
    assert first_of_step == [1, 1, 1], "the slow host waits least"


def test_gpu_kernels_belong_to_a_launch_of_their_host() -> None:
    space = space_of(Pod("gpu-h100", steps=2))
    host = plane_of(space, "/host:CPU")
    launched = [
        stats_of(host, list(event.stats)).get("correlation_id")
        for line in host.lines
        for event in line.events
    ]
    launches = [number for number in launched if number is not None]
    kernels = [
        stats_of(plane, list(event.stats))["correlation_id"]
        for plane in space.planes
        if plane.name.startswith("/device:GPU:")
        for line in plane.lines
        for event in line.events
    ]
    assert len(set(launches)) == len(launches)
    assert sorted(map(str, kernels)) == sorted(map(str, launches))


@pytest.mark.parametrize("device", DEVICE_NAMES)
@pytest.mark.parametrize("events", [2_000, 60_000])
def test_about_the_wanted_number_of_events_is_recorded(device: str, events: int) -> None:
    pod = Pod(device, steps=5, events=events)
    truth = truth_of(pod)
    count = truth["capture"]["events"]  # type: ignore[index] # a JSON document
    recorded = sum(len(line.events) for plane in space_of(pod).planes for line in plane.lines)
    assert count == recorded
    # The smallest program has one layer, which is already some thousand events on eight GPUs.
    assert events * 0.8 <= recorded <= max(events * 1.3, 6_000)


@pytest.mark.parametrize(
    ("device", "slices"), [*((name, 1) for name in DEVICE_NAMES), ("tpu-v5e", 2)]
)
def test_the_hlo_proto_is_consistent(device: str, slices: int) -> None:
    pod = Pod(device, hosts=2, slices=slices)
    plane = plane_of(space_of(pod), "/host:metadata")
    (entry,) = plane.event_metadata.values()
    proto = hlo_pb2.HloProto.FromString(bytes(stats_of(plane, list(entry.stats))["Hlo Proto"]))  # type: ignore[call-overload] # bytes
    module = proto.hlo_module
    assert entry.name == f"{module.name}({entry.id})"
    known: set[int] = set()
    ids: set[int] = set()
    for computation in module.computations:
        for instruction in computation.instructions:
            assert instruction.id not in ids
            assert set(instruction.operand_ids) <= ids
            assert set(instruction.called_computation_ids) <= known
            ids.add(instruction.id)
        assert computation.root_id in ids
        known.add(computation.id)
    names = {i.name for c in module.computations for i in c.instructions}
    assert {op.name for op in pod.program.ops} <= names
    for sequence in module.schedule.sequences.values():
        assert set(sequence.instruction_ids) <= ids


@pytest.mark.parametrize(
    ("device", "slices"), [*((name, 1) for name in DEVICE_NAMES), ("tpu-v5e", 2)]
)
def test_buffers_that_live_at_the_same_time_do_not_overlap(device: str, slices: int) -> None:
    pod = Pod(device, slices, slices=slices)
    assignment = hlo_pb2.HloProto.FromString(pod.hlo).buffer_assignment
    (trace,) = assignment.heap_simulator_traces
    heap = assignment.buffer_allocations[trace.buffer_allocation_index]
    places = {a.logical_buffer_id: (a.offset, a.offset + a.size) for a in heap.assigned}
    live: set[int] = set()
    for event in trace.events:
        if event.kind == hlo_pb2.HeapSimulatorTrace.Event.FREE:
            live.remove(event.buffer_id)
            continue
        start, end = places[event.buffer_id]
        assert end <= heap.size
        assert all(end <= places[b][0] or places[b][1] <= start for b in live)
        live.add(event.buffer_id)
    assert not live
    assert len(places) > 20


def test_memory_returns_to_where_it_was_after_each_step() -> None:
    plane = plane_of(space_of(Pod("tpu-v6e", steps=3)), "/host:CPU")
    balance: dict[object, int] = defaultdict(int)
    count = 0
    for line in plane.lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            if name in {"MemoryAllocation", "MemoryDeallocation"}:
                values = stats_of(plane, list(event.stats))
                sign = 1 if name == "MemoryAllocation" else -1
                balance[values["index_on_host"]] += sign * int(str(values["allocation_bytes"]))
                count += 1
    assert dict(balance) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert count == 3 * 4 * 2 * 3


def test_what_is_not_asked_for_is_not_recorded() -> None:
    pod = Pod("tpu-v5e", steps=2)
    without_host = space_of(pod, options=TraceOptions(host_tracer_level=0))
    assert not plane_of(without_host, "/host:CPU").lines
    without_device = space_of(pod, options=TraceOptions(device_tracer_level=0))
    assert not [p for p in without_device.planes if p.name.startswith("/device")]
    without_hlo = space_of(pod, options=TraceOptions(enable_hlo_proto=False))
    assert not plane_of(without_hlo, "/host:metadata").event_metadata


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_the_python_tracer_adds_calls_in_order(device: str) -> None:
    pod = Pod(device, steps=3)
    with_calls = TraceOptions(python_tracer_level=1)
    plane = plane_of(space_of(pod, options=with_calls), "/host:CPU")
    line = next(line for line in plane.lines if line.name == "python")
    names = [plane.event_metadata[event.metadata_id].name for event in line.events]
    assert sum(name.startswith("$") for name in names) == 3 * 5
    starts = [event.offset_ps for event in line.events]
    assert starts == sorted(starts)
    plain = plane_of(space_of(pod), "/host:CPU")
    assert not any(entry.name.startswith("$") for entry in plain.event_metadata.values())


@pytest.mark.parametrize("device", DEVICE_NAMES)
def test_every_batch_that_is_consumed_was_produced(device: str) -> None:
    plane = plane_of(space_of(Pod(device, steps=4)), "/host:CPU")
    elements: dict[str, list[object]] = defaultdict(list)
    for line in plane.lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            if name in {"PrefetchProduce", "PrefetchConsume"}:
                elements[name].append(stats_of(plane, list(event.stats))["element_id"])
    assert len(set(elements["PrefetchProduce"])) == 4
    assert elements["PrefetchProduce"] == elements["PrefetchConsume"]


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_input_bound_share_of_the_step_is_about_what_was_asked(ratio: float) -> None:
    pod = Pod("tpu-v5e", hosts=4, input_bound=ratio)
    waited = sum(step.input_ps[0] for step in pod.timeline.steps)
    total = sum(step.end_ps for step in pod.timeline.steps)
    assert waited / total == pytest.approx(ratio, abs=0.02)


def test_timings_repeat_so_that_any_capture_is_a_rotation_of_the_truth() -> None:
    pod = Pod("tpu-v5e", hosts=2, steps=5)
    timeline = pod.timeline
    assert timeline.timing(12) == timeline.timing(2)
    assert timeline.start_ps(7) - timeline.start_ps(2) == timeline.start_ps(5)
    for step in (0, 3, 5, 17):
        start = timeline.start_ps(step)
        assert timeline.step_at(start) == step
        assert timeline.step_at(start + 1) == step + 1


def test_a_window_without_a_step_limit_holds_the_complete_steps() -> None:
    pod = Pod("cpu", hosts=1, steps=0)
    start_ns = pod.step_start_ns(3) - 2_000_000
    window = pod.window(start_ns, pod.step_start_ns(9) + 1_000_000)
    assert list(window.steps) == [3, 4, 5, 6, 7, 8]
    assert pod.window(start_ns, start_ns + 5_000_000).step_count == 0
    assert pod.window(start_ns, start_ns + 36_000 * 10**9).step_count == 10_000


@pytest.mark.parametrize(
    ("field", "value", "part"),
    [
        ("device", "tpu-v9", "choose one of tpu-v5e"),
        ("hosts", 0, "hosts 0 is out of range"),
        ("hosts", 100_000, "out of range"),
        ("steps", -1, "steps -1"),
        ("events", 0, "events 0"),
        ("slow_host", 4, "give 0 to 3"),
        ("slow_factor", 0.5, "slow factor 0.5"),
        ("slices", 8, "slices 8"),
        ("slices", 3, "4 hosts do not make 3 equal slices"),
        ("input_bound", 1.0, "input-bound 1.0"),
        ("input_bound", float("nan"), "input-bound nan"),
    ],
)
def test_a_pod_that_cannot_be_is_refused(field: str, value: object, part: str) -> None:
    with pytest.raises(SimulationError, match=part):
        replace(Pod("tpu-v5e", hosts=4), **{field: value})  # type: ignore[arg-type] # wrong on purpose


def test_slices_of_anything_but_tpus_are_refused() -> None:
    with pytest.raises(SimulationError, match="slices are of TPUs, not of gpu-h100"):
        Pod("gpu-h100", hosts=2, slices=2)
