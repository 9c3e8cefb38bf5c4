"""Requests of serving jobs: worked by hand, and with the reference's own cases."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from podscope_analyzers.errors import ParameterError
from podscope_analyzers.inference.aggregate import models_stats
from podscope_analyzers.inference.latency import latency
from podscope_analyzers.inference.percentiles import shown_rows
from podscope_analyzers.inference.stats import (
    BATCH_COLUMNS,
    MAX_HOST_ROWS,
    REQUEST_COLUMNS,
    TENSOR_COLUMNS,
    InferenceStats,
    Rows,
)
from podscope_analyzers.pipeline import analyze_host, combine, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope
from podscope_analyzers.states import pack_state, unpack_state
from podscope_analyzers.tools import inference_profile
from podscope_protos.v1 import xplane_pb2

NOTHING = xplane_pb2.XSpace(hostnames=["vm"]).SerializeToString()
ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "docs/reference/schema/inference_profile.json").read_text())
Tables = dict[str, list[dict[str, Any]]]


def _stats(
    spans: list[tuple[int, int]], models: tuple[str, ...] = (), model: list[int] | None = None
) -> InferenceStats:
    columns = {
        "id": range(len(spans)),
        "begin_ps": [begin for begin, _ in spans],
        "end_ps": [end for _, end in spans],
        "model": model if model is not None else [-1] * len(spans),
        "device_ps": [100] * len(spans),
    }
    requests = Rows.of(REQUEST_COLUMNS, {k: np.array([*v], np.int64) for k, v in columns.items()})
    return InferenceStats(models=models, requests=requests)


def _tables(raw: bytes | list[bytes], **parameters: str) -> Tables:
    raws = raw if isinstance(raw, list) else [raw]
    hosts = [analyze_host(one, f"h{index}") for index, one in enumerate(raws)]
    result = run_tool("inference_profile", hosts, Scope([host.host for host in hosts]), parameters)
    assert list(Draft202012Validator(SCHEMA).iter_errors(result.to_json())) == []
    return {
        name: [
            dict(zip([column.id for column in table.columns], row, strict=True))
            for row in table.rows
        ]
        for name, table in result.tables.items()
    }


@pytest.mark.case("R1")
def test_r1_percentiles_are_elements_of_the_sorted_requests_and_the_average_is_last() -> None:
    index = np.arange(100)
    columns = {"end_ps": index * 10_000, "device_ps": index * 1_000, "write_ps": index * 1_000}
    stats = InferenceStats(requests=Rows.of(REQUEST_COLUMNS, {**columns, "model": index * 0 - 1}))
    rows = latency(stats).rows
    assert [row.percentile for row in rows] == [50.0, 75.0, 90.0, 99.0, 99.9, None]
    for row, expected in (
        (rows[0], (0.5, 0.4, 0.05, 0.05)),
        (rows[4], (0.99, 0.792, 0.099, 0.099)),
        (rows[5], (0.495, 0.396, 0.0495, 0.0495)),
    ):
        got = (row.total_us, row.host_us, row.device_us, row.communication_us)
        assert got == pytest.approx(expected, abs=1e-9)


@pytest.mark.case("R2")
@pytest.mark.parametrize(
    ("column", "batch_column", "requests", "batches"),
    [
        ("Latency", "Latency", [0, 1, 2], [3, 4, 5]),
        ("Request size", "Padding amount", [1, 0, 2], [4, 3, 5]),
        ("Request delay for batching", "Batching delay", [1, 0, 2], [4, 3, 5]),
    ],
)
def test_r2_rows_are_shown_in_the_order_of_the_column_asked_for(
    column: str, batch_column: str, requests: list[int], batches: list[int]
) -> None:
    latencies = np.array([10_000, 20_000, 30_000])
    delay, size = np.array([2000, 1000, 3000]), np.array([200, 100, 300])
    stats = InferenceStats(
        requests=Rows.of(
            REQUEST_COLUMNS,
            {"id": np.arange(3), "end_ps": latencies, "delay_ps": delay, "size": size},
        ),
        batches=Rows.of(
            BATCH_COLUMNS,
            {
                "id": np.arange(3, 6),
                "end_ps": latencies,
                "delay_ps": delay,
                "padded_size": size,
                "padding": size // 10,
            },
        ),
    )
    capture = replace(combine([analyze_host(NOTHING, "h0")]), inference=stats)
    parameters = {"request_column": column, "batch_column": batch_column}
    tables = inference_profile.analyze(capture, Scope(["h0"]), parameters).tables
    at = [c.id for c in tables["requests"].columns].index("request_id")
    assert [row[at] for row in tables["requests"].rows] == requests
    at = [c.id for c in tables["batches"].columns].index("batch_id")
    assert [row[at] for row in tables["batches"].rows] == batches


@pytest.mark.case("R3")
def test_r3_models_of_two_hosts_have_averages_and_rates_of_their_own() -> None:
    spans = [(1000, 2000), (3000, 4000), (2000, 3000), (4000, 5000)]
    one = _stats(spans[:2], ("A",), [0, 0])
    other = _stats(spans[2:], ("B",), [0, 0])
    for found in models_stats(InferenceStats.combine([one, other]), is_reference=True):
        average = found.request_average
        assert average.whole("duration_ps") == 1000
        assert average.whole("device_ps") == 100
        assert average.per_second == pytest.approx(666666666.6666666)
        assert average.mean("duration_ps") / 1e6 == pytest.approx(0.001)
        assert (found.batch_average.per_second, found.batch_average.count) == (0, 0)
    assert latency(InferenceStats.combine([one, other])).sessions_per_second == pytest.approx(
        2 * 666666666.6666666
    )


@pytest.mark.case("R4")
def test_r4_percentiles_of_tensor_transfers() -> None:
    """Those of batches that requests inherit are not counted twice."""
    times = np.array([600_000, 500_000, 400_000, 300_000, 200_000, 100_000])
    tensors = Rows.of(TENSOR_COLUMNS, {"time_ps": times})
    stats = InferenceStats(patterns=("a",), tensors=tensors)
    (model,) = models_stats(stats, is_reference=True)
    (found,) = model.tensors
    assert found.count == 6
    assert found.times_ps == (400_000, 500_000, 600_000, 600_000, 600_000, 600_000)


@pytest.mark.case("R5")
def test_r5_requests_and_batches_by_the_size_of_the_batch() -> None:
    spans = [(1000, 2000), (2000, 4000), (3000, 6000), (4000, 8000)]
    stats = _stats(spans)
    requests = stats.requests.with_column("runtime_ps", np.full(4, 100))
    batches = Rows.of(
        BATCH_COLUMNS,
        {
            "id": np.array([0, 1]),
            "begin_ps": np.array([1000, 3000]),
            "end_ps": np.array([2000, 4000]),
            "padded_size": np.array([128, 256]),
        },
    )
    stats = InferenceStats(
        requests=requests,
        batches=batches,
        link_request=np.arange(4),
        link_batch=np.array([0, 0, 1, 1]),
    )
    (model,) = models_stats(stats, is_reference=True)
    assert model.model == "ALL"
    every = model.request_average
    assert (every.whole("duration_ps"), every.whole("runtime_ps")) == (2500, 100)
    assert every.per_second == pytest.approx(571428571.4285715)
    assert model.batch_average.whole("duration_ps") == 1000
    assert model.batch_average.whole("padded_size") == 192
    assert model.batch_average.per_second == pytest.approx(666666666.6666666)
    small, large = model.sizes
    assert (small.size, small.requests.whole("duration_ps")) == (128, 1500)
    assert (large.size, large.requests.whole("duration_ps")) == (256, 3500)
    for size in model.sizes:
        assert size.requests.per_second == pytest.approx(285714285.7142857)
        assert size.batches.per_second == pytest.approx(333333333.3333333)


@pytest.mark.case("W18")
def test_w18_a_requests_time_is_told_apart(serving_host: Callable[[], Any]) -> None:
    host = serving_host()
    for run, (duration, model) in enumerate(((90, "m:1"), (110, "m:1"), (120, "m2")), start=1):
        at = 100 + 200 * run
        host.event("SessionRun", at, duration, {"_r": 1, "model_id": model})
        host.event("TransferH2DRequest", at + 5, 5)
        host.event("tpu::System::Execute", at + 20, 2)
        launch = {"run_id": run, "queue_id": 0, "device_ordinal": 0}
        host.event("DoEnqueueProgram", at + 30, 2, launch)
        host.module(at + 40, 30, run)
        host.event("TransferD2HRequest", at + 80, 5)
    tables = _tables(host.bytes())
    assert [row["model"] for row in tables["models"]] == ["m2", "m:1"]
    shown = next(row for row in tables["requests"] if row["latency_us"] == 110)
    assert shown["host"] == "h0"
    times = {name: shown[name] for name in shown if name.endswith("_us") and name != "begin_us"}
    assert times == {
        "latency_us": 110,
        "batching_delay_us": None,
        "host_preprocess_us": 15,
        "host_batch_formation_us": None,
        "host_runtime_us": 10,
        "host_to_device_us": 5,
        "device_to_host_us": 5,
        "device_compute_us": 30,
        "host_postprocess_us": 35,
        "idle_us": 10,
    }
    whole = [row["percentile"] for row in tables["requests"] if row["model"] == "m:1"]
    assert whole == [0, 50]


def test_a_batch_is_of_the_requests_that_led_to_it(server: Callable[..., bytes]) -> None:
    tables = _tables(server("batching", 3, 30, ("m:7",)))
    (model,) = tables["models"]
    assert (model["request_count"], model["num_batch_threads"]) == (30, 4)
    assert (model["allowed_batch_sizes"], model["batch_timeout_us"]) == ("4,8", 2000)
    batches = tables["batches"]
    assert len(batches) == model["batch_count"] >= 10
    padding = sum(row["padding_amount"] for row in batches)
    padded = sum(row["batch_size_after_padding"] for row in batches)
    assert model["batching_efficiency_ratio"] == pytest.approx(1 - padding / padded)
    # A batch waits for its first request at least as long as for its last.
    assert min(row["batching_delay_us"] for row in batches) >= 5
    averages = {row["batch_size"]: row for row in tables["request_averages"]}
    assert set(averages) == {None, 4, 8}
    assert averages[4]["request_count"] + averages[8]["request_count"] == 30
    assert {row["tensor_pattern"] for row in tables["tensors"]} == {
        f"Delinearize f32[{size},3] {{1,0}}; Linearize f32[{size},3] {{1,0}}" for size in (4, 8)
    }
    assert sum(row["occurrences"] for row in tables["tensors"]) == len(batches)


@pytest.mark.parametrize("named", [True, False], ids=["named models", "no models"])
def test_a_batch_that_no_request_led_to_is_of_no_model(
    serving_host: Callable[[], Any], *, named: bool
) -> None:
    host = serving_host()
    host.event("ProcessBatch", 10, 20)
    host.event("SessionRun", 50, 10, {"_r": 1, "model_id": "m"} if named else {"_r": 1})
    tables: Any = run_tool_xprof("inference_profile", [analyze_host(host.bytes(), "h0")])
    assert tables[0]["rows"][0]["c"][0]["v"] == ("m" if named else "ALL")
    columns = [[column["id"] for column in table["cols"]] for table in tables]
    batches = [
        [row["c"][1]["v"] for row in table["rows"] if row["c"][1]["v"] != "N/A"]
        for table, ids in zip(tables, columns, strict=True)
        if "batch_id" in ids
    ]
    assert batches == ([] if named else [["0"]])


def test_a_kind_of_request_that_occurs_without_group_is_the_kind(
    serving_host: Callable[[], Any],
) -> None:
    host = serving_host()
    host.event("SessionRun", 50, 10, {"_r": 1, "model_id": "m"})
    assert len(_tables(host.bytes())["requests"]) == 1
    host.event("TfrtModelRun", 100, 10, thread="other")
    assert _tables(host.bytes())["requests"] == []


def test_a_batch_without_programs_says_so_in_the_references_table(
    serving_host: Callable[[], Any],
) -> None:
    host = serving_host()
    host.event("ProcessBatch", 10, 20)
    tables: Any = run_tool_xprof("inference_profile", [analyze_host(host.bytes(), "h0")])
    assert [[cell["v"] for cell in row["c"]][9] for row in tables[2]["rows"]] == ["N/A"] * 3


def test_batches_of_two_hosts_with_one_id_are_two(server: Callable[..., bytes]) -> None:
    raws = [server("batching", seed, 20) for seed in (1, 2)]
    apart = [_tables(raw) for raw in raws]
    together = _tables(raws)
    for size in (4, 8):

        def count(tables: Tables, size: int = size) -> int:
            rows = tables["request_averages"]
            return next((row["request_count"] for row in rows if row["batch_size"] == size), 0)

        assert count(together) == sum(map(count, apart))


def test_without_a_tpu_there_is_no_breakdown_but_latency(serving_host: Callable[[], Any]) -> None:
    host = serving_host()
    host.event("SessionRun", 100, 50, {"_r": 1})
    hosts = [analyze_host(host.bytes(), "h0")]
    result = run_tool("inference_profile", hosts, Scope(["h0"]))
    assert [reason.code for reason in result.reasons] == ["no_request_breakdown"]
    (row,) = result.tables["requests"].rows
    shown = dict(zip([c.id for c in result.tables["requests"].columns], row, strict=True))
    assert shown["latency_us"] == 50
    assert shown["model"] is shown["device_compute_us"] is shown["idle_us"] is None


def test_a_column_that_is_none_is_refused() -> None:
    with pytest.raises(ParameterError, match="cannot order by request_column 'Size'"):
        run_tool(
            "inference_profile",
            [analyze_host(NOTHING, "h")],
            Scope(["h"]),
            {"request_column": "Size"},
        )


def test_few_rows_are_all_shown_and_of_many_those_at_percentiles() -> None:
    assert shown_rows(np.ones(3, np.int64)) == [(0, 0.0), (1, 100 / 3), (2, 200 / 3)]
    shown = shown_rows(np.ones(10_000, np.int64))
    assert [place for place, _ in shown] == [
        *range(5000, 5010),
        *range(7500, 7510),
        *range(9000, 9010),
        *range(9900, 9910),
        *range(9990, 9995),
        9999,
    ]


def test_a_busy_host_keeps_its_slow_end_and_its_averages() -> None:
    rng = np.random.default_rng(1)
    count = 50_000
    begin = np.arange(count) * 1_000_000
    took = (rng.lognormal(0, 1, count) * 1e9).astype(np.int64)
    every = InferenceStats(
        requests=Rows.of(
            REQUEST_COLUMNS,
            {"id": np.arange(count), "begin_ps": begin, "end_ps": begin + took, "device_ps": took},
        )
    )
    kept = every.bounded(MAX_HOST_ROWS)
    assert len(kept.requests) <= MAX_HOST_ROWS + 2
    assert kept.is_sampled
    assert not every.is_sampled
    assert kept.requests.total == count
    exact, close = latency(every), latency(kept)
    for one, other in zip(exact.rows, close.rows, strict=True):
        is_exact = one.percentile is not None and one.percentile >= 99
        assert other.total_us == pytest.approx(one.total_us, rel=1e-12 if is_exact else 2e-3)
    assert close.sessions_per_second == pytest.approx(exact.sessions_per_second)
    assert kept.requests.duration_ps.max() == every.requests.duration_ps.max()


def test_many_hosts_keep_their_share() -> None:
    part = _stats([(0, 10 + n) for n in range(4000)], ("A",), [0] * 4000)
    every = InferenceStats.combine([part] * 200)
    assert len(every.requests) <= 260_000
    assert every.requests.total == 800_000


def test_requests_read_back_as_they_were_stored(server: Callable[..., bytes]) -> None:
    stats = analyze_host(server("batching", 1), "h").inference
    read = InferenceStats.from_state(unpack_state(pack_state(stats.to_state())))
    assert read.models == stats.models
    assert read.parameters == stats.parameters
    for name in ("requests", "batches", "tensors"):
        for column, values in getattr(stats, name).columns.items():
            assert getattr(read, name)[column].tolist() == values.tolist()


def test_no_requests_give_an_empty_table() -> None:
    assert latency(InferenceStats()).rows == ()
    assert latency(InferenceStats.combine([])).sessions_per_second == 0


def test_equal_model_names_of_two_hosts_are_one_model() -> None:
    one = _stats([(0, 10), (0, 20)], ("A", "B"), [0, 1])
    other = _stats([(0, 30), (0, 40), (0, 50)], ("B", "C"), [0, 1, -1])
    every = InferenceStats.combine([one, other])
    rows = every.model_rows(every.requests)
    assert {name: len(found) for name, found in rows.items()} == {"A": 1, "B": 2, "C": 1}
