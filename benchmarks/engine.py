"""The XSpace engine against XProf: fresh processes, CPU seconds, wall time, peak memory.

    python benchmarks/engine.py                          JAX of 2 MB, TPU of 1 M events
    python benchmarks/engine.py --jax-mb 2 20 --tpu-events 1000000 10000000
    python benchmarks/engine.py --skip-xprof             our side only

Captures are made once and kept under --folder. XProf's side is its cold conversion to
``framework_op_stats`` (it keeps caches beside a file, so each run gets a copy of its own).
Ours are two: "engine" decodes every line and sums self time by name, the part that the tool
stands on; "analyze" is the whole command for the same tool.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = os.pathsep.join(str(ROOT / part) for part in ("agent", "analyzers", "collector", "protos"))

JAX_CAPTURE = """
import sys, time
import jax, jax.numpy as jnp
folder, calls = sys.argv[1], int(sys.argv[2])
@jax.jit
def train_step(x):
    return jnp.tanh(x @ x) * 0.5 + x
def load(i):
    return sum(ord(c) for c in str(i))
x = train_step(jnp.ones((64, 64))).block_until_ready()
jax.profiler.start_trace(folder)
done = 0
step = 0
while done < calls:
    with jax.profiler.StepTraceAnnotation("train", step_num=step):
        for i in range(200):
            load(i)
        x = train_step(x).block_until_ready()
    done += 200
    step += 1
jax.profiler.stop_trace()
"""

ENGINE = """
import json, mmap, sys, time
begin = time.perf_counter()
import numpy as np
from podscope_analyzers import open_xspace
from podscope_analyzers.kernels import natural_order, nest, sum_groups
STATS = ("group_id", "hlo_op", "tf_op", "program_id", "device_offset_ps", "device_duration_ps")
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
started = time.perf_counter()
space = open_xspace(mapped)
opened = time.perf_counter()
events = rows = 0
decoding = 0.0
for line in space.lines:
    at = time.perf_counter()
    columns = line.columns(STATS)
    decoding += time.perf_counter() - at
    start, duration, names = columns.start_ps, columns.duration_ps, columns.metadata
    order = natural_order(start, duration)
    if order is not None:
        start, duration, names = start[order], duration[order], names[order]
    nesting = nest(start, duration)
    sums = sum_groups(names, len(line.plane.event_metadata), duration, nesting.self_ps)
    rows += int(np.count_nonzero(sums.occurrences))
    events += len(columns)
    line.release()
end = time.perf_counter()
print(json.dumps({"events": events, "rows": rows, "decode_ns": decoding / max(events, 1) * 1e9,
                  "import_s": started - begin, "open_s": opened - started}))
"""

XPROF = """
import sys
from xprof.convert import raw_to_tool_data
answer, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "framework_op_stats", {})
print(len(answer))
"""


@dataclass(frozen=True)
class Run:
    """One process: seconds of CPU and of wall time, peak memory in MB, what it printed."""

    cpu: float
    wall: float
    peak_mb: float
    output: str


def run(command: list[str]) -> Run | None:
    """Runs a command and measures it with its children; None when it fails."""
    environment = {**os.environ, "PYTHONPATH": PATHS, "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            lines = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            print(f"  failed with {process.returncode}: {lines[-1][:160]}")
            return None
        return Run(
            cpu=usage.ru_utime + usage.ru_stime,
            wall=wall,
            peak_mb=usage.ru_maxrss / 1024,
            output=out.read().decode(errors="replace"),
        )


def jax_capture(folder: Path, megabytes: float) -> Path | None:
    """A real JAX capture on CPU with the Python tracer, of about so many MB."""
    target = folder / f"jax-{megabytes:g}mb.xplane.pb"
    calls = 20_000
    for _ in range(4):
        if target.exists():
            return target
        with tempfile.TemporaryDirectory() as made:
            command = [sys.executable, "-c", JAX_CAPTURE, made, str(calls)]
            if run(command) is None:
                return None
            found = next(Path(made).rglob("*.xplane.pb"))
            size = found.stat().st_size / 1e6
            if 0.8 * megabytes <= size <= 1.25 * megabytes:
                shutil.copy(found, target)
            calls = max(200, int(calls * megabytes / size))
    return target if target.exists() else None


def tpu_capture(folder: Path, events: int) -> Path | None:
    """A simulated TPU host of about so many events."""
    target = folder / f"tpu-{events}.xplane.pb"
    if not target.exists():
        with tempfile.TemporaryDirectory() as made:
            command = [sys.executable, "-m", "podscope", "simulate", "--hosts", "1"]
            command += ["--device", "tpu-v5e", "--events", str(events), "--write", made]
            if run(command) is None:
                return None
            shutil.move(next(Path(made).rglob("*.xplane.pb")), target)
    return target


def best(command: list[str], rounds: int) -> Run | None:
    """The run of least CPU of several."""
    runs = []
    for _ in range(rounds):
        found = run(command)
        if found is None:
            return None
        runs.append(found)
    return min(runs, key=lambda one: one.cpu)


def cold_xprof(path: Path, rounds: int) -> Run | None:
    """XProf on a copy without its caches, the run of least CPU."""
    runs = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, folder)
            if (found := run([sys.executable, "-c", XPROF, str(copy)])) is not None:
                runs.append(found)
    return min(runs, key=lambda one: one.cpu) if runs else None


def show(name: str, found: Run, against: Run | None = None) -> None:
    """One row of the table; the factors are the other side's over ours."""
    factors = ""
    if against is not None:
        factors = (
            f"   XProf needs {against.cpu / found.cpu:5.1f} x the CPU,"
            f" {against.peak_mb / found.peak_mb:4.1f} x the memory"
        )
    print(
        f"  {name:<8} cpu {found.cpu:7.2f} s  wall {found.wall:7.2f} s"
        f"  peak {found.peak_mb:7.0f} MB{factors}"
    )


def compare(path: Path, *, rounds: int, xprof: bool) -> None:
    """Prints both sides for one file."""
    print(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB")
    theirs = cold_xprof(path, rounds) if xprof else None
    if theirs is not None:
        show("xprof", theirs)
    ours = best([sys.executable, "-c", ENGINE, str(path)], rounds)
    if ours is not None:
        show("engine", ours, theirs)
        told = json.loads(ours.output)
        print(
            f"           {told['events']:,} events, {told['rows']} rows; decoding with 6 stats"
            f" {told['decode_ns']:.0f} ns an event; import {told['import_s']:.2f} s,"
            f" open {told['open_s']:.2f} s"
        )
    command = [sys.executable, "-m", "podscope", "analyze", str(path)]
    command += ["--tool", "framework_op_stats", "--format", "json"]
    whole = best(command, rounds)
    if whole is not None:
        show("analyze", whole, theirs)


def main() -> None:
    """Makes the captures and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jax-mb", type=float, nargs="*", default=[2.0])
    parser.add_argument("--tpu-events", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-xprof", action="store_true")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "podscope-bench"
    )
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    made = [jax_capture(chosen.folder, size) for size in chosen.jax_mb]
    made += [tpu_capture(chosen.folder, events) for events in chosen.tpu_events]
    warm = next((path for path in made if path is not None), None)
    if warm is not None:
        # Compiles kernels once, as an image does when it is built.
        run([sys.executable, "-c", ENGINE, str(warm)])
    for path in made:
        if path is not None:
            compare(path, rounds=chosen.rounds, xprof=not chosen.skip_xprof)


if __name__ == "__main__":
    main()
