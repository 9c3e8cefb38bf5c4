"""Steps and duty cycle of TPUs equal the released XProf's where cores are linked, or not."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
from podscope_protos.v1 import xplane_pb2

pytestmark = pytest.mark.interop

MS = 10**9
TENSOR, OTHER, SPARSE = "/device:TPU:0", "/device:TPU:1", "/device:TPU:0 SparseCore 0"
STEPS = [(step * 100, 90) for step in range(4)]

Event = tuple[str, int, int] | tuple[str, int, int, Mapping[str, int]]
Lines = Sequence[tuple[str, Sequence[Event]]]


def capture(planes: Mapping[str, Lines]) -> bytes:
    """An XSpace; an operation's category is its name, and times are in milliseconds."""
    space = xplane_pb2.XSpace(hostnames=["host"])
    for number, (name, lines) in enumerate(planes.items(), start=1):
        plane = space.planes.add(name=name, id=number)
        stats: dict[str, int] = {}
        rows: dict[str, int] = {}

        def stat(name: str, plane: Any = plane, stats: dict[str, int] = stats) -> int:
            key = stats.setdefault(name, len(stats) + 1)
            plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
            return key

        for line_number, (line_name, events) in enumerate(lines, start=1):
            line = plane.lines.add(id=line_number, name=line_name)
            for event_name, start, duration, *told in events:
                row = rows.setdefault(event_name, len(rows) + 1)
                if row not in plane.event_metadata:
                    about = plane.event_metadata[row]
                    about.id, about.name, about.display_name = row, event_name, event_name
                    about.stats.add(metadata_id=stat("program_id"), uint64_value=7)
                    about.stats.add(metadata_id=stat("symbol_id"), uint64_value=row)
                    about.stats.add(metadata_id=stat("hlo_category"), str_value=event_name)
                    about.stats.add(metadata_id=stat("flops"), uint64_value=10)
                event = line.events.add(
                    metadata_id=row, offset_ps=start * MS, duration_ps=duration * MS
                )
                for key, value in (told[0] if told else {}).items():
                    event.stats.add(metadata_id=stat(key), int64_value=value)
    return space.SerializeToString()


def in_steps(*events: Event) -> list[Event]:
    return [(name, begin + at, *rest) for begin, _ in STEPS for name, at, *rest in events]


def marked(spans: Sequence[tuple[int, int]]) -> list[Event]:
    return [(str(step), *span) for step, span in enumerate(spans)]


def linked(kind: str, name: str, at: int, duration: int) -> list[Event]:
    return [
        (name, begin + at, duration, {f"_{kind}t": 14, f"_{kind}": step})
        for step, (begin, _) in enumerate(STEPS)
    ]


def core(*ops: Event, spans: Sequence[tuple[int, int]] = STEPS) -> Lines:
    lines: list[tuple[str, Sequence[Event]]] = [("Steps", marked(spans))] if spans else []
    modules = [("module", begin, duration) for begin, duration in spans or STEPS]
    return [*lines, ("XLA Modules", modules), ("XLA Ops", in_steps(*ops))]


def sparse_core(*ops: Event, spans: Sequence[tuple[int, int]] = ()) -> Lines:
    lines: list[tuple[str, Sequence[Event]]] = []
    if spans:
        lines.append(("Sparse Core Steps", marked(spans)))
    return [*lines, ("Sparse Core Ops", in_steps(*ops))]


WORK: Event = ("convolution", 20, 45)
CASES: dict[str, Mapping[str, Lines]] = {
    "sparse core beside": {TENSOR: core(WORK), SPARSE: sparse_core(("gather", 1, 10), spans=STEPS)},
    "sparse core without steps": {TENSOR: core(WORK), SPARSE: sparse_core(("gather", 1, 10))},
    "sparse core of two steps": {
        TENSOR: core(WORK),
        SPARSE: sparse_core(("gather", 1, 10), spans=STEPS[:2]),
    },
    "sparse core beyond the step": {TENSOR: core(WORK), SPARSE: sparse_core(("gather", 85, 20))},
    "sparse core of a longer step": {
        TENSOR: core(WORK, spans=[(begin, 70) for begin, _ in STEPS]),
        OTHER: core(WORK),
        SPARSE: sparse_core(("gather", 85, 2)),
    },
    "sparse core that waits": {TENSOR: core(WORK), SPARSE: sparse_core(("infeed", 1, 10))},
    "sparse core that waits within": {
        TENSOR: core(WORK),
        SPARSE: sparse_core(("gather", 1, 30), ("infeed", 10, 10)),
    },
    "sparse core with overlaps": {
        TENSOR: core(WORK),
        SPARSE: sparse_core(("gather", 1, 10), ("scatter", 5, 10)),
    },
    "linked sparse core": {
        TENSOR: [*core(spans=STEPS)[:2], ("XLA Ops", linked("p", "convolution", 20, 45))],
        SPARSE: [
            ("Sparse Core Steps", marked([(begin, 20) for begin, _ in STEPS])),
            ("Sparse Core Ops", linked("c", "gather", 1, 10)),
        ],
    },
    "linked sparse core and another": {
        TENSOR: [*core(spans=STEPS)[:2], ("XLA Ops", linked("p", "convolution", 20, 45))],
        SPARSE: [
            ("Sparse Core Steps", marked([(begin, 20) for begin, _ in STEPS])),
            ("Sparse Core Ops", linked("c", "gather", 1, 10)[:2]),
        ],
        "/device:TPU:0 SparseCore 1": sparse_core(("gather", 1, 30), spans=STEPS),
    },
    "core with fewer steps": {TENSOR: core(WORK), OTHER: core(WORK, spans=STEPS[:2])},
    "core with later steps": {TENSOR: core(WORK), OTHER: core(WORK, spans=STEPS[2:])},
    "core without operations": {TENSOR: core(WORK), OTHER: core()},
    "core without steps": {TENSOR: core(WORK), OTHER: core(WORK, spans=())},
    "steps twice, the second longer": {
        TENSOR: [*core(WORK), ("Steps", [("all", 0, 400)])],
    },
    "steps twice, the first longer": {
        TENSOR: [("Steps", [("all", 0, 400)]), *core(WORK)],
    },
    "steps twice, the second elsewhere": {
        TENSOR: [*core(WORK), ("Steps", [("all", 1000, 400)])],
    },
    "steps twice, the first elsewhere": {
        TENSOR: [("Steps", [("all", 1000, 400)]), *core(WORK)],
    },
    "steps twice, the second empty": {TENSOR: [*core(WORK), ("Steps", [])]},
    "wait in a loop": {TENSOR: core(("while", 1, 60), ("while", 5, 40), ("infeed", 10, 20))},
    "work in a wait": {TENSOR: core(("infeed", 1, 60), ("convolution", 5, 40))},
    "wait half in work": {TENSOR: core(("convolution", 1, 10), ("infeed", 5, 10))},
}


@pytest.mark.parametrize("tool", ["input_pipeline_analyzer", "overview_page", "pod_viewer"])
@pytest.mark.parametrize("case", CASES)
def test_steps_of_a_tpu_equal_the_release(
    case: str, tool: str, tmp_path: Path, compare: Callable[..., list[str]]
) -> None:
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    content = capture(CASES[case])
    file = tmp_path / "host.xplane.pb"
    file.write_bytes(content)
    answer, _ = convert.xspace_to_tool_data([str(file)], tool, {"use_saved_result": False})
    ours = run_tool_xprof(tool, [analyze_host(content, "host")], {})
    assert compare(json.loads(answer), json.loads(json.dumps(ours))) == []
