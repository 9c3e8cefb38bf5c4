"""Frames of all threads, taken while threads begin and garbage is collected."""

import subprocess
import sys
import threading
from types import FrameType

from podscope.profiler.frames import current_frames

# A garbage collection at nearly every allocation, which lets other threads run.
BUSY = """
import gc, threading, time
from podscope.profiler.frames import current_frames

ended = threading.Event()

def begin_threads():
    while not ended.is_set():
        thread = threading.Thread(target=time.sleep, args=(0.0001,))
        thread.start()
        thread.join()

beginning = [threading.Thread(target=begin_threads) for _ in range(4)]
for thread in beginning:
    thread.start()
gc.callbacks.append(lambda *_: time.sleep(0.0001))
gc.set_threshold(3)
for _ in range(1000):
    current_frames()
ended.set()
gc.callbacks.clear()
for thread in beginning:
    thread.join()
print(gc.isenabled())
"""


def test_threads_that_begin_meanwhile_do_not_stop_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_it_has_the_frame_of_every_thread() -> None:
    waiting, leave = threading.Event(), threading.Event()

    def wait_here() -> None:
        waiting.set()
        leave.wait()

    thread = threading.Thread(target=wait_here)
    thread.start()
    waiting.wait()
    frames = current_frames()
    leave.set()
    thread.join()
    assert threading.get_ident() in frames
    names = []
    frame: FrameType | None = frames[thread.ident or 0]
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    assert "wait_here" in names
