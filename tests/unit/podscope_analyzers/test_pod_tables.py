"""The pod viewer's tables: bounded, and what the cores of a pod waited for."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers import pod_tables
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.host_work import compare_hosts
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, combine
from podscope_analyzers.result import Scope
from podscope_analyzers.steps.database import Collectives
from podscope_analyzers.tools import pod_viewer
from podscope_protos.v1 import xplane_pb2

Row = dict[str, Any]


@cache
def _host(host: int, *, slow: int | None = None, steps: int = 10) -> HostPartial:
    pod = Pod(device="tpu-v5e", hosts=8, steps=steps, seed=3, slow_host=slow)
    return analyze_host(build_xspace(pod, host), f"h{host:04d}")


@cache
def _pod(hosts: int) -> CaptureStats:
    return combine([_host(host) for host in range(hosts)])


def _result(stats: CaptureStats, parameters: Mapping[str, str] | None = None) -> Any:
    return pod_viewer.analyze(stats, Scope(["h"]), parameters or {})


def _rows(result: Any, table: str) -> list[Row]:
    names = [column.id for column in result.tables[table].columns]
    return [dict(zip(names, row, strict=True)) for row in result.tables[table].rows]


def test_a_small_pod_is_listed_whole() -> None:
    result = _result(_pod(3))
    shown = result.result
    assert (shown["row_count"], shown["listed_step_count"], shown["next_step"]) == (120, 10, None)
    assert len(result.tables["steps"].rows) == 120


def test_a_large_pod_is_listed_some_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_tables, "MAX_ROWS", 40)
    whole = {row["step"] for row in _rows(_result(_pod(3)), "steps")}
    assert whole == {0, 1, 2}
    seen: list[int] = []
    parameters: dict[str, str] = {}
    while True:
        result = _result(_pod(3), parameters)
        rows = _rows(result, "steps")
        assert len(rows) <= 40
        seen += [row["step"] for row in rows]
        if result.result["next_step"] is None:
            break
        parameters = {"first_step": str(result.result["next_step"])}
    assert seen == sorted(seen)
    assert len(seen) == 120
    # What is said of the hosts is over all steps, whatever is listed.
    assert _rows(result, "hosts") == _rows(_result(_pod(3)), "hosts")
    assert _rows(result, "hosts")[0]["step_count"] == 10


def test_a_step_that_is_too_large_is_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_tables, "MAX_ROWS", 5)
    result = _result(_pod(3))
    assert len(result.tables["steps"].rows) == 12
    assert result.result["next_step"] == 1


def test_one_host_and_some_steps_can_be_asked_for() -> None:
    result = _result(_pod(3), {"of_host": "h0001", "first_step": "2", "steps": "3"})
    rows = _rows(result, "steps")
    assert {row["host"] for row in rows} == {"h0001"}
    assert {row["step"] for row in rows} == {2, 3, 4}
    assert result.result["row_count"] == 40
    beyond = _result(_pod(3), {"first_step": "10"})
    assert (beyond.tables["steps"].rows, beyond.result["next_step"]) == ([], None)


@pytest.mark.parametrize(
    "parameters", [{"first_step": "-1"}, {"steps": "many"}, {"of_host": "h9"}, {"steps": "9" * 30}]
)
def test_what_is_no_step_or_host_is_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(ParameterError):
        _result(_pod(2), parameters)


def test_the_references_form_is_bounded_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_viewer, "MAX_REFERENCE_RECORDS", 24)
    shown = pod_viewer.xprof_json(_pod(3), {})
    assert len(shown["podStatsSequence"]["podStatsMap"]) == 2
    (warning,) = shown["diagnostics"]["warnings"]
    assert "first 2 of 10 steps" in warning


def test_rows_of_the_table_are_as_before_it_was_made_of_columns() -> None:
    stats = _pod(2)
    rows = _rows(_result(stats), "steps")
    steps = stats.all_steps
    for at in (0, 7, len(rows) - 1):
        row = rows[at]
        parts = {name: row[name] for name, _ in pod_tables.CATEGORY_COLUMNS}
        assert row["duration_us"] == int(steps.duration_ps[at]) / 1e6
        assert row["own_work_us"] == pytest.approx(row["duration_us"] - row["collectives_us"])
        assert sum(parts.values()) == pytest.approx(row["duration_us"])
        longest = max(parts.values())
        labels = dict(pod_tables.CATEGORY_COLUMNS)
        named = {labels[name] for name, time in parts.items() if time == longest}
        assert len(named) == 1
        assert row["core_id"] == int(steps.core_id[at])


def test_the_core_that_comes_last_takes_the_shortest_and_the_others_wait() -> None:
    stats = _pod(2)
    spans = [(1, 100, 400), (2, 150, 400), (1001, 5000, 5300), (1002, 5290, 5300)]
    # The same collective a second time, later in the step.
    spans += [(core, begin + 9000, end + 9000 + core) for core, begin, end in spans]
    columns = np.array(spans, np.int64)
    collectives = Collectives(
        step=np.full(8, 4),
        core_id=columns[:, 0],
        id=np.full(8, 77),
        begin_ps=columns[:, 1] * 1_000_000,
        end_ps=columns[:, 2] * 1_000_000,
        size_bytes=np.full(8, 2_000_000),
    )
    stats = replace(stats, all_steps=replace(stats.all_steps, collectives=collectives))
    second, first = _rows(_result(stats), "collectives")
    assert (first["step"], first["collective_id"], first["occurrence"]) == (4, "77", 0)
    assert (first["core_count"], first["shortest_us"], first["waiting_us"]) == (4, 10, 290)
    assert (first["last_host"], first["last_core_id"]) == ("h0001", 1002)
    assert first["bytes_per_second"] == pytest.approx(2e6 / 10e-6)
    assert second["occurrence"] == 1


def test_channels_are_told_by_the_text_of_what_sends_and_receives() -> None:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name="/device:TPU:0", id=1)
    for key, name in enumerate(("hlo_category", "program_id", "symbol_id"), start=1):
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    ops = plane.lines.add(id=1, name="XLA Ops")
    for row, (category, channel, duration) in enumerate(
        (("send", 3, 5), ("recv-done", 3, 20), ("host send", 4, 1), ("fusion", 9, 90)), start=1
    ):
        about = plane.event_metadata[row]
        about.id, about.display_name = row, f"op.{row}"
        about.name = f"%op.{row} = (f32[8]{{0}}) op(%x), channel_id={channel}, metadata={{}}"
        about.stats.add(metadata_id=1, str_value=category)
        about.stats.add(metadata_id=2, int64_value=11)
        about.stats.add(metadata_id=3, int64_value=row)
        ops.events.add(metadata_id=row, offset_ps=row * 10**8, duration_ps=duration * 10**6)
    rows = _rows(_result(combine([analyze_host(space.SerializeToString(), "h")])), "channels")
    assert [list(row.values()) for row in rows] == [
        ["11", 3, 1, 1, 5.0, 20.0],
        ["11", 4, 1, 0, 1.0, 0.0],
    ]


def test_every_core_of_the_pod_has_its_place() -> None:
    rows = _rows(_result(_pod(2)), "cores")
    assert [row["global_chip_id"] for row in rows] == list(range(8))
    assert [row["host"] for row in rows] == ["h0000"] * 4 + ["h0001"] * 4
    assert not any(row["is_sparse_core"] for row in rows)


def test_a_late_host_beyond_the_thousandth_is_named() -> None:
    even = [replace(_host(host, slow=7, steps=6), host=f"h{host:04d}") for host in range(4)]
    late = _host(7, slow=7, steps=6)
    hosts = [replace(even[n % 4], host=f"h{n:04d}") for n in range(1010)]
    hosts[1005] = replace(late, host="h1005")
    stats = combine(hosts)
    assert not stats.all_steps.is_sparse_core.any()
    assert [late.host for late in compare_hosts(stats).stragglers] == ["h1005"]


def test_medians_of_rows_leave_out_what_is_missing() -> None:
    values = np.array([[5, 1, 9, 100], [4, 2, 0, 0], [7, 7, 7, 7]])
    present = np.array([[True, True, True, False], [True, True, False, False], [False] * 4])
    found = pod_tables.row_medians(values, present)
    assert found[:2].tolist() == [5, 3]
    assert np.isnan(found[2])
