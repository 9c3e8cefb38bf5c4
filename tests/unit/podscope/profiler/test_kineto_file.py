"""Traces of PyTorch's are read from their file without holding it as objects."""

import io
import json
import sys
import tempfile
import tracemalloc
import types
from pathlib import Path
from typing import Any

import pytest

from podscope.profiler import frameworks
from podscope.profiler.frameworks import kineto_file, torch_session
from podscope.profiler.frameworks.kineto import xspace_of
from podscope.profiler.frameworks.kineto_file import read_trace
from podscope.profiler.options import ProfilerOptions


def trace(events: int) -> dict[str, Any]:
    ops = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"aten::op_{number % 50} ✓",
            "pid": 41,
            "tid": 42,
            "ts": 5000.25 + 3 * number,
            "dur": 2.5,
            "args": {
                "External id": number,
                "Concrete Inputs": ["", "[1, 2, 3]", "0"],
                "Input Dims": [[64, 128], [128, number % 50]],
                "Input type": ["float", "float"],
                "Input Strides": [[128, 1], [1, 1]],
            },
        }
        for number in range(events)
    ]
    thread = {"ph": "M", "name": "thread_name", "tid": 42, "args": {"name": "main"}}
    return {
        "schemaVersion": 1,
        "deviceProperties": [],
        "traceEvents": [*ops, thread, None, {"ph": "s", "cat": "ac2g"}],
        "traceName": "with \t tabs",
        "baseTimeNanoseconds": 1_790_857_026_000_000_000,
    }


@pytest.mark.parametrize("piece", [1, 2, 7, 64, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_file_gives_what_its_trace_gives_however_it_is_cut(
    monkeypatch: pytest.MonkeyPatch, piece: int, indent: int | None
) -> None:
    monkeypatch.setattr(kineto_file, "_PIECE", piece)
    whole = trace(8)
    text = json.dumps(whole, indent=indent, ensure_ascii=False)
    found = read_trace(io.StringIO(text))
    assert found["baseTimeNanoseconds"] == 1_790_857_026_000_000_000
    assert found["traceName"] == "with \t tabs"
    expected = xspace_of(whole)
    assert b"main" in expected
    assert b"(float[64,128];float[128,7])" in expected
    assert xspace_of(found) == expected


@pytest.mark.parametrize("cut", [0, 1, 20, 60, 300, -1])
def test_a_file_that_is_cut_off_is_an_error_and_no_wrong_profile(cut: int) -> None:
    text = json.dumps(trace(4))
    with pytest.raises(ValueError, match=r"trace|Expecting|Unterminated|Invalid"):
        read_trace(io.StringIO(text[:cut]))


@pytest.mark.parametrize("text", ["[]", "nothing", '{"traceEvents": 3}', '{"a" 1}'])
def test_what_is_no_trace_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"missing in the trace|Expecting"):
        read_trace(io.StringIO(text))


def test_reading_takes_a_few_times_the_files_size_and_not_ten_times(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(trace(10_000)))
    size = file.stat().st_size
    assert size > 2 << 20
    tracemalloc.start()
    with file.open(encoding="utf-8") as opened:
        found = read_trace(opened)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found["traceEvents"]) == 10_001
    assert peak < 4 * size


def test_a_trace_that_is_too_large_costs_the_memory_of_no_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Profile:
        """Stands for ``torch.profiler.profile``; its trace is a byte too large."""

        def __init__(self, **_: object) -> None:
            self.profiler = types.SimpleNamespace(kineto_results=self)

        def start(self) -> None:
            pass

        stop = start

        def save(self, name: str) -> None:
            with Path(name).open("wb") as file:
                file.truncate(torch_session.MAX_TRACE_BYTES + 1)

    module = types.ModuleType("torch.profiler")
    module.__dict__.update(
        profile=Profile,
        ProfilerAction=types.SimpleNamespace(NONE=0),
        ProfilerActivity=types.SimpleNamespace(CPU="cpu"),
        supported_activities=lambda: {"cpu"},
    )
    torch = types.ModuleType("torch")
    config = types.SimpleNamespace(_ExperimentalConfig=lambda **_: None)
    torch.__dict__.update(
        autograd=types.SimpleNamespace(profiler=types.SimpleNamespace(_is_profiler_enabled=False)),
        _C=types.SimpleNamespace(_profiler=config),
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.profiler", module)
    monkeypatch.delitem(sys.modules, "jax._src.profiler", raising=False)
    monkeypatch.delitem(sys.modules, "tensorflow.python.profiler.profiler_v2", raising=False)
    warnings: list[str] = []
    running = frameworks.start(ProfilerOptions(), warnings, is_remote=True)
    assert [session.name for session in running] == ["PyTorch"]
    tracemalloc.start()
    assert frameworks.stop(running, warnings) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert warnings == [
        "PyTorch's part is left out: its trace has 268,435,457 bytes, and the training process "
        "reads 256 MiB at most; make the capture shorter"
    ]
    assert list(tmp_path.iterdir()) == []
