"""What must not change a result: the clock's origin, the order of lines, a line in two parts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from podscope_analyzers.hlo import read_programs
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.host_databases import device_op_database, host_op_database
from podscope_analyzers.prepare import prepare
from podscope_analyzers.steps import host_step_database
from podscope_analyzers.xspace import open_xspace
from podscope_protos.v1 import xplane_pb2

STEP_PS = 100_000
_KERNELS = ("matmul", "fp16_gemm", "ncclAllReduce", "MemcpyHToD")
_settings = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Plane:
    """A plane whose names are numbered as they come."""

    def __init__(self, space: xplane_pb2.XSpace, name: str) -> None:
        self.proto = space.planes.add(name=name, id=len(space.planes))

    def stat(self, owner: Any, name: str, value: int | str) -> None:
        known = {entry.name: key for key, entry in self.proto.stat_metadata.items()}
        key = known.setdefault(name, len(known) + 1)
        self.proto.stat_metadata[key].id, self.proto.stat_metadata[key].name = key, name
        if isinstance(value, str):
            owner.stats.add(metadata_id=key, str_value=value)
        else:
            owner.stats.add(metadata_id=key, int64_value=value)

    def metadata(self, name: str, **stats: int | str) -> int:
        for key, entry in self.proto.event_metadata.items():
            if entry.name == name:
                return key
        key = len(self.proto.event_metadata) + 1
        entry = self.proto.event_metadata[key]
        entry.id, entry.name = key, name
        for stat, value in stats.items():
            self.stat(entry, stat, value)
        return key

    def event(self, line: Any, row: int, start: int, duration: int, **stats: int | str) -> None:
        event = line.events.add(metadata_id=row, offset_ps=start, duration_ps=duration)
        for name, value in stats.items():
            self.stat(event, name, value)


@st.composite
def gpu_spaces(draw: st.DrawFn) -> xplane_pb2.XSpace:
    """A host that launches kernels in its steps, and their streams; no two begin together."""
    space = xplane_pb2.XSpace(hostnames=["h"])
    host, device = Plane(space, "/host:CPU"), Plane(space, "/device:GPU:0")
    steps = draw(st.integers(1, 3))
    threads = [host.proto.lines.add(id=1, name="main"), host.proto.lines.add(id=2, name="other")]
    for step in range(steps):
        row = host.metadata("train")
        host.event(threads[0], row, step * STEP_PS, STEP_PS - 1, _r=1, step_num=step)
        launch = host.metadata("launch")
        host.event(threads[0], launch, step * STEP_PS + 5, 10, correlation_id=step + 1)
        other = host.metadata("scope/read:Read")
        host.event(threads[1], other, step * STEP_PS + 7, draw(st.integers(1, 500)))
    count = draw(st.integers(1, 14))
    starts = draw(
        st.lists(st.integers(0, steps * STEP_PS), min_size=count, max_size=count, unique=True).map(
            sorted
        )
    )
    streams = [device.proto.lines.add(id=10 + n, name=f"Stream #{10 + n}") for n in range(3)]
    for start in starts:
        name = draw(st.sampled_from(_KERNELS))
        device.event(
            draw(st.sampled_from(streams)),
            device.metadata(name),
            start,
            draw(st.integers(1, STEP_PS)),
            correlation_id=draw(st.integers(1, steps)),
            kernel_details="regs:1",
            tf_op=draw(st.sampled_from(["a/b/mul:Mul", "a/add:Add"])),
        )
    return space


@st.composite
def tpu_spaces(draw: st.DrawFn) -> xplane_pb2.XSpace:
    """Two cores with the same steps, each with operations that hold others."""
    space = xplane_pb2.XSpace(hostnames=["h"])
    steps = draw(st.integers(1, 3))
    for core in range(2):
        plane = Plane(space, f"/device:TPU:{core}")
        lines = {
            name: plane.proto.lines.add(id=number, name=name)
            for number, name in enumerate(("Steps", "XLA Modules", "XLA Ops"), start=1)
        }
        for step in range(steps):
            at, length = step * STEP_PS, STEP_PS - draw(st.integers(1, 1000))
            plane.event(lines["Steps"], plane.metadata(f"{step}"), at, length)
            plane.event(lines["XLA Modules"], plane.metadata("jit_f(1)"), at, length)
            begin = at
            for _ in range(draw(st.integers(0, 4))):
                begin += draw(st.integers(1, 5000))
                duration = draw(st.integers(1, 9000))
                name = draw(st.sampled_from(["fusion", "all-reduce", "convolution"]))
                kind: dict[str, int | str] = {"hlo_category": name, "program_id": 1}
                row = plane.metadata(name, **kind, symbol_id=len(name), tf_op="a/b:B")
                plane.event(lines["XLA Ops"], row, begin, duration)
                if draw(st.booleans()):
                    row = plane.metadata("copy", hlo_category="copy", program_id=1, symbol_id=1)
                    plane.event(lines["XLA Ops"], row, begin, duration // 2)
                begin += duration
    return space


spaces = st.one_of(gpu_spaces(), tpu_spaces())


@dataclass
class Results:
    """What is compared of a host; operations by program and name."""

    steps: dict[tuple[int, int], Any]
    device_ops: dict[tuple[int, str], Any]
    host_ops: dict[tuple[int, str], Any]
    derived: dict[tuple[str, str], Any]


def _operations(database: OpDatabase) -> dict[tuple[int, str], Any]:
    texts = ("category", "provenance", "long_name")
    found: dict[tuple[int, str], Any] = {
        (database.module_id(row), database.text("name", row)): (
            [database.text(name, row) for name in texts],
            [
                database.column(name)[row].item()
                for name in ("occurrences", "time_ps", "self_time_ps", "flops", "num_cores")
            ],
        )
        for row in range(database.top_count)
    }
    totals = (database.total_time_ps, database.total_op_time_ps, database.busy_time_ps)
    return {**found, (-1, "totals"): totals}


def results(space: xplane_pb2.XSpace, *, shift_ps: int = 0) -> Results:
    prepared = prepare(open_xspace(space.SerializeToString()))
    steps = host_step_database(prepared)
    derived: dict[tuple[str, str], Any] = {}
    for plane in prepared.planes:
        for line in (*plane.lines, *plane.derived_lines):
            if not line.is_derived:
                continue
            columns, names = line.columns(), plane.event_metadata.names
            rows = [names[row] for row in columns.metadata.tolist()]
            starts = (columns.start_ps - shift_ps).tolist()
            derived[plane.name, line.name] = (
                list(zip(rows, starts, columns.duration_ps.tolist(), strict=True)),
                line.group_id.tolist(),
            )
    return Results(
        steps={
            (int(steps.step_numbers[step]), int(core)): (
                int(begin) - shift_ps,
                int(duration),
                {name: int(time) for name, time in zip(steps.categories, row, strict=True) if time},
            )
            for step, core, begin, duration, row in zip(
                steps.row_step,
                steps.core_id,
                steps.begin_ps,
                steps.duration_ps,
                steps.breakdown_ps,
                strict=True,
            )
        },
        device_ops=_operations(device_op_database(prepared, read_programs(prepared))),
        host_ops=_operations(host_op_database(prepared)),
        derived=derived,
    )


def copy(space: xplane_pb2.XSpace) -> xplane_pb2.XSpace:
    other = xplane_pb2.XSpace()
    other.CopyFrom(space)
    return other


@_settings
@given(spaces, st.integers(0, 10**9))
def test_another_origin_of_time_shifts_steps_and_changes_nothing_else(
    space: xplane_pb2.XSpace, shift_ns: int
) -> None:
    shifted = copy(space)
    for plane in shifted.planes:
        for line in plane.lines:
            line.timestamp_ns += shift_ns
    assert results(shifted, shift_ps=1000 * shift_ns) == results(space)


@_settings
@given(spaces, st.randoms(use_true_random=False))
def test_the_order_of_lines_changes_nothing(space: xplane_pb2.XSpace, random: Any) -> None:
    shuffled = copy(space)
    for plane in shuffled.planes:
        lines = [copy_line(line) for line in plane.lines]
        random.shuffle(lines)
        del plane.lines[:]
        plane.lines.extend(lines)
    assert results(shuffled) == results(space)


def copy_line(line: xplane_pb2.XLine) -> xplane_pb2.XLine:
    other = xplane_pb2.XLine()
    other.CopyFrom(line)
    return other


@_settings
@given(spaces, st.data())
def test_a_line_of_operations_in_two_parts_is_the_same_line(
    space: xplane_pb2.XSpace, data: st.DataObject
) -> None:
    split = copy(space)
    candidates = [
        (plane, line)
        for plane in split.planes
        for line in plane.lines
        if line.name == "XLA Ops" or line.name.startswith("Stream")
    ]
    plane, line = data.draw(st.sampled_from(candidates))
    ends = np.array([event.offset_ps + event.duration_ps for event in line.events])
    # A part begins where nothing goes on: what holds others stays with them.
    places = [at for at in range(1, len(ends)) if ends[:at].max() < line.events[at].offset_ps]
    assume(places)
    at = data.draw(st.sampled_from(places))
    rest = plane.lines.add(id=line.id, name=line.name)
    rest.events.extend(line.events[at:])
    del line.events[at:]
    before, after = results(space), results(split)
    assert after.steps == before.steps
    assert after.device_ops == before.device_ops
    assert after.host_ops == before.host_ops


def test_the_drawn_spaces_have_steps_and_operations() -> None:
    """Otherwise nothing above would be compared."""
    seen = {"steps": 0, "device_ops": 0, "derived": 0}

    @settings(max_examples=20, deadline=None, database=None)
    @given(spaces)
    def count(space: xplane_pb2.XSpace) -> None:
        found = results(space)
        for name in seen:
            seen[name] += len(getattr(found, name)) > 1

    count()
    assert all(number >= 5 for number in seen.values()), seen


@pytest.mark.parametrize("kind", ["gpu", "tpu"])
def test_results_of_a_drawn_space_are_those_worked_by_hand(kind: str) -> None:
    space = xplane_pb2.XSpace(hostnames=["h"])
    if kind == "gpu":
        host, plane = Plane(space, "/host:CPU"), Plane(space, "/device:GPU:0")
        main = host.proto.lines.add(id=1, name="main")
        host.event(main, host.metadata("train"), 0, 1000, _r=1, step_num=4)
        host.event(main, host.metadata("launch"), 5, 10, correlation_id=1)
        line = plane.proto.lines.add(id=10, name="Stream #10")
        told: dict[str, int | str] = {"correlation_id": 1, "tf_op": "a/add:Add"}
        plane.event(line, plane.metadata("matmul"), 100, 300, **told)
        found = results(space)
        assert found.steps == {(0, 1): (100, 300, {"device_compute_32": 300})}
        assert found.device_ops[0, "a/add/matmul"][1][:3] == [1, 300, 300]
    else:
        plane = Plane(space, "/device:TPU:0")
        steps = plane.proto.lines.add(id=1, name="Steps")
        plane.event(steps, plane.metadata("0"), 0, 1000)
        line = plane.proto.lines.add(id=3, name="XLA Ops")
        about: dict[str, int | str] = {"hlo_category": "fusion", "program_id": 1, "symbol_id": 2}
        plane.event(line, plane.metadata("fusion", **about), 100, 300)
        found = results(space)
        assert found.steps == {(0, 0): (0, 1000, {"IDLE": 700, "fusion": 300})}
        assert found.device_ops[1, "fusion"][1][:3] == [1, 300, 300]
