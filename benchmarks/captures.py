"""Makes the captures that the engine is measured on, and keeps them.

    python benchmarks/captures.py --jax-mb 2 20 --tpu-events 1000000

JAX captures are real: a small model on CPU, recorded with the Python tracer. TPU captures are
``podscope simulate``'s, whose events are made as arrays.
"""

import argparse
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
FOLDER = Path(tempfile.gettempdir()) / "podscope-bench"

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


@dataclass(frozen=True)
class Run:
    """One process: seconds of CPU and of wall time, peak memory in MB, what it printed."""

    cpu: float
    wall: float
    peak_mb: float
    output: str


def environment() -> dict[str, str]:
    """That of a process that is measured.

    Modules are kept compiled, as an installation keeps them, even where the surroundings ask not to
    write such files: compiling them each time takes longer than a small capture.
    """
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiled = {"PYTHONPYCACHEPREFIX": str(FOLDER / "pycache")}
    return {**kept, **compiled, "PYTHONPATH": PATHS, "TF_CPP_MIN_LOG_LEVEL": "3"}


def run(command: list[str]) -> Run | None:
    """Runs a command and measures it with its children; None when it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment())
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
        with tempfile.TemporaryDirectory(dir=folder) as made:
            command = [sys.executable, "-m", "podscope", "simulate", "--hosts", "1"]
            command += ["--device", "tpu-v5e", "--events", str(events), "--write", made]
            if run(command) is None:
                return None
            shutil.move(next(Path(made).rglob("*.xplane.pb")), target)
    return target


def main() -> None:
    """Makes the captures that are not there yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jax-mb", type=float, nargs="*", default=[2.0])
    parser.add_argument("--tpu-events", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    made = [jax_capture(chosen.folder, size) for size in chosen.jax_mb]
    made += [tpu_capture(chosen.folder, events) for events in chosen.tpu_events]
    for path in made:
        if path is not None:
            print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
