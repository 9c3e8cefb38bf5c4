import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podscope import profiler
from podscope.profiler import recording
from podscope.profiler.counters import COUNTER_LINE, Counters
from podscope.profiler.files import save_xspace
from podscope.profiler.garbage import PAUSE_NAME
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace

SPANS_ONLY = profiler.ProfilerOptions(python_tracer_level=0)


def read(logdir: Path) -> XSpace:
    [file] = logdir.glob("plugins/profile/*/*.xplane.pb")
    return XSpace.FromString(file.read_bytes())


def events(space: XSpace) -> Iterator[tuple[str, dict[str, object], int]]:
    """Name, metadata and duration of every event of the program's threads, in order."""
    plane = next(p for p in space.planes if p.name == "/host:CPU")
    for line in plane.lines:
        if line.name == COUNTER_LINE:
            continue
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            # When the interpreter collects is its own affair.
            if name != PAUSE_NAME:
                yield name, stats(plane, event.stats), event.duration_ps


def stats(plane: XPlane, given: object) -> dict[str, object]:
    read_stats: dict[str, object] = {}
    for stat in given:  # type: ignore[attr-defined]  # a repeated field
        value = getattr(stat, stat.WhichOneof("value"))
        if stat.WhichOneof("value") == "ref_value":
            value = plane.stat_metadata[value].name
        read_stats[plane.stat_metadata[stat.metadata_id].name] = value
    return read_stats


def test_spans_keep_their_nesting_and_metadata(tmp_path: Path) -> None:
    with profiler.Profile(tmp_path, SPANS_ONLY):
        with profiler.StepTrace("train", step_num=7) as step:
            with profiler.Trace("load", path="gs://a/b#1,2", share=0.5, big=2**63, ok=True):
                time.sleep(0.002)
            step.set_metadata(loss=1.25)
    (outer, outer_stats, outer_ps), (inner, inner_stats, inner_ps) = events(read(tmp_path))
    assert (outer, outer_stats) == ("train", {"_r": 1, "step_num": 7, "loss": 1.25})
    assert (inner, inner_stats) == (
        "load",
        {"path": "gs://a/b#1,2", "share": 0.5, "big": 2**63, "ok": 1},
    )
    assert outer_ps >= inner_ps >= 2e9


def test_threads_have_lines_of_their_own(tmp_path: Path) -> None:
    def work() -> None:
        with profiler.Trace("in thread"):
            pass

    with profiler.Profile(tmp_path, SPANS_ONLY):
        worker = threading.Thread(target=work, name="loader")
        worker.start()
        with profiler.Trace("in main"):
            worker.join()
    plane = next(p for p in read(tmp_path).planes if p.name == "/host:CPU")
    assert {line.name for line in plane.lines} >= {"MainThread", "loader", COUNTER_LINE}
    assert {line.id for line in plane.lines} >= {threading.get_native_id(), worker.native_id}


def test_a_thread_that_is_over_keeps_its_name_when_another_gets_its_identifier(
    tmp_path: Path,
) -> None:
    def work() -> None:
        with profiler.Trace("work"):
            pass

    over = threading.Event()
    with profiler.Profile(tmp_path, SPANS_ONLY):
        first = threading.Thread(target=work, name="first")
        first.start()
        first.join()
        # As many as it takes, or as many as there is any use in.
        others = []
        for _ in range(50):
            others.append(threading.Thread(target=over.wait, name="other"))
            others[-1].start()
            if others[-1].ident == first.ident:
                break
    over.set()
    for other in others:
        other.join()
    plane = next(p for p in read(tmp_path).planes if p.name == "/host:CPU")
    with_work = [line.name for line in plane.lines if len(line.events) and line.name == "first"]
    assert with_work == ["first"]


def test_a_span_that_began_before_the_capture_is_left_out(tmp_path: Path) -> None:
    with profiler.Trace("early"):
        profiler.start(tmp_path, SPANS_ONLY)
    with profiler.Trace("inside"):
        pass
    profiler.stop()
    assert [name for name, _, _ in events(read(tmp_path))] == ["inside"]


def test_nothing_is_recorded_without_a_capture(tmp_path: Path) -> None:
    with profiler.Trace("before"):
        pass
    with profiler.Profile(tmp_path, SPANS_ONLY):
        pass
    assert list(events(read(tmp_path))) == []


def test_stacks_of_all_threads_are_sampled_as_nested_spans(tmp_path: Path) -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    def inner() -> None:
        is_inside.set()
        may_end.wait(60)

    def outer() -> None:
        inner()

    worker = threading.Thread(target=outer)
    worker.start()
    assert is_inside.wait(60)
    with profiler.Profile(tmp_path):
        pass
    may_end.set()
    worker.join()
    durations = {name.rpartition(".")[2]: ps for name, _, ps in events(read(tmp_path))}
    assert 0 < durations["inner"] <= durations["outer"]


def test_a_second_profiler_is_refused_and_the_first_lives_on(tmp_path: Path) -> None:
    profiler.start(tmp_path, SPANS_ONLY)
    with pytest.raises(profiler.ProfilerAlreadyRunningError):
        profiler.start(tmp_path)
    with profiler.Trace("still here"):
        pass
    file = profiler.stop()
    assert file is not None
    assert [name for name, _, _ in events(read(tmp_path))] == ["still here"]


def test_a_delayed_capture_lets_the_program_go_on_and_begins_later(tmp_path: Path) -> None:
    began_ns = time.perf_counter_ns()
    profiler.start(tmp_path, SPANS_ONLY._replace(delay_ms=300))
    with profiler.Trace("early"):
        pass
    assert recording.active is None or time.perf_counter_ns() - began_ns >= 0.3e9
    with pytest.raises(profiler.ProfilerAlreadyRunningError):
        profiler.start(tmp_path)
    wait_until_recording()
    assert time.perf_counter_ns() - began_ns >= 0.3e9
    with profiler.Trace("inside"):
        pass
    assert profiler.stop() is not None
    assert [name for name, _, _ in events(read(tmp_path))] == ["inside"]


def test_a_capture_that_ends_before_it_begins_says_so(tmp_path: Path) -> None:
    later = SPANS_ONLY._replace(delay_ms=3_600_000)
    profiler.start(tmp_path, later)
    with pytest.raises(profiler.ProfilerError, match="before the delay of 3600000 ms was over"):
        profiler.stop()
    profiler.start(tmp_path, later)
    assert profiler.stop(save=False) is None
    with profiler.Profile(tmp_path, SPANS_ONLY):
        pass


def test_a_delayed_capture_that_meets_another_says_so(tmp_path: Path) -> None:
    port = profiler.server.start(0)
    remote = threading.Thread(
        target=profiler.client.trace, args=(f"127.0.0.1:{port}", tmp_path, 1000)
    )
    remote.start()
    wait_until_recording()
    profiler.start(tmp_path, SPANS_ONLY._replace(delay_ms=1))
    waiting = [thread for thread in threading.enumerate() if thread.name == "podscope-delay"]
    for thread in waiting:
        thread.join(60)
    with pytest.raises(profiler.ProfilerAlreadyRunningError):
        profiler.stop()
    remote.join(60)
    profiler.server.stop()


def wait_until_recording() -> None:
    deadline_s = time.monotonic() + 300
    while recording.active is None:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_stop_without_start_says_what_to_do() -> None:
    with pytest.raises(profiler.ProfilerError, match="call start first"):
        profiler.stop()


def test_a_profile_may_be_thrown_away(tmp_path: Path) -> None:
    profiler.start(tmp_path)
    assert profiler.stop(save=False) is None
    assert list(tmp_path.iterdir()) == []


def test_a_capture_that_cannot_begin_does_not_stand_in_the_way_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Counters) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    with monkeypatch.context() as limited:
        limited.setattr(Counters, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            profiler.start(tmp_path)
    assert recording.active is None
    assert not [thread for thread in threading.enumerate() if "sampler" in thread.name]
    with profiler.Profile(tmp_path, SPANS_ONLY), profiler.Trace("later"):
        pass
    assert [name for name, _, _ in events(read(tmp_path))] == ["later"]


def test_a_file_that_cannot_take_its_name_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "plugins" / "profile" / "run" / "w0.xplane.pb"
    taken.mkdir(parents=True)
    with pytest.raises(profiler.ProfilerError, match="cannot write to"):
        save_xspace(tmp_path, "run", "w0", b"profile")
    assert list(taken.parent.iterdir()) == [taken]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    profiler.start(blocked, SPANS_ONLY)
    with pytest.raises(profiler.ProfilerError, match="cannot write to"):
        profiler.stop()


class _Wordless:
    def __str__(self) -> str:
        msg = "no words"
        raise RuntimeError(msg)


@pytest.mark.parametrize("odd", ["\ud800", "\x00", 5, None, _Wordless(), "x" * 100_000])
def test_an_odd_name_or_value_never_costs_the_capture(odd: object, tmp_path: Path) -> None:
    with profiler.Profile(tmp_path, SPANS_ONLY):
        with profiler.Trace(odd, value=odd):  # type: ignore[arg-type]  # what callers may do
            pass
        with profiler.Trace("good"):
            pass
    assert [name for name, _, _ in events(read(tmp_path))][1:] == ["good"]


def test_a_span_that_an_exception_leaves_is_kept_and_the_exception_passes(tmp_path: Path) -> None:
    with (
        profiler.Profile(tmp_path, SPANS_ONLY),
        pytest.raises(ValueError, match="mine"),
        profiler.Trace("left"),
    ):
        raise ValueError("mine")  # noqa: EM101 - the text is the point
    assert [name for name, _, _ in events(read(tmp_path))] == ["left"]


def test_metadata_of_a_reused_span_stays_with_the_time_it_was_set(tmp_path: Path) -> None:
    span = profiler.Trace("again")
    with profiler.Profile(tmp_path, SPANS_ONLY):
        for turn in range(3):
            with span:
                span.set_metadata(turn=turn)
    assert [kept for _, kept, _ in events(read(tmp_path))] == [{"turn": turn} for turn in range(3)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_does_not_go_on_with_its_parents_capture(tmp_path: Path) -> None:
    code = f"""
import os
from podscope import profiler
from podscope.profiler import recording
profiler.start({str(tmp_path / "parent")!r})
child = os.fork()
if not child:
    assert recording.active is None
    profiler.start({str(tmp_path / "child")!r})
    with profiler.Trace("in the child"):
        pass
    profiler.stop()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
with profiler.Trace("in the parent"):
    pass
profiler.stop()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert "in the child" in [name for name, _, _ in events(read(tmp_path / "child"))]
    names = [name for name, _, _ in events(read(tmp_path / "parent"))]
    assert "in the parent" in names
    assert "in the child" not in names
