"""Counters, units and transfers between slices equal an installed XProf's on files made here."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import hlo_pb2, xplane_pb2

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PREFIX = "VF_CHIP_TC_TCS_TC_MISC_TCS_STATS_TCS_STATS_COUNTERS_UNPRIVILEGED_COUNT_"
FIRST_ID = 3257466888
# Numbers of a v6e's counters, by eights from the first.
COUNTERS = {0: "CYCLES", 10: "SCALAR_ALU_INSTRUCTION_0", 11: "SCALAR_ALU_INSTRUCTION_1"}
COUNTERS |= {31 + i: f"VECTOR_ALU_INSTRUCTION_{i}" for i in range(4)}
COUNTERS |= {35: "VST_INSTRUCTION", 37: "VLD_INSTRUCTION_0", 38: "VLD_INSTRUCTION_1"}
COUNTERS |= {64 + i: f"MXU_BUSY_{i}" for i in range(3)}
COUNTERS |= {69: "MATPUSH_CYCLES_MXU_0", 70: "MATPUSH_CYCLES_MXU_1"}
COUNTERS |= {81 + i: f"XLU_BUSY_{i}" for i in range(3)}
for _at, _what in enumerate(
    ["VREG_F32", "VREG_BF16", "VREG_F8", "VREG_I8", "VREG_I4", "LMR_BF16", "LMR_I8", "LMR_I4"]
):
    COUNTERS |= {48 + 2 * _at + unit: f"MATMUL_{_what}_MXU_{unit}" for unit in (0, 1)}
for _at, _what in enumerate(
    ["ROTATE_PERMUTE_INSTRUCTION", "ROTATE_PERMUTE_SET_INSTRUCTION", "TRANSPOSE", "PACKED"]
):
    COUNTERS |= {73 + 2 * _at + unit: f"{_what}_XLU_{unit}" for unit in (0, 1)}

_HLO = """HloModule jit_f, is_scheduled=true

ENTRY main {
  p = f32[1003]{0} parameter(0)
  tok = token[] after-all()
%s
  ROOT r = f32[1003]{0} negate(p)
}
"""
_BUFFER = "(f32[1003]{0}, u32[], token[])"
TYPES = ("ALL_GATHER", "ALL_REDUCE", "ONE_TO_ONE", "REDUCE_SCATTER", "ALL_TO_ALL", "OTHER")


class Plane:
    """A plane whose metadata is made as events need it."""

    def __init__(self, space: xplane_pb2.XSpace, name: str) -> None:
        self.proto = space.planes.add(name=name, id=len(space.planes) + 1)
        self._names: dict[str, int] = {}
        self._stats: dict[str, int] = {}

    def fill(self, owner: Any, stats: dict[str, Any]) -> None:
        for name, value in stats.items():
            key = self._stats.setdefault(name, len(self._stats) + 1)
            self.proto.stat_metadata[key].id = key
            self.proto.stat_metadata[key].name = name
            stat = owner.stats.add(metadata_id=key)
            match value:
                case bytes():
                    stat.bytes_value = value
                case str():
                    stat.str_value = value
                case float():
                    stat.double_value = value
                case int():
                    stat.uint64_value = value

    def metadata(self, name: str, stats: dict[str, Any], display: str = "") -> int:
        if name not in self._names:
            key = self._names[name] = len(self._names) + 1
            entry = self.proto.event_metadata[key]
            entry.id, entry.name, entry.display_name = key, name, display
            self.fill(entry, stats)
        return self._names[name]


def counted(seed: int) -> xplane_pb2.XSpace:
    """Random values of a v6e's counters, with their numbers and names."""
    rng = random.Random(seed)
    space = xplane_pb2.XSpace(hostnames=["vm"])
    for device in range(rng.randint(1, 2)):
        plane = Plane(space, f"/device:TPU:{device}")
        plane.fill(plane.proto, {"device_type_string": "TPU v6 Lite", "device_id": device + 2})
        for sample in range(rng.randint(1, 3)):
            line = plane.proto.lines.add(name=f"counters_{sample}", id=3 * sample)
            for at, name in COUNTERS.items():
                if at and rng.random() < 0.2:
                    continue
                value = rng.randint(0, 10**9)
                key = plane.metadata(rng.choice((PREFIX, "COUNT_")) + name, {})
                event = line.events.add(metadata_id=key, duration_ps=1)
                shown = value if rng.random() < 0.7 else float(value)
                numbered = {"performance_counter_id": FIRST_ID + 8 * at}
                plane.fill(event, {"counter_value": shown, **numbered})
    return space


def info(rng: random.Random) -> bytes:
    """A collective's description: endpoints of its first group, perhaps a pair."""
    group = b"".join(bytes([0x0A, 4, 8, i, 16, i]) for i in range(rng.randint(0, 5)))
    return bytes([0x08, 4, 0x12, len(group)]) + group + rng.choice((b"", b"", b"\x1a\0"))


def transferring(seed: int) -> xplane_pb2.XSpace:
    """Calls of a few collectives, interleaved, some of them incomplete."""
    hlo = pytest.importorskip("jaxlib._hlo")
    rng = random.Random(seed)
    count = rng.randint(1, 3)
    text = []
    for i in range(count):
        about = f'_xla_host_transfer_rendezvous="{"ABC"[i]}"'
        about += f',_xla_megascale_transfer_type="{rng.choice(TYPES)}"'
        marks = f"is_host_transfer=true, frontend_attributes={{{about}}}"
        text += [
            f"  send.{i} = {_BUFFER} send(p, tok), channel_id={10 + i}, {marks}",
            f"  recv.{i} = {_BUFFER} recv(tok), channel_id={20 + i}, {marks}",
            f"  send-done.{i} = token[] send-done(send.{i}), channel_id={10 + i}, "
            "is_host_transfer=true",
            f"  recv-done.{i} = (f32[1003]{{0}}, token[]) recv-done(recv.{i}), "
            f"channel_id={20 + i}, is_host_transfer=true",
        ]
    module = hlo.hlo_module_from_text(_HLO % "\n".join(text)).as_serialized_hlo_module_proto()
    proto = hlo_pb2.HloProto(hlo_module=hlo_pb2.HloModuleProto.FromString(module))
    proto.hlo_module.id = 7
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = Plane(space, "/device:TPU:0")
    runs = plane.proto.lines.add(name="XLA Modules", id=1)
    line = plane.proto.lines.add(name="XLA Ops", id=2)
    descriptions = {f"send.{i}": info(rng) for i in range(count)}
    at_ns = rng.choice((0, 10_000))
    for _ in range(rng.randint(1, 4)):
        waiting = [
            [f"{op}.{i}" for op in ("send", "recv", "send-done", "recv-done")] for i in range(count)
        ]
        for one in waiting:
            if rng.random() < 0.15:
                one.remove(rng.choice(one))
        while any(waiting):
            name = rng.choice([one for one in waiting if one]).pop(0)
            opcode = name.partition(".")[0]
            category = "host " + opcode
            stats: dict[str, Any] = {"program_id": 7, "symbol_id": 1, "hlo_category": category}
            if name in descriptions:
                stats["dcn_collective_info"] = descriptions[name]
            duration_ns = rng.randint(1, 50_000)
            key = plane.metadata(f"%{name} = f32[1] {opcode}()", stats, name)
            line.events.add(metadata_id=key, offset_ps=at_ns * 1000, duration_ps=duration_ns * 1000)
            at_ns += duration_ns + rng.randint(0, 90_000)
    key = plane.metadata("jit_f(7)", {"program_id": 7})
    runs.events.add(metadata_id=key, duration_ps=at_ns * 1000)
    programs = Plane(space, "/host:metadata")
    entry = programs.proto.event_metadata[7]
    entry.id, entry.name = 7, "jit_f(7)"
    programs.fill(entry, {"Hlo Proto": proto.SerializeToString()})
    host = Plane(space, "/host:CPU")
    thread = host.proto.lines.add(name="thread", id=1)
    thread.events.add(metadata_id=host.metadata("MegaScale: transfer", {}), duration_ps=10)
    return space


def ask_both(
    folder: Path, spaces: list[xplane_pb2.XSpace], tool: str, **parameters: str
) -> tuple[Any, Any]:
    plugin = pytest.importorskip("xprof.convert._pywrap_profiler_plugin")
    run = folder / "plugins" / "profile" / "run"
    run.mkdir(parents=True)
    files = [run / f"h{i}.xplane.pb" for i in range(len(spaces))]
    for file, space in zip(files, spaces, strict=True):
        file.write_bytes(space.SerializeToString())
    answer, is_good = plugin.xspace_to_tools_data([str(file) for file in files], tool, parameters)
    assert is_good, answer
    partials = [
        analyze_host(file.read_bytes(), file.name.removesuffix(".xplane.pb")) for file in files
    ]
    got = json.loads(json.dumps(run_tool_xprof(tool, partials), allow_nan=False))
    return json.loads(answer), got


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tool", ["utilization_viewer", "perf_counters"])
def test_counters_equal_xprofs(
    tool: str, seed: int, tmp_path: Path, compare: Callable[..., list[str]]
) -> None:
    expected, got = ask_both(tmp_path, [counted(seed)], tool)
    assert len(got["rows"]) > 20

    def is_told_by_number(path: str) -> bool:
        # Description and set, which it knows of its own.
        return tool == "perf_counters" and path.endswith((".c[6]", ".c[7]"))

    assert compare(expected, got, ignore=is_told_by_number) == []


@pytest.mark.parametrize("seed", range(12))
def test_transfers_between_slices_equal_xprofs(
    seed: int, tmp_path: Path, compare: Callable[..., list[str]]
) -> None:
    spaces = [transferring(100 * seed + i) for i in range(1 + seed % 3)]
    expected, got = ask_both(tmp_path, spaces, "megascale_stats", host_name="ALL_HOSTS")
    # Its order is that of a hash table.
    expected[0]["rows"].sort(key=lambda row: row["c"][0]["v"])
    assert compare(expected, got) == []
