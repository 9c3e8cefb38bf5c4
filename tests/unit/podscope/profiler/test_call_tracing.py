"""Every Python call as a span, in threads that run already and in those to come."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podscope import profiler
from podscope.profiler.call_tracing import CallTracer
from podscope.profiler.recording import Span
from podscope.profiler.sampling import Pace, StackSampler
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
        may_begin.wait(60)
        work()
        may_end.wait(60)

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
    assert interpreter_tells_of_calls()
    for _ in range(1000):
        called()
    assert not interpreter_tells_of_calls()
    warnings = tracer.stop()
    assert warnings == ["Python calls: only the first 100 that ended were traced"]
    # The others are the test's own.
    assert names(tracer.spans[threading.get_ident()])["called"] in range(90, 101)


def interpreter_tells_of_calls() -> bool:
    if sys.version_info >= (3, 12):
        monitoring = vars(sys)["monitoring"]
        return any(monitoring.get_tool(tool) == "podscope" for tool in range(6))
    return threading.getprofile() is not None


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
        kept = Counter(
            plane.event_metadata[event.metadata_id].name.rpartition(" ")[2]
            for line in plane.lines
            for event in line.events
        )
        # The fifteen calls last microseconds, a sample is taken every ten milliseconds.
        assert (kept["called"] == WORK["called"]) is (level == 2)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
def test_where_others_monitor_the_interpreter_stacks_are_sampled(tmp_path: Path) -> None:
    monitoring = vars(sys)["monitoring"]
    taken = [tool for tool in (monitoring.PROFILER_ID, 3, 4) if monitoring.get_tool(tool) is None]
    for tool in taken:
        monitoring.use_tool_id(tool, "another")
    try:
        with profiler.Profile(tmp_path, profiler.ProfilerOptions(python_tracer_level=2)):
            pass
    finally:
        for tool in taken:
            monitoring.free_tool_id(tool)
    [file] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    space = XSpace.FromString(file.read_bytes())
    assert [text for text in space.warnings if text.endswith("stacks are sampled instead")]
    assert any(line.name == "MainThread" for plane in space.planes for line in plane.lines)


@pytest.mark.parametrize("cost_s", [1e-5, 2e-4, 1e-3, 2e-2, 0.5])
def test_samples_cost_no_more_than_their_share(cost_s: float) -> None:
    pace = Pace(samples_per_second=100, max_cpu_share=0.02)
    pauses_s = [pace.pause_s(cost_s) for _ in range(50)]
    assert pauses_s == pytest.approx([max(0.01, cost_s / 0.02)] * 50)


def test_one_dear_sample_does_not_slow_the_next_ones_down_for_long() -> None:
    pace = Pace(samples_per_second=100, max_cpu_share=0.02)
    for _ in range(10):
        pace.pause_s(1e-4)
    assert pace.pause_s(0.01) < 0.01 / 0.02 / 4
    pauses_s = [pace.pause_s(1e-4) for _ in range(30)]
    assert pauses_s == sorted(pauses_s, reverse=True)
    assert pauses_s[-1] == 0.01


def test_a_sampler_waits_as_long_as_its_samples_are_dear() -> None:
    """Each of these samples costs a hundred seconds of CPU: the next one is due in an hour."""
    reading_s = iter(range(0, 10_000, 100))
    sampler = StackSampler(cpu_clock=lambda: float(next(reading_s)))
    sampler.start()
    wait_for(lambda: sampler.samples > 0)
    sampler.stop()
    assert sampler.samples == 1


def test_a_frame_of_consecutive_samples_is_one_span() -> None:
    sampler = StackSampler()

    def inner() -> None:
        seen = sampler.samples
        # More are taken meanwhile, but for the first, which may come before this thread.
        wait_for(lambda: sampler.samples >= seen + 5)

    def outer() -> None:
        inner()

    sampler.start()
    began_ns = time.perf_counter_ns()
    worker = threading.Thread(target=outer)
    worker.start()
    worker.join()
    ended_ns = time.perf_counter_ns()
    ident = worker.ident
    assert ident is not None
    sampler.stop()
    spans = {span.name.rpartition(".")[2]: span for span in sampler.spans[ident]}
    assert spans["inner"].end_ns - spans["inner"].start_ns >= 30_000_000
    assert began_ns <= spans["outer"].start_ns <= spans["inner"].start_ns
    assert spans["inner"].end_ns <= spans["outer"].end_ns
    assert spans["inner"].start_ns <= ended_ns


def test_however_short_a_capture_its_threads_are_seen() -> None:
    may_end = threading.Event()
    worker = threading.Thread(target=may_end.wait, args=(60,))
    worker.start()
    sampler = StackSampler()
    sampler.start()
    sampler.stop()
    may_end.set()
    worker.join()
    assert worker.ident in sampler.spans


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
