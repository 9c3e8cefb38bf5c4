"""Tools of operations equal the released XProf's for captures that vary what real ones do not."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import xplane_pb2

pytestmark = pytest.mark.interop

NS = 1_000
US = 1_000_000
PEAKS = {
    "device_type_string": "TPU v4",
    "peak_teraflops_per_second": 275.0,
    "peak_hbm_bw_gigabytes_per_second": 1200.0,
    "peak_sram_rd_bw_gigabytes_per_second": 30_000.0,
    "peak_sram_wr_bw_gigabytes_per_second": 20_000.0,
    "peak_cmem_rd_bw_gigabytes_per_second": 6_000.0,
    "peak_cmem_wr_bw_gigabytes_per_second": 4_000.0,
    "peak_vmem_rd_bw_gigabytes_per_second": 30_000.0,
    "peak_vmem_wr_bw_gigabytes_per_second": 20_000.0,
    "has_megacore": 1,
}
# Most are of one category, so that a node has more children than are shown.
CATEGORIES = (
    "convolution fusion",
    "loop fusion",
    "copy-done",
    "custom-call",
    "infeed",
    "outfeed",
    "all-reduce",
    "data formatting",
)


@dataclass
class Plane:
    """A plane whose metadata is made as events need it."""

    plane: xplane_pb2.XPlane
    stats: dict[str, int] = field(default_factory=dict)

    @property
    def sparse(self) -> bool:
        return "SparseCore" in self.plane.name

    def fill(self, owner: Any, stats: Mapping[str, object]) -> None:
        for name, value in stats.items():
            key = self.stats.setdefault(name, len(self.stats) + 1)
            self.plane.stat_metadata[key].id = key
            self.plane.stat_metadata[key].name = name
            stat = owner.stats.add(metadata_id=key)
            match value:
                case bytes():
                    stat.bytes_value = value
                case str():
                    stat.str_value = value
                case float():
                    stat.double_value = value
                case int() if name in ("program_id", "symbol_id", "offload_core_id") or self.sparse:
                    stat.uint64_value = value
                case int():
                    stat.int64_value = value

    def metadata(self, name: str, display: str, stats: Mapping[str, object]) -> int:
        key = len(self.plane.event_metadata) + 1
        entry = self.plane.event_metadata[key]
        entry.id, entry.name, entry.display_name = key, name, display
        self.fill(entry, stats)
        return key

    def event(
        self,
        line: xplane_pb2.XLine,
        key: int,
        start: int,
        duration: int,
        stats: Mapping[str, object] | None = None,
    ) -> None:
        event = line.events.add(metadata_id=key, offset_ps=start, duration_ps=duration)
        self.fill(event, stats or {})


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def breakdown(rng: random.Random) -> bytes:
    """One to four accesses of random memories."""
    out = b""
    for _ in range(rng.randint(1, 4)):
        one = b"".join(
            varint(number << 3) + varint(value)
            for number, value in (
                (1, rng.choice((0, 1, 1, 2, 2))),
                (2, rng.choice((0, 1, 1, 1, 2, 3, 5))),
                (3, rng.randint(1, 10**9)),
            )
        )
        out += b"\x0a" + varint(len(one)) + one
    return out


def operation(rng: random.Random, plane: Plane, number: int, program: int) -> int:
    """Metadata of a random operation."""
    category = rng.choice(CATEGORIES) if rng.random() < 0.5 else CATEGORIES[0]
    stem = category.replace(" ", "_")
    name = f"region_{number}" if rng.random() < 0.02 else f"{stem}.{number}"
    stats: dict[str, object] = {
        "program_id": program,
        "symbol_id": number + 1 if rng.random() < 0.97 else 0,
        "hlo_category": category,
    }
    if rng.random() < 0.8:
        stats["flops"] = rng.randint(0, 10**12)
        stats["bytes_accessed"] = rng.randint(1, 10**9)
    if rng.random() < 0.5:
        stats["model_flops"] = rng.randint(0, 10**12)
    if rng.random() < 0.6:
        stats["memory_access_breakdown"] = breakdown(rng)
    if rng.random() < 0.5:
        stats["deduplicated_name"] = f"{stem}.{rng.randint(0, 5)}"
    if rng.random() < 0.8:
        depth = rng.randint(1, 3)
        path = "/".join(rng.choice(("layer", "block", "conv", "")) for _ in range(depth))
        stats["tf_op"] = f"jit(f)/{path}/op{rng.randint(0, 3)}:{rng.choice(('', 'Conv2D'))}"
    if rng.random() < 0.5:
        stats["source"] = f"/model/file.py:{rng.randint(1, 99)}"
        stats["source_stack"] = "/model/file.py:3:1\n/model/main.py:8:2\n"
    if stem.endswith("fusion") and rng.random() < 0.5:
        children = [part(rng, plane, f"{name}.part{n}") for n in range(rng.choice((1, 3, 5, 110)))]
        key = plane.metadata(f"%{name} = f32[8] fusion()", name, stats)
        plane.plane.event_metadata[key].child_id.extend(children)
        return key
    text = f"%{name} = bf16[{rng.randint(1, 300)},128]{{1,0:T(8,128)}} {stem}(bf16[8] %x)"
    return plane.metadata(text, name, stats)


def part(rng: random.Random, plane: Plane, name: str) -> int:
    """Metadata of an operation within a fusion."""
    stats: dict[str, object] = {"hlo_category": "non-fusion elementwise"}
    # Told apart by it: the release's order of equal ones is arbitrary.
    stats["model_flops"] = rng.randint(1, 10**12)
    if rng.random() < 0.7:
        stats |= {"flops": rng.randint(0, 10**9), "bytes_accessed": rng.randint(0, 10**9)}
    if rng.random() < 0.5:
        stats |= {"memory_access_breakdown": breakdown(rng), "tf_op": "a/b:Add"}
    return plane.metadata(f"%{name} = f32[8] add()", name, stats)


def tensor_core(space: xplane_pb2.XSpace, seed: int, core: int, count: int, offload: bool) -> None:
    """A core that runs steps of random operations, some of them within others."""
    rng = random.Random(seed)
    plane = Plane(space.planes.add(name=f"/device:TPU:{core}", id=core + 1))
    plane.fill(plane.plane, PEAKS)
    operations = [operation(rng, plane, n, rng.choice((7, 2**63 + 9))) for n in range(count)]
    loop = plane.metadata(
        "%while.1 = () while(%t)",
        "while.1",
        {"program_id": 7, "symbol_id": 900, "hlo_category": "while", "flops": 5 * 10**9},
    )
    rng = random.Random(seed * 100 + core)
    lines = {
        name: plane.plane.lines.add(id=n + 1, name=name, timestamp_ns=1_000)
        for n, name in enumerate(("Steps", "XLA Modules", "XLA Ops"))
    }
    module = plane.metadata("jit_f(7)", "", {})
    at = 0
    if offload:
        for n in range(2):
            stats: dict[str, object] = {
                "program_id": 7,
                "symbol_id": 950 + n,
                "hlo_category": "custom fusion",
            }
            key = plane.metadata(f"%offload.{n} = f32[8] fusion()", f"offload.{n}", stats)
            linked = {"offload_core_id": 1, "tc_offload_start_id": n}
            plane.event(lines["XLA Ops"], key, at, 5 * US - n, linked)
            at += 5 * US
    for step in range(4):
        begin = at
        for _ in range(count // 2):
            length = rng.randint(1, 900_000)
            stats = {}
            if rng.random() < 0.3:
                stats["dma_stall_duration_ps"] = length // 3
            if rng.random() < 0.4:
                stats["Time Scale Multiplier"] = rng.choice((0.37, 1.5))
            if rng.random() < 0.2:
                stats |= {"flops": 10**9, "bytes_accessed": 10**6}
            if rng.random() < 0.1:
                scale = {"Time Scale Multiplier": rng.choice((0.3, 1.0, 1.7))}
                plane.event(lines["XLA Ops"], loop, at, 3 * length, scale)
                plane.event(lines["XLA Ops"], rng.choice(operations), at + length, length, stats)
                at += 3 * length
            else:
                plane.event(lines["XLA Ops"], rng.choice(operations), at, length, stats)
                at += length
            at += rng.choice((0, 0, 50 * NS))
        plane.event(lines["XLA Modules"], module, begin, at - begin, {"run_id": step})
        marker = plane.metadata(str(step), "", {})
        plane.event(lines["Steps"], marker, begin, at - begin + 100 * NS, {"group_id": step})
        at += 2 * US


def sparse_core(space: xplane_pb2.XSpace) -> None:
    """Two modules that the first TensorCore offloaded, with operations in and around them."""
    plane = Plane(space.planes.add(name="/device:TPU:0 SparseCore 0", id=50))
    modules = plane.plane.lines.add(id=1, name="Sparse Core Modules", timestamp_ns=1_000)
    ops = plane.plane.lines.add(id=2, name="Sparse Core Ops", timestamp_ns=1_000)
    module = plane.metadata("sparse_module", "", {})
    for n in range(2):
        plane.event(
            modules, module, n * 5 * US, 4 * US, {"offload_core_id": 1, "tc_offload_start_id": n}
        )
    for n, (begin, length) in enumerate(
        ((0, US), (2 * US, US), (5 * US, 2 * US), (8 * US, 3 * US))
    ):
        stats = {
            "program_id": 7,
            "symbol_id": 20 + n,
            "hlo_category": "gather",
            "flops": 10**6 * n,
            "tf_op": "embed/lookup:Gather",
        }
        key = plane.metadata(f"%gather.{n} = f32[8] gather()", f"gather.{n}", stats)
        plane.event(ops, key, begin, length - n)


def capture(seed: int) -> bytes:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    count = 400 if seed == 2 else 90
    for core in range(2):
        tensor_core(space, seed, core, count, offload=seed == 1)
    if seed == 1:
        sparse_core(space)
    return space.SerializeToString()


Ask = Callable[..., Any]


def released(run: Path) -> Ask:
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")

    def ask(tool: str, **parameters: str) -> Any:
        for cached in run.glob("*op_stats*"):
            cached.unlink()
        paths = sorted(str(path) for path in run.glob("*.xplane.pb"))
        answer, _ = convert.xspace_to_tool_data(
            paths, tool, {"use_saved_result": False, **parameters}
        )
        return json.loads(answer)

    return ask


@pytest.fixture(scope="module", params=[(1,), (2,), (3, 4)], ids=str)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ask, Ask]:
    """Release and podscope asked about the same hosts."""
    run = tmp_path_factory.mktemp("run")
    partials = []
    for number, seed in enumerate(request.param):
        content = capture(seed)
        (run / f"h{number}.xplane.pb").write_bytes(content)
        partials.append(analyze_host(content, f"h{number}"))

    def ours(tool: str, **parameters: str) -> Any:
        return json.loads(json.dumps(run_tool_xprof(tool, partials, parameters), allow_nan=False))

    return released(run), ours


@pytest.mark.parametrize("tool", ["hlo_stats", "roofline_model", "framework_op_stats"])
def test_a_table_equals_the_release(
    tool: str, both: tuple[Ask, Ask], compare: Callable[..., list[str]]
) -> None:
    theirs, ours = both
    assert compare(theirs(tool), ours(tool)) == []


@pytest.mark.parametrize("grouping", ["program", "category", "provenance", "nonsense"])
def test_an_op_profile_equals_the_release(
    grouping: str, both: tuple[Ask, Ask], compare: Callable[..., list[str]]
) -> None:
    theirs, ours = both
    expected = theirs("op_profile", group_by=grouping)
    found = ours("op_profile", group_by=grouping)
    # The release truncates at every addition, in an order that differs from run to run.
    scale = "aggDvfsTimeScaleMultiplier"
    assert found.pop(scale) == pytest.approx(expected.pop(scale), rel=1e-7)
    assert compare(expected, found) == []
