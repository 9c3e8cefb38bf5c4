"""What captures say that they lost, through the results of the tools."""

import time
from collections.abc import Sequence

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Loss, MissingHost, Scope
from podscope_protos.v1 import xplane_pb2


def _host(
    device: str = "cpu", *, warnings: Sequence[str] = (), errors: Sequence[str] = ()
) -> xplane_pb2.XSpace:
    space = xplane_pb2.XSpace()
    space.ParseFromString(build_xspace(Pod(device=device, hosts=1, steps=5, seed=1), 0))
    space.warnings.extend(warnings)
    space.errors.extend(errors)
    return space


def _losses(space: xplane_pb2.XSpace, tool: str = "overview_page") -> list[Loss]:
    partial = analyze_host(space.SerializeToString(), "h0")
    return list(run_tool(tool, [partial], Scope(["h0"])).losses)


@pytest.mark.parametrize(
    ("message", "kind", "count"),
    [
        (
            "Detected GPU events dropped on vm: Profiler has collected 10 driver events and 20 "
            "device events. 12 events dropped because of ring buffer limit; 1,005 events dropped "
            "because of callback limit.",
            "events_dropped",
            1017,
        ),
        ("7 TraceMe events were dropped", "events_dropped", 7),
        ("Dropped 31 kernel records", "events_dropped", 31),
        ("some device events were lost", "events_dropped", 0),
        ("The trace was truncated at 2 GB", "trace_truncated", 0),
        ("The CUPTI buffer is full", "trace_truncated", 0),
    ],
)
def test_what_a_tracer_says_it_lost_is_a_loss(message: str, kind: str, count: int) -> None:
    for host in (_host(errors=[message, message]), _host(warnings=[message])):
        assert _losses(host) == [Loss("h0", "", kind, count)]


@pytest.mark.parametrize(
    "message",
    [
        "0 events dropped because of the limit",
        "dropout_1/dropout/Mul took 12 events",
        "The profiler has collected 12 events",
        "no accelerator was found",
        "use drop_remainder=True",
    ],
)
def test_other_sentences_are_no_losses(message: str) -> None:
    assert _losses(_host(warnings=[message])) == []


def test_counts_of_dropped_traces_are_read_from_the_planes() -> None:
    space = _host("tpu-v5e")
    plane = next(plane for plane in space.planes if plane.name == "/device:TPU:1")
    key = max(plane.stat_metadata) + 1
    plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, "dropped_traces"
    plane.stats.add(metadata_id=key, uint64_value=12)
    assert _losses(space) == [Loss("h0", "/device:TPU:1", "events_dropped", 12)]
    plane.stats[-1].uint64_value = 0
    assert _losses(space) == []


def test_a_core_that_stopped_recording_is_a_loss_and_one_step_less_is_none() -> None:
    space = _host("tpu-v5e")
    plane = next(plane for plane in space.planes if plane.name == "/device:TPU:2")
    steps = next(line for line in plane.lines if line.name == "Steps")
    del steps.events[-1:]
    assert _losses(space) == []
    del steps.events[-2:]
    assert _losses(space) == [Loss("h0", "/device:TPU:2", "steps_not_traced", 3)]


def test_a_whole_capture_lost_nothing() -> None:
    for device in ("tpu-v5e", "gpu-h100", "cpu"):
        assert _losses(_host(device)) == []


@pytest.mark.parametrize("tool", TOOLS)
def test_losses_and_missing_hosts_are_in_every_result(tool: str) -> None:
    partial = analyze_host(_host(warnings=["3 events dropped"]).SerializeToString(), "h0")
    scope = Scope(["h0"], missing_hosts=[MissingHost("h1", "deadline")])
    result = run_tool(tool, [partial], scope)
    assert set(result.losses) >= {
        Loss("h0", "", "events_dropped", 3),
        Loss("h1", "", "host_missing", 1),
    }
    assert len(set(result.losses)) == len(result.losses)


def test_losses_survive_storing() -> None:
    partial = analyze_host(_host(warnings=["3 events dropped"]).SerializeToString(), "h0")
    assert type(partial).from_bytes(partial.to_bytes()).losses == partial.losses


@pytest.mark.parametrize("text", ["1," * 1_000_000, "events " * 500_000, "dropped " * 500_000])
def test_a_hostile_message_takes_no_time(text: str) -> None:
    space = xplane_pb2.XSpace(hostnames=["vm"], warnings=[text])
    begin = time.monotonic()
    assert all(loss.count == 0 for loss in _losses(space))
    assert time.monotonic() - begin < 60
