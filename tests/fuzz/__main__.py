"""Gives the analyzers damaged files and watches that nothing crashes, hangs or swells.

    python -m tests.fuzz --files 100000          the long run, `make fuzz`
    python -m tests.fuzz --seconds 60            as many files as fit
    python -m tests.fuzz --seed 7 --only 1234    one file again, in this process

File i of a seed is always the same. Files run in forked processes, some hundred in each: a crash,
or more processor time than a file may take, ends one of them and is told with its file. The peak
of a process is reset before every file; what counts is the whole process, its interpreter, the
compiled kernels and the file's own bytes included.
"""

import argparse
import gc
import json
import mmap
import os
import signal
import struct
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from select import select
from typing import Final

from tests.fuzz.mutations import mutate
from tests.fuzz.one_file import analyze
from tests.fuzz.seeds import make_seeds

BATCH: Final = 200
CPU_LIMIT_S: Final = 20.0
ALLOWANCE_BYTES: Final = 256 << 20
ALLOWED_COPIES: Final = 4
RETAINED_BYTES: Final = 16 << 20
_KEPT: Final = Path("build/fuzz")
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")


def _status_bytes(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0


def _file(seeds: list[bytes], seed: int, index: int) -> tuple[str, bytes, Random]:
    rng = Random(f"{seed}:{index}")
    what, raw = mutate(seeds, rng)
    return what, raw, rng


def _child(seeds: list[bytes], seed: int, files: range, at: mmap.mmap, answer: int) -> None:
    """Runs files one after the other; says of each that is wrong what is wrong."""
    outcomes: Counter[str] = Counter()
    worst = 0.0
    # With bounds checking, numba and its compiler are in the process.
    is_checked = os.environ.get("NUMBA_BOUNDSCHECK", "0") != "0"
    fresh = _status_bytes("VmRSS:")
    for index in files:
        at[:8] = struct.pack("q", index)
        what, raw, rng = _file(seeds, seed, index)
        signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
        _CLEAR.write_text("5")
        problem = ""
        try:
            outcomes[analyze(raw, rng)] += 1
        except Exception:  # noqa: BLE001  # whatever it is, it is what is looked for
            problem = traceback.format_exc(limit=-6)
        signal.setitimer(signal.ITIMER_PROF, 0)
        allowed = ALLOWED_COPIES * len(raw) + ALLOWANCE_BYTES
        peak = _status_bytes("VmHWM:")
        worst = max(worst, peak / allowed)
        if not problem and peak > allowed and not is_checked:
            problem = f"{peak >> 20} MB of memory for a file of {len(raw):,} bytes"
        if problem:
            wrong = {"index": index, "what": what, "problem": problem}
            os.write(answer, json.dumps(wrong).encode() + b"\n")
        if _status_bytes("VmRSS:") > fresh + RETAINED_BYTES:
            # What a large file left behind in the allocator is not the next file's.
            break
    ended = {"outcomes": outcomes, "worst": worst, "next": index + 1}
    os.write(answer, json.dumps(ended).encode() + b"\n")


@dataclass
class _Lane:
    """One child at work."""

    pid: int
    files: range
    at: mmap.mmap
    answers: int
    told: bytes = b""


@dataclass
class Run:
    """What came of all files so far."""

    seeds: list[bytes]
    seed: int
    done: int = 0
    worst: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, object]] = field(default_factory=list)

    def start(self, files: range) -> _Lane:
        """Forks a child for some files."""
        at = mmap.mmap(-1, 8)
        read, write = os.pipe()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                _child(self.seeds, self.seed, files, at, write)
            finally:
                os._exit(0)
        os.close(write)
        return _Lane(pid, files, at, read)

    def finish(self, lane: _Lane) -> range:
        """Takes what a child said; the files that it did not come to."""
        told = b""
        while part := os.read(lane.answers, 1 << 16):
            told += part
        os.close(lane.answers)
        _, status, _ = os.wait4(lane.pid, 0)
        following = None
        for line in told.splitlines():
            said = json.loads(line)
            if "outcomes" in said:
                following = said["next"]
                self.outcomes.update(said["outcomes"])
                self.worst = max(self.worst, said["worst"])
            else:
                self.fail(said)
        if following is not None:
            self.done += following - lane.files.start
            return range(following, lane.files.stop)
        index = struct.unpack("q", lane.at[:8])[0]
        code = os.waitstatus_to_exitcode(status)
        died = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if code == -signal.SIGPROF:
            died = f"more than {CPU_LIMIT_S:.0f} s of processor time"
        what, _, _ = _file(self.seeds, self.seed, index)
        self.fail({"index": index, "what": what, "problem": died})
        self.done += index + 1 - lane.files.start
        return range(index + 1, lane.files.stop)

    def fail(self, wrong: dict[str, object]) -> None:
        """Keeps the file and says how to run it again."""
        self.failures.append(wrong)
        _KEPT.mkdir(parents=True, exist_ok=True)
        index = int(str(wrong["index"]))
        path = _KEPT / f"{self.seed}-{index}.xplane.pb"
        path.write_bytes(_file(self.seeds, self.seed, index)[1])
        print(f"file {index} ({wrong['what']}), kept as {path}\n{wrong['problem']}")
        print(f"  again: python -m tests.fuzz --seed {self.seed} --only {index}", flush=True)

    def all_files(self, begin: int, count: int, seconds: float, jobs: int) -> None:
        """Runs files until their number or the time is used up."""
        started = told = time.monotonic()
        following = begin
        waiting: list[range] = []
        lanes: list[_Lane] = []
        while True:
            is_over = time.monotonic() - started > seconds
            while len(lanes) < jobs and not is_over and (waiting or following < begin + count):
                if waiting:
                    files = waiting.pop()
                else:
                    files = range(following, min(following + BATCH, begin + count))
                    following = files.stop
                lanes.append(self.start(files))
            if not lanes:
                break
            ready = select([lane.answers for lane in lanes], [], [])[0]
            at = next(at for at, lane in enumerate(lanes) if lane.answers in ready)
            rest = self.finish(lanes.pop(at))
            if rest:
                waiting.append(rest)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                rate = self.done / (told - started)
                print(f"{self.done:,} files, {rate:.0f}/s, {len(self.failures)} wrong", flush=True)


def _warm(seeds: list[bytes]) -> int:
    """Analyzes the valid files, which loads every kernel; 1 when one of them is refused."""
    for raw in dict.fromkeys(seeds):
        if (outcome := analyze(raw, Random(0), in_full=True)) != "result":
            print(f"a valid file is refused: {outcome}", flush=True)
            return 1
    return 0


def main() -> int:
    """Runs the files and tells what came of them; 1 when something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=1 << 62, help="how many")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0, help="the first file's number")
    parser.add_argument("--only", type=int, help="this one file, in this process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args()
    if chosen.files == 1 << 62 and chosen.seconds == float("inf"):
        chosen.files = 1000
    seeds = make_seeds()
    if chosen.only is not None:
        what, raw, rng = _file(seeds, chosen.seed, chosen.only)
        print(f"{what}, {len(raw):,} bytes")
        print(analyze(raw, rng))
        return 0
    # Once in a process of its own: the compiler, where it has to run, would stay in memory.
    if (pid := os.fork()) == 0:
        os._exit(_warm(seeds))
    if os.waitstatus_to_exitcode(os.wait4(pid, 0)[1]) or _warm(seeds):
        return 1
    # Children share the pages of what is loaded, as long as no collection writes to them.
    gc.collect()
    gc.freeze()
    print(f"{_status_bytes('VmRSS:') >> 20} MB before the first file", flush=True)
    run = Run(seeds, chosen.seed)
    run.all_files(chosen.begin, chosen.files, chosen.seconds, chosen.jobs)
    told = ", ".join(f"{name} {count:,}" for name, count in run.outcomes.most_common())
    print(
        f"{run.done:,} files of seed {run.seed}: {told}; most memory {run.worst:.0%} of "
        f"4 x the file + 256 MB; {len(run.failures)} wrong"
    )
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
