"""What the in-process library costs a program: to import, and to sample its stacks.

    python benchmarks/library.py

Imports are fresh interpreters that take turns, the best of each counts; memory is the growth of
the peak. Samplers run beside threads that wait, few and shallow or many and deep; what they use
is the process's CPU over the time of the capture. Exits with 1 where the library misses its
budget: 150 ms and 30 MB to import, 2 % of a core to sample.
"""

import importlib.util
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = [str(ROOT / part) for part in ("agent", "protos")]
sys.path[:0] = PATHS

from podscope.profiler.sampling import MAX_CPU_SHARE, StackSampler  # noqa: E402 - see above

ROUNDS = 5
IMPORT_BUDGET_S, IMPORT_BUDGET_MB = 0.150, 30.0
IMPORT = """
import time
from pathlib import Path
# Not getrusage, whose peak is also that of the process that started this one.
status = Path("/proc/self/status")
peak_kib = lambda: int(status.read_text().partition("VmHWM:")[2].split()[0])
before = peak_kib()
began = time.process_time()
import {module}
print(time.process_time() - began, (peak_kib() - before) / 1024)
"""
OURS = ("podscope.profiler", "podscope.profiler.server")
OTHERS = ("grpc", "jax.profiler", "torch.profiler", "tensorflow")
CAPTURE_S = 5.0


def imported(module: str) -> tuple[float, float]:
    """Seconds of CPU and MB that importing a module takes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT.format(module=module)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, mb = done.stdout.split()
    return float(seconds), float(mb)


def compare_imports() -> bool:
    """Print what imports cost; whether ours keep to the budget."""
    modules = [
        *OURS,
        *(name for name in OTHERS if importlib.util.find_spec(name.partition(".")[0])),
    ]
    best: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for module in modules:
            seconds, mb = imported(module)
            kept = best.get(module, (seconds, mb))
            best[module] = (min(kept[0], seconds), min(kept[1], mb))
    print(f"{'import':32} {'CPU ms':>10} {'MB':>10}")
    for module, (seconds, mb) in best.items():
        print(f"{module:32} {1000 * seconds:10.0f} {mb:10.1f}")
    return all(
        best[module][0] < IMPORT_BUDGET_S and best[module][1] < IMPORT_BUDGET_MB for module in OURS
    )


def sampled(threads: int, depth: int) -> tuple[float, float]:
    """Share of a core that sampling takes, and samples per second."""
    ended = threading.Event()

    def nested(left: int) -> None:
        if left:
            nested(left - 1)
        else:
            ended.wait()

    waiting = [threading.Thread(target=nested, args=(depth,)) for _ in range(threads)]
    for thread in waiting:
        thread.start()
    sampler = StackSampler()
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    sampler.start()
    time.sleep(CAPTURE_S)
    sampler.stop()
    elapsed_s = time.monotonic() - began_s
    share = (time.process_time() - began_cpu_s) / elapsed_s
    ended.set()
    for thread in waiting:
        thread.join()
    return share, sampler.samples / elapsed_s


def compare_samplers() -> bool:
    """Print what sampling costs; whether it keeps to its share."""
    print(f"\n{'sampling':32} {'% of core':>10} {'samples/s':>10}")
    shares = []
    for threads, depth in ((2, 20), (16, 60), (60, 100)):
        share, per_second = sampled(threads, depth)
        shares.append(share)
        print(f"{f'{threads} threads of {depth} frames':32} {100 * share:10.2f} {per_second:10.1f}")
    # The wake-ups between two samples and the last spans to close come on top.
    return max(shares) < 1.25 * MAX_CPU_SHARE


def main() -> int:
    imports_fit = compare_imports()
    sampling_fits = compare_samplers()
    return int(not (imports_fit and sampling_fits))


if __name__ == "__main__":
    sys.exit(main())
