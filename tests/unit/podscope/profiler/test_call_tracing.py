"""Every Python call as a span, in threads that run already and in those to come."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from podscope import profiler
from podscope.profiler.call_tracing import CallTracer
from podscope.profiler.recording import Span
from podscope.profiler.sampling import StackSampler
from podscope_protos.v1.xplane_pb2 import XSpace


def called() -> int:
    return 1


def counted(times: int) -> Iterator[int]:
    for _ in range(times):
        yield called()


def failing() -> None:
    raise ValueError


def work() -> None:
    for _ in range(5):
        list(counted(3))
        try:
            failing()
        except ValueError:
            continue


def names(spans: list[Span]) -> Counter[str]:
    """How often each function of this file was called."""
    return Counter(
        span.name.rpartition(" ")[2]
        for span in spans
        if span.name.startswith("$test_call_tracing.py:")
    )


# A generator is entered once, again after each of its three values, and left as often.
WORK = {"called": 15, "counted": 20, "failing": 5, "work": 1}


def test_calls_of_running_and_of_new_threads_are_counted_exactly() -> None:
    may_begin, may_end = threading.Event(), threading.Event()

    def wait_and_work() -> None:
        may_begin.wait(10)
        work()
        may_end.wait(10)

    running = threading.Thread(target=wait_and_work)
    running.start()
    tracer = CallTracer()
    tracer.start()
    may_begin.set()
    later = threading.Thread(target=work)
    later.start()
    later.join()
    work()
    may_end.set()
    running.join()
    assert tracer.stop() == []
    for thread in (running.ident, later.ident, threading.get_ident()):
        assert thread is not None
        found = names(tracer.spans[thread])
        assert {name: found[name] for name in WORK} == WORK


def test_calls_nest_by_time_and_open_ones_end_with_the_capture() -> None:
    tracer = CallTracer()
    tracer.start()
    work()
    tracer.stop()
    spans = tracer.spans[threading.get_ident()]
    [outer] = [span for span in spans if span.name.endswith(" work")]
    inner = [span for span in spans if span.name.endswith(" called")]
    assert all(outer.start_ns <= span.start_ns <= span.end_ns <= outer.end_ns for span in inner)
    [test] = [span for span in spans if span.name.endswith("end_with_the_capture")]
    assert test.start_ns <= outer.start_ns
    assert test.end_ns >= outer.end_ns


def test_the_tracer_takes_itself_out_at_its_limit_and_says_so() -> None:
    tracer = CallTracer(max_calls=100)
    tracer.start()
    for _ in range(1000):
        called()
    began = time.thread_time()
    for _ in range(20_000):
        called()
    untraced_s = time.thread_time() - began
    warnings = tracer.stop()
    assert warnings == ["Python calls: only the first 100 that ended were traced"]
    assert names(tracer.spans[threading.get_ident()])["called"] in (98, 99, 100)
    # A traced call costs a microsecond and more.
    assert untraced_s < 20_000 * 1e-6


def test_calls_nested_deeper_than_the_limit_are_left_out() -> None:
    def nested(depth: int) -> None:
        if depth:
            nested(depth - 1)

    tracer = CallTracer(max_depth=len(stack()) + 20)
    tracer.start()
    nested(200)
    called()
    tracer.stop()
    found = names(tracer.spans[threading.get_ident()])
    kept = sum(count for name, count in found.items() if name.endswith("nested"))
    assert 15 <= kept <= 20
    assert found["called"] == 1


def stack() -> list[object]:
    frames: list[object] = []
    frame = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]  # None ends it
    return frames


def test_level_two_traces_and_level_one_samples(tmp_path: Path) -> None:
    for level in (1, 2):
        folder = tmp_path / str(level)
        with profiler.Profile(folder, profiler.ProfilerOptions(python_tracer_level=level)):
            work()
        [file] = folder.glob("plugins/profile/*/*.xplane.pb")
        space = XSpace.FromString(file.read_bytes())
        plane = next(p for p in space.planes if p.name == "/host:CPU")
        kept = {described.name.rpartition(" ")[2] for described in plane.event_metadata.values()}
        # Fifty microseconds of work pass between two samples.
        assert ({"called", "counted", "failing", "work"} <= kept) is (level == 2)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_where_others_monitor_the_interpreter_stacks_are_sampled(tmp_path: Path) -> None:
    monitoring = vars(sys)["monitoring"]
    taken = [tool for tool in (monitoring.PROFILER_ID, 3, 4) if monitoring.get_tool(tool) is None]
    for tool in taken:
        monitoring.use_tool_id(tool, "another")
    try:
        with profiler.Profile(tmp_path, profiler.ProfilerOptions(python_tracer_level=2)):
            time.sleep(0.1)
    finally:
        for tool in taken:
            monitoring.free_tool_id(tool)
    [file] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    assert [text for text in space.warnings if text.endswith("stacks are sampled instead")]
    assert any(line.name == "MainThread" for plane in space.planes for line in plane.lines)


def test_a_sampler_stays_below_its_share_of_cpu_whatever_the_stacks() -> None:
    """Sixty threads of a hundred frames cost far more than two percent at a hundred hertz."""
    ended = threading.Event()

    def nested(depth: int) -> None:
        if depth:
            nested(depth - 1)
        else:
            ended.wait(30)

    threads = [threading.Thread(target=nested, args=(100,)) for _ in range(60)]
    for thread in threads:
        thread.start()
    sampler = StackSampler()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    sampler.start()
    time.sleep(2)
    sampler.stop()
    share = (time.process_time() - began_cpu_s) / (time.monotonic() - began_s)
    ended.set()
    for thread in threads:
        thread.join()
    assert share < 0.04
    assert 3 <= sampler.samples < 150
