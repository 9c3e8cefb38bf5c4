import dataclasses
import gc
from dataclasses import dataclass
from pathlib import Path

import pytest

from podscope.cli import main
from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.errors import ParameterError, XSpaceError
from podscope_analyzers.lazy import lazily
from podscope_analyzers.partials import PARTS, HostPartial
from podscope_analyzers.pipeline import analyze_host, open_host, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope
from podscope_protos.v1 import xplane_pb2


@dataclass(frozen=True)
class Pair:
    left: int
    right: int = 0

    @property
    def total(self) -> int:
        return self.left + self.right


def test_fields_are_made_once_and_only_when_they_are_read() -> None:
    made: list[str] = []

    def make(name: str, value: int) -> int:
        made.append(name)
        return value

    pair = lazily(Pair, {"left": lambda: make("left", 1), "right": lambda: make("right", 2)})
    assert made == []
    assert (pair.right, pair.right) == (2, 2)
    assert made == ["right"]
    assert pair.total == 3
    assert made == ["right", "left"]
    assert isinstance(pair, Pair)
    assert dataclasses.replace(pair, left=5).total == 7
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair.left = 3  # type: ignore[misc]  # that is what is tested


def test_a_field_that_failed_fails_again() -> None:
    pair = lazily(Pair, {"left": lambda: 1 // 0, "right": lambda: 2})
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            _ = pair.left
    assert pair.right == 2


def _raw(device: str) -> bytes:
    return build_xspace(Pod(device=device, hosts=2, steps=5, seed=4), 0)


def _xprof(tool: str, partial: HostPartial) -> object:
    try:
        return run_tool_xprof(tool, [partial])
    except ParameterError as error:
        # The graph viewer must be told what to draw.
        return str(error)


@pytest.mark.parametrize("device", ["cpu", "tpu-v5e", "gpu-h100"])
def test_every_tool_says_the_same_of_a_host_that_is_read_as_needed(device: str) -> None:
    raw = _raw(device)
    whole = analyze_host(raw, "h")
    for tool in TOOLS:
        part = open_host(raw, "h", tool=tool)
        expected = run_tool(tool, [whole], Scope(["h"])).to_json()
        assert run_tool(tool, [part], Scope(["h"])).to_json() == expected
        assert _xprof(tool, open_host(raw, "h")) == _xprof(tool, whole)


def test_what_operations_are_made_of_is_left_out_for_a_tool_that_does_not_show_it() -> None:
    raw = _raw("tpu-v5e")
    shown = {tool: open_host(raw, "h", tool=tool).device_ops for tool in TOOLS}
    made_of = {tool: len(ops) - ops.top_count for tool, ops in shown.items()}
    assert {tool for tool, count in made_of.items() if count} == {"op_profile", "hlo_stats"}
    assert made_of["op_profile"] == made_of["hlo_stats"]


def test_a_host_that_is_read_as_needed_stores_the_same_bytes() -> None:
    raw = _raw("cpu")
    part = open_host(raw, "h")
    whole = analyze_host(raw, "h")
    assert part.to_bytes() == whole.to_bytes()
    for name in PARTS:
        assert part.part_to_bytes(name) == whole.part_to_bytes(name)
    assert type(whole) is HostPartial


def _message(field: int, payload: bytes) -> bytes:
    return bytes([field << 3 | 2, len(payload)]) + payload


def test_bad_structure_is_found_at_once_and_bad_events_when_they_are_read() -> None:
    raw = _raw("cpu")
    with pytest.raises(XSpaceError):
        open_host(raw[:-1], "h")
    # An event with a field of a wire type that no XSpace uses.
    line = xplane_pb2.XLine(name="l").SerializeToString() + _message(4, b"\x0b")
    plane = xplane_pb2.XPlane(name="/host:CPU").SerializeToString() + _message(3, line)
    part = open_host(_message(1, plane), "h")
    for _ in range(2):
        with pytest.raises(XSpaceError, match="wire type 3"):
            _ = part.steps


def test_an_unreadable_event_of_a_single_file_is_told_with_its_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = xplane_pb2.XLine(name="l").SerializeToString() + _message(4, b"\x0b")
    plane = xplane_pb2.XPlane(name="/host:CPU").SerializeToString() + _message(3, line)
    path = tmp_path / "w0.xplane.pb"
    path.write_bytes(_message(1, plane))
    with pytest.raises(SystemExit) as end:
        main(["analyze", str(path), "--tool", "framework_op_stats"])
    assert end.value.code == 4
    assert capsys.readouterr().err.startswith("podscope: w0: not a valid XSpace")


@pytest.mark.parametrize("device", ["cpu", "tpu-v5e", "gpu-h100"])
def test_nothing_of_a_decoded_host_waits_for_the_garbage_collector(device: str) -> None:
    raw = _raw(device)

    def work() -> None:
        analyze_host(raw, "h")

    # Modules and what they keep are made by the first run.
    work()
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        work()
        gc.collect()
        kinds = {type(one).__name__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert not kinds & {"XSpace", "Line", "PreparedLine", "Program", "HostPartial", "CaptureStats"}
    assert not any(kind in kinds for kind in ("ndarray", "DecodedLine", "Sifted", "OpDatabase"))
