"""The XSpace engine against XProf and xprof-rs: CPU seconds, wall time, peak memory, goals.

    python benchmarks/engine.py                      JAX of 2 MB, TPU of 1 M events
    python benchmarks/engine.py --all                JAX to 345 MB, TPU to 50 M events: an hour
    python benchmarks/engine.py --jax-mb 2 20 --tpu-events 1000000 10000000
    python benchmarks/engine.py --xprof-rs PATH      its server's program too, see below
    python benchmarks/engine.py --skip-xprof         our side only

Every figure is from a fresh process, the least CPU of some rounds. XProf's is its cold conversion
to ``framework_op_stats`` (it keeps caches beside a file, so each run gets a copy of its own).
xprof-rs only is a server: what it takes from its start to the answer for the same tool (``pip
install xprof-rs`` in an environment of its own). "analyze" is our whole command for that tool.
"warm" is a process that analyzed a small capture before: its second analysis is timed, all layers
and databases on one core, with the peak of its anonymous memory; the file is mapped.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from captures import FOLDER, Run, environment, jax_capture, run, tpu_capture

JAX_MB = [2.0, 20.0, 100.0, 345.0]
TPU_EVENTS = [1_000_000, 10_000_000, 50_000_000]

WARM = """
import json, mmap, sys, threading, time
from podscope_analyzers.pipeline import analyze_host
from podscope_analyzers.xspace import open_xspace

def mapped(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))

peak, is_over = 0, threading.Event()
def watch():
    global peak
    while not is_over.wait(0.002):
        peak = max(peak, anonymous())

analyze_host(mapped(sys.argv[2]), "small")
watcher = threading.Thread(target=watch)
watcher.start()
cpu, wall = time.process_time(), time.perf_counter()
analyze_host(mapped(sys.argv[1]), "host")
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
is_over.set()
watcher.join()
planes = [sum(line.event_count for line in plane.lines) for plane in open_xspace(mapped(sys.argv[1])).planes]
print(json.dumps({"cpu": cpu, "wall": wall, "anonymous": peak, "events": sum(planes), "plane": max(planes)}))
"""  # noqa: E501

XPROF = """
import sys
from xprof.convert import raw_to_tool_data
answer, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "framework_op_stats", {})
print(len(answer))
"""


@dataclass
class Goals:
    """What was promised for a capture; None where nothing was.

    Attributes:
        cpu: XProf's CPU over ours, at least.
        memory: XProf's peak over ours, at least.
        wall_s: Of the whole command, at most.
        warm_cpu_s: At most.
        peak_mb: Of the whole command, at most.
    """

    cpu: float | None = None
    memory: float | None = None
    wall_s: float | None = None
    warm_cpu_s: float | None = None
    peak_mb: float | None = None


GOALS = {
    "jax-2mb": Goals(wall_s=0.7),
    "jax-100mb": Goals(cpu=5, memory=4),
    "jax-345mb": Goals(cpu=10, memory=8),
    "tpu-1000000": Goals(cpu=10, memory=8),
    "tpu-10000000": Goals(warm_cpu_s=3),
    "tpu-50000000": Goals(peak_mb=4096),
}
GROWTH = 1.3


@dataclass
class Verdicts:
    """Goals met and not met, in the order in which they were judged."""

    lines: list[str] = field(default_factory=list)

    def judge(self, name: str, what: str, value: float, goal: float, *, at_least: bool) -> None:
        """Compares one figure with its goal."""
        met = value >= goal if at_least else value <= goal
        bound = "at least" if at_least else "at most"
        far = "" if met else f", by a factor of {max(value / goal, goal / value):.2f}"
        verdict = "met" if met else "NOT MET"
        self.lines.append(f"{name}: {what} {value:.4g}, {bound} {goal:.4g}: {verdict}{far}")


def best(command: list[str], rounds: int) -> Run | None:
    """The run of least CPU of several."""
    runs = [run(command) for _ in range(rounds)]
    found = [one for one in runs if one is not None]
    return min(found, key=lambda one: one.cpu) if found else None


def cold_xprof(path: Path, rounds: int) -> Run | None:
    """XProf on a copy without its caches, the run of least CPU."""
    runs = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            copy = shutil.copy(path, folder)
            if (found := run([sys.executable, "-c", XPROF, str(copy)])) is not None:
                runs.append(found)
    return min(runs, key=lambda one: one.cpu) if runs else None


def served_xprof_rs(program: str, path: Path) -> Run | None:
    """xprof-rs from its start to its answer."""
    with tempfile.TemporaryDirectory(dir=path.parent) as logs, socket.socket() as probe:
        folder = Path(logs) / "plugins" / "profile" / "run"
        folder.mkdir(parents=True)
        os.link(path, folder / "host.xplane.pb")
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [program, "--logdir", logs, "--port", str(port), "--host", "127.0.0.1"]
        begin = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
        ) as server:
            try:
                answer = _ask(port, server)
                wall = time.perf_counter() - begin
                if answer is None:
                    return None
                ticks = Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split()
                status = Path(f"/proc/{server.pid}/status").read_text().splitlines()
            finally:
                server.kill()
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        cpu = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        return Run(cpu=cpu, wall=wall, peak_mb=peak / 1024, output=str(len(answer)))


def _ask(port: int, server: subprocess.Popen[bytes]) -> bytes | None:
    query = "run=run&tag=framework_op_stats&host=host"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and server.poll() is None:
        try:
            url = f"http://127.0.0.1:{port}/data/plugin/profile/data?{query}"
            with urllib.request.urlopen(url, timeout=300) as response:
                return bytes(response.read())
        except urllib.error.HTTPError as error:
            print(f"  xprof-rs answers {error.code}")
            return None
        except OSError:
            time.sleep(0.01)
    return None


def show(name: str, found: Run, theirs: Run | None = None) -> None:
    """One row of the table; the factors are XProf's over ours."""
    factors = ""
    if theirs is not None:
        factors = (
            f"   XProf needs {theirs.cpu / found.cpu:5.1f} x the CPU,"
            f" {theirs.peak_mb / found.peak_mb:4.1f} x the memory"
        )
    print(
        f"  {name:<8} cpu {found.cpu:7.2f} s  wall {found.wall:7.2f} s"
        f"  peak {found.peak_mb:7.0f} MB{factors}",
        flush=True,
    )


@dataclass
class Comparison:
    """What is compared for every capture."""

    small: Path
    rounds: int
    xprof: bool
    xprof_rs: str | None
    verdicts: Verdicts = field(default_factory=Verdicts)
    first_warm: dict[str, float] = field(default_factory=dict)

    def compare(self, path: Path) -> None:
        """Prints all sides for one file and judges its goals."""
        name = path.name.removesuffix(".xplane.pb")
        print(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB", flush=True)
        theirs = cold_xprof(path, self.rounds) if self.xprof else None
        if theirs is not None:
            show("xprof", theirs)
        if self.xprof_rs and (served := served_xprof_rs(self.xprof_rs, path)) is not None:
            show("xprof-rs", served)
        command = [sys.executable, "-m", "podscope", "analyze", str(path)]
        command += ["--tool", "framework_op_stats", "--format", "json"]
        whole = best(command, self.rounds)
        if whole is not None:
            show("analyze", whole, theirs)
            self._judge_whole(name, GOALS.get(name, Goals()), whole, theirs)
        warm = best([sys.executable, "-c", WARM, str(path), str(self.small)], self.rounds)
        if warm is not None:
            self._judge_warm(name, GOALS.get(name, Goals()), json.loads(warm.output))

    def _judge_whole(self, name: str, goals: Goals, whole: Run, theirs: Run | None) -> None:
        judge = self.verdicts.judge
        if goals.wall_s is not None:
            judge(name, "wall seconds", whole.wall, goals.wall_s, at_least=False)
        if goals.peak_mb is not None:
            judge(name, "peak MB", whole.peak_mb, goals.peak_mb, at_least=False)
        if theirs is not None and goals.cpu is not None:
            judge(name, "XProf's CPU / ours", theirs.cpu / whole.cpu, goals.cpu, at_least=True)
        if theirs is not None and goals.memory is not None:
            ratio = theirs.peak_mb / whole.peak_mb
            judge(name, "XProf's peak / ours", ratio, goals.memory, at_least=True)

    def _judge_warm(self, name: str, goals: Goals, told: dict[str, float]) -> None:
        events, each = told["events"], told["cpu"] / told["events"] * 1e9
        anonymous = told["anonymous"] / 2**20
        print(
            f"  warm     cpu {told['cpu']:7.2f} s  wall {told['wall']:7.2f} s"
            f"  anonymous {anonymous:.0f} MB   {events:,} events, {each:.0f} ns each",
            flush=True,
        )
        if goals.warm_cpu_s is not None:
            self.verdicts.judge(
                name, "warm CPU seconds", told["cpu"], goals.warm_cpu_s, at_least=False
            )
        kind = name.split("-")[0]
        if kind == "tpu":
            allowed = 300 + 24 * told["plane"] / 2**20
            self.verdicts.judge(name, "anonymous MB", anonymous, allowed, at_least=False)
            first = self.first_warm.setdefault(kind, each)
            self.verdicts.judge(name, "growth per event", each / first, GROWTH, at_least=False)


def main() -> None:
    """Makes the captures, prints the tables, and which goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jax-mb", type=float, nargs="*", default=[2.0])
    parser.add_argument("--tpu-events", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--all", action="store_true", help="every size that has a goal")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-xprof", action="store_true")
    parser.add_argument("--xprof-rs", help="path of its program")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    made = [jax_capture(chosen.folder, mb) for mb in (JAX_MB if chosen.all else chosen.jax_mb)]
    made += [
        tpu_capture(chosen.folder, events)
        for events in (TPU_EVENTS if chosen.all else chosen.tpu_events)
    ]
    paths = [path for path in made if path is not None]
    if not paths:
        return
    small = min(paths, key=lambda path: path.stat().st_size)
    # Compiles kernels once, as an image does when it is built.
    run([sys.executable, "-c", WARM, str(small), str(small)])
    comparison = Comparison(small, chosen.rounds, not chosen.skip_xprof, chosen.xprof_rs)
    for path in paths:
        comparison.compare(path)
    print("goals")
    for line in comparison.verdicts.lines:
        print(f"  {line}")


if __name__ == "__main__":
    main()
