"""The memory viewer equals an installed XProf on programs made here: random ones, and JAX's own."""

import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import hlo_pb2, xplane_pb2

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PROGRAMS = 60
SPACES = ("0", "1", "5")
_KINDS = (
    hlo_pb2.F32, hlo_pb2.BF16, hlo_pb2.S32, hlo_pb2.PRED, hlo_pb2.F64, hlo_pb2.U8, hlo_pb2.S4,
    hlo_pb2.U64, hlo_pb2.TOKEN, hlo_pb2.F8E5M2, hlo_pb2.C64,
)  # fmt: skip
_NODE = re.compile(
    r'"(\d+)" \[tooltip="((?:[^"\\]|\\.)*)", pos="([^"]*)", width="([^"]*)", height="([^"]*)", '
    r'fixedsize=true, color="[^"]*", fontsize=([\d.]+), label="((?:[^"\\]|\\.)*)"\]'
)
_TRAIN = """
import sys, jax, jax.numpy as jnp
w = {f"w{i}": jnp.ones((256, 256)) * 0.01 for i in range(3)}
def loss(w, x):
    for i in range(3):
        x = jnp.tanh(x @ w[f"w{i}"])
    return (x ** 2).sum()
@jax.jit
def step(w, x):
    value, gradient = jax.value_and_grad(loss)(w, x)
    return jax.tree.map(lambda a, b: a - 0.01 * b, w, gradient), value
@jax.jit
def scan(x):
    return jax.lax.scan(lambda c, v: (c * 0.9 + v, jnp.sort(c)), x[0], x)
x = jnp.ones((128, 256))
with jax.profiler.trace(sys.argv[1]):
    jax.block_until_ready((step(w, x), scan(x)))
"""


class Asked:
    """One profile, asked of both."""

    def __init__(self, profile: Path) -> None:
        convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
        plugin = pytest.importorskip("xprof.convert._pywrap_profiler_plugin")
        self._xprof: Callable[..., tuple[bytes, bool]] = plugin.xspace_to_tools_data
        self._path = str(profile)
        # This is what makes it write the programs that the viewer reads.
        convert.xspace_to_tool_names([self._path])
        self.partial: HostPartial = analyze_host(profile.read_bytes(), "h0")

    def xprof(self, **parameters: str | bool) -> tuple[str, bool]:
        answer, is_good = self._xprof([self._path], "memory_viewer", parameters)
        return answer.decode(), is_good

    def podscope(self, **parameters: str) -> Any:
        try:
            return run_tool_xprof("memory_viewer", [self.partial], parameters)
        except ValueError as error:
            return error


def random_shape(rng: random.Random, depth: int = 0) -> hlo_pb2.ShapeProto:
    shape = hlo_pb2.ShapeProto()
    if depth < 2 and rng.random() < 0.2:
        shape.element_type = hlo_pb2.TUPLE
        shape.tuple_shapes.extend(random_shape(rng, depth + 1) for _ in range(rng.randint(0, 7)))
        return shape
    shape.element_type = rng.choice(_KINDS)
    if shape.element_type == hlo_pb2.TOKEN:
        return shape
    rank = rng.randint(0, 3)
    shape.dimensions.extend(rng.choice((1, 2, 7, 100, 128)) for _ in range(rank))
    shape.is_dynamic_dimension.extend(rng.random() < 0.05 for _ in range(rank))
    if rng.random() < 0.85:
        shape.layout.SetInParent()
        shape.layout.minor_to_major.extend(rng.sample(range(rank), rank))
        if rank and rng.random() < 0.4:
            shape.layout.tiles.add(dimensions=[8, 128])
        if rng.random() < 0.2:
            shape.layout.memory_space = rng.choice((1, 5))
        if rng.random() < 0.1:
            shape.layout.element_size_in_bits = rng.choice((2, 4, 8))
    return shape


def random_module(rng: random.Random, name: str) -> hlo_pb2.HloModuleProto:
    module = hlo_pb2.HloModuleProto(name=name, entry_computation_name="main")
    index = module.stack_frame_index
    index.file_names.extend(f"/a/f{i}.py" for i in range(3))
    index.function_names.append("g")
    for i in range(5):
        index.file_locations.add(
            file_name_id=rng.randint(1, 3), function_name_id=1, line=rng.randint(1, 99), column=3
        )
        index.stack_frames.add(file_location_id=i + 1, parent_frame_id=rng.randint(0, i))
    computation = module.computations.add(name="main", id=1)
    for number in range(1, rng.randint(4, 30)):
        one = computation.instructions.add(name=f"fusion.{number}", id=number, opcode="fusion")
        one.shape.CopyFrom(random_shape(rng))
        one.metadata.op_name = rng.choice(("", "jit(f)/dot", 'jit(f)/"a"<b>'))
        one.metadata.stack_frame_id = rng.randint(0, 5)
        if rng.random() < 0.3:
            one.metadata.source_file, one.metadata.source_line = "/a/src.py", rng.randint(0, 9)
        if rng.random() < 0.2:
            scoped = {"memory_space": rng.choice(("1", 1, 0)), "size": rng.randint(1, 10**6)}
            one.backend_config = json.dumps({"used_scoped_memory_configs": [scoped]}).encode()
    return module


def random_program(seed: int) -> hlo_pb2.HloProto:
    """Some allocations in some memory spaces, with traces that allocate, share and free."""
    rng = random.Random(seed)
    proto = hlo_pb2.HloProto(hlo_module=random_module(rng, f"jit_f{seed}"))
    assignment = proto.buffer_assignment
    allocations = [
        assignment.buffer_allocations.add(index=i, color=rng.choice((0, 0, 0, 1, 5)))
        for i in range(rng.randint(1, 5))
    ]
    flags = ("is_entry_computation_parameter", "is_constant", "maybe_live_out", "is_thread_local")
    for one in allocations:
        for flag in (*flags, "is_tuple"):
            setattr(one, flag, rng.random() < 0.12)
    for instruction in proto.hlo_module.computations[0].instructions:
        one = rng.choice(allocations)
        size = rng.choice((0, 4, 512, 16383, 16384, 1 << 20, rng.randint(0, 1 << 22)))
        buffer = assignment.logical_buffers.add(id=instruction.id, size=size, color=one.color)
        buffer.defined_at.instruction_id = instruction.id
        if rng.random() < 0.3:
            buffer.defined_at.shape_index.extend([rng.randint(0, 4)] * rng.randint(1, 2))
        one.assigned.add(logical_buffer_id=instruction.id, offset=one.size, size=size)
        one.size += size
    if rng.random() < 0.1:
        allocations[0].assigned.add(logical_buffer_id=10**9, size=1)
    for one in allocations:
        buffers = [place.logical_buffer_id for place in one.assigned]
        if buffers and rng.random() < 0.8:
            random_trace(rng, assignment.heap_simulator_traces.add(), buffers)
    return proto


def random_trace(rng: random.Random, trace: hlo_pb2.HeapSimulatorTrace, buffers: list[int]) -> None:
    unused, live, freed = list(buffers), [], []
    kinds = hlo_pb2.HeapSimulatorTrace.Event
    for _ in range(rng.randint(1, 60)):
        chance = rng.random()
        event = hlo_pb2.HeapSimulatorTrace.Event()
        if chance < 0.5 and unused:
            event.kind, event.buffer_id = kinds.ALLOC, unused.pop(rng.randrange(len(unused)))
            live.append(event.buffer_id)
        elif chance < 0.75 and live:
            event.kind, event.buffer_id = kinds.FREE, live.pop(rng.randrange(len(live)))
            freed.append(event.buffer_id)
        elif chance < 0.95 and unused and live + freed:
            event.kind, event.buffer_id = kinds.SHARE_WITH, unused.pop(rng.randrange(len(unused)))
            event.share_with_canonical_id = rng.choice(live + freed)
            live.append(event.buffer_id)
        elif chance > 0.98:
            event.kind, event.buffer_id = kinds.ALLOC, rng.choice([10**9, *live])
        else:
            continue
        event.instruction_name = f"i{event.buffer_id}"
        trace.events.append(event)


@pytest.fixture(scope="module")
def random_programs(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:metadata", id=1)
    plane.stat_metadata[1].id, plane.stat_metadata[1].name = 1, "Hlo Proto"
    for number in range(1, PROGRAMS + 1):
        proto = random_program(number)
        entry = plane.event_metadata[number]
        entry.id, entry.name = number, f"{proto.hlo_module.name}({number})"
        entry.stats.add(metadata_id=1).bytes_value = proto.SerializeToString()
    space.planes.add(name="/host:CPU", id=2)
    folder = tmp_path_factory.mktemp("random") / "plugins" / "profile" / "run"
    folder.mkdir(parents=True)
    profile = folder / "h0.xplane.pb"
    profile.write_bytes(space.SerializeToString())
    return Asked(profile)


@pytest.fixture(scope="module")
def jax_programs(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("jax")
    subprocess.run([sys.executable, "-c", _TRAIN, str(folder)], check=True, timeout=200)
    (profile,) = folder.rglob("*.xplane.pb")
    return Asked(profile)


def is_free(path: str) -> bool:
    return path.endswith("].color") or path in (".bySizeToMaxHeap", ".maxHeapToBySize")


def in_size_order(viewer: dict[str, Any]) -> dict[str, Any]:
    """The order of equal sizes is undefined."""
    by_size = sorted(
        viewer.get("maxHeapBySize", []),
        key=lambda one: (-one.get("logicalBufferSizeMib", 0), one["numbered"]),
    )
    return {**viewer, "maxHeapBySize": by_size}


def check_all(asked: Asked, compare: Callable[..., list[str]]) -> tuple[int, int]:
    """Compare every program in every space; how many were equal, and how many both refused."""
    equal = refused = 0
    for title in (asked.partial.programs or pytest.fail("no programs")).titles().values():
        for space in SPACES:
            expected, is_good = asked.xprof(module_name=title, memory_space=space)
            got = asked.podscope(module_name=title, memory_space=space)
            if isinstance(got, Exception):
                assert not is_good, f"{title}: {got}"
                refused += 1
                continue
            assert is_good, f"{title} in {space}: {expected}"
            got = json.loads(json.dumps(got, allow_nan=False))
            found = compare(in_size_order(json.loads(expected)), in_size_order(got), ignore=is_free)
            assert found == [], f"{title} in {space}"
            equal += 1
    return equal, refused


def test_random_programs_equal_xprofs(
    random_programs: Asked, compare: Callable[..., list[str]]
) -> None:
    equal, refused = check_all(random_programs, compare)
    assert equal + refused == PROGRAMS * len(SPACES)
    assert equal > PROGRAMS * len(SPACES) * 0.8


def test_every_program_of_a_jax_run_equals_xprofs(
    jax_programs: Asked, compare: Callable[..., list[str]]
) -> None:
    equal, refused = check_all(jax_programs, compare)
    assert (equal >= 2 * len(SPACES), refused) == (True, 0)


def test_the_timelines_boxes_are_xprofs(random_programs: Asked, jax_programs: Asked) -> None:
    drawn = 0
    for asked in (random_programs, jax_programs):
        for title in (asked.partial.programs or pytest.fail("no programs")).titles().values():
            parameters = {"module_name": title, "memory_space": "0"}
            expected, is_good = asked.xprof(**parameters, view_memory_allocation_timeline=True)
            got = asked.podscope(**parameters, view_memory_allocation_timeline="true")
            assert is_good != isinstance(got, Exception)
            if is_good:
                boxes = _NODE.findall(expected)
                assert _NODE.findall(got) == boxes
                drawn += len(boxes)
    assert drawn > PROGRAMS
