"""What people and runtimes named on the host's threads, and shares of operations."""

from typing import Any

import pytest

from podscope_analyzers.annotations import MAX_NAMES, Annotations
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2

US = 1_000_000
MEBI = 1 << 20


def _host(*events: tuple[int, str, int, int, dict[str, str | int]]) -> bytes:
    """A host whose events are given as thread, name, begin and duration in us, and stats."""
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/host:CPU")
    rows: dict[str, int] = {}
    stats: dict[str, int] = {}
    lines = {
        thread: plane.lines.add(id=thread) for thread in sorted({event[0] for event in events})
    }
    for thread, name, begin, duration, about in events:
        row = rows.setdefault(name, len(rows) + 1)
        plane.event_metadata[row].id = row
        plane.event_metadata[row].name = name
        event = lines[thread].events.add(
            metadata_id=row, offset_ps=begin * US, duration_ps=duration * US
        )
        for stat, value in about.items():
            key = stats.setdefault(stat, len(stats) + 1)
            plane.stat_metadata[key].id = key
            plane.stat_metadata[key].name = stat
            if isinstance(value, str):
                event.stats.add(metadata_id=key, str_value=value)
            else:
                event.stats.add(metadata_id=key, int64_value=value)
    return space.SerializeToString()


def _rows(raw: bytes | list[bytes], table: str) -> list[dict[str, Any]]:
    hosts = [raw] if isinstance(raw, bytes) else raw
    partials = [analyze_host(one, f"h{index}") for index, one in enumerate(hosts)]
    shown = run_tool("framework_op_stats", partials, Scope(["h"])).tables[table]
    names = [column.id for column in shown.columns]
    return [dict(zip(names, row, strict=True)) for row in shown.rows]


def test_annotations_have_the_time_of_what_is_within_them_and_their_own() -> None:
    raw = _host(
        (1, "fetch", 0, 10, {}),
        (1, "fetch", 20, 40, {}),
        (1, "decode", 25, 15, {}),
        (1, "a/MatMul:MatMul", 41, 4, {}),
        (2, "fetch", 0, 5, {}),
    )
    fetch, decode = _rows(raw, "annotations")
    assert (fetch["annotation"], decode["annotation"]) == ("fetch", "decode")
    assert (fetch["occurrences"], fetch["total_time_us"], fetch["max_time_us"]) == (3, 55, 40)
    # 55 us less 15 of decode and 4 of the operation.
    assert fetch["total_self_time_us"] == 36
    assert (decode["total_time_us"], decode["avg_time_us"]) == (15, 15)


def test_operations_and_python_frames_are_no_annotations() -> None:
    raw = _host(
        (1, "$train.py:3 main", 0, 100, {}),
        (1, "mine", 10, 50, {}),
        (1, "$data.py:9 read", 12, 40, {}),
        (1, "dot.1", 70, 5, {"hlo_op": "dot.1"}),
        (1, "Iterator::Batch", 80, 5, {}),
        (1, "stage", 90, 5, {"_ipl_stage_id": 4, "_ipl_stage_cat": "preprocessing"}),
    )
    (only,) = _rows(raw, "annotations")
    # The frames within are the same work once more.
    assert (only["annotation"], only["total_self_time_us"]) == ("mine", 50)


def test_what_a_runtime_writes_comes_after_what_the_program_wrote() -> None:
    raw = _host(
        (1, "PjitFunction(step)", 0, 100, {}),
        (1, "TfrtCpuExecutable::Execute", 200, 300, {}),
        (1, "mine", 600, 1, {}),
    )
    found = [(row["annotation"], row["origin"]) for row in _rows(raw, "annotations")]
    assert found == [
        ("mine", "program"),
        ("TfrtCpuExecutable::Execute", "runtime"),
        ("PjitFunction(step)", "runtime"),
    ]


def test_annotations_of_one_name_add_up_over_hosts() -> None:
    raw = [_host((1, "fetch", 0, 10, {})), _host((7, "fetch", 0, 30, {}), (7, "other", 50, 1, {}))]
    fetch, other = _rows(raw, "annotations")
    assert (fetch["occurrences"], fetch["total_time_us"], fetch["max_time_us"]) == (2, 40, 30)
    assert other["occurrences"] == 1


def test_a_host_that_names_every_span_anew_keeps_the_longest() -> None:
    raw = _host(*((1, f"request {n}", 100 * n, 1 + n % 50, {}) for n in range(3 * MAX_NAMES)))
    kept = analyze_host(raw, "h").annotations
    assert len(kept) == MAX_NAMES
    assert int(kept.self_ps.min()) == 34 * US
    read = Annotations.from_state(kept.to_state())
    assert read.names == kept.names
    assert len(analyze_host(raw, "h").to_bytes()) < MEBI


def test_shares_add_up_by_type_and_by_operation_with_and_without_idle() -> None:
    raw = _host(
        (1, "x/MatMul_1:MatMul", 0, 8, {}),
        (1, "y/MatMul_2:MatMul", 10, 6, {}),
        (1, "z/Add:Add", 16, 4, {}),
    )
    busy = [row for row in _rows(raw, "shares_without_idle") if row["grouped_by"] == "type"]
    found = [(row["name"], row["operation_count"], row["self_time_ratio"]) for row in busy]
    assert found == [("MatMul", 2, pytest.approx(14 / 18)), ("Add", 1, pytest.approx(4 / 18))]
    every = [row for row in _rows(raw, "shares_with_idle") if row["grouped_by"] == "operation"]
    assert [(row["name"], row["total_self_time_us"]) for row in every] == [
        ("x/MatMul_1", 8),
        ("y/MatMul_2", 6),
        ("z/Add", 4),
        ("IDLE", 2),
    ]
    assert {row["host_or_device"] for row in busy + every} == {"host"}
    assert sum(row["self_time_ratio"] for row in every) == pytest.approx(1)


def test_many_operations_have_one_share_for_the_rest() -> None:
    raw = _host(*((1, f"op{n}:Kind{n}", 10 * n, 1 + (n < 20), {}) for n in range(100)))
    rows = [row for row in _rows(raw, "shares_without_idle") if row["grouped_by"] == "operation"]
    assert len(rows) == 21
    rest = rows[-1]
    assert (rest["name"], rest["operation_count"], rest["total_self_time_us"]) == (None, 80, 80)
    assert rest["self_time_ratio"] == pytest.approx(80 / 120)
