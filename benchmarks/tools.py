"""All tools of one host in a warm worker, beside XProf's cold conversions of the same tools.

    python benchmarks/tools.py                       JAX of 2 MB, TPU of 1 M events
    python benchmarks/tools.py --all                 JAX to 345 MB, TPU to 10 M events
    python benchmarks/tools.py --jax-mb 2 20 --tpu-events 1000000 --instructions 0

Ours is a process that analyzed a small capture with every tool before and gave its free memory
back, as the service's analysis processes do: then one decode of the measured capture and every
tool of the registry on it, on one core. XProf converts each tool in a
fresh process from a copy of the file without its caches; what it refuses counts for neither side.
Peak is the whole process's resident memory, of XProf that of its largest conversion; of ours the
part that is no file is printed too, since our file is mapped. CPU seconds compare on a machine
that does other work, wall times do not.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from captures import FOLDER, Run, jax_capture, run, tpu_capture

JAX_MB = [2.0, 20.0, 100.0, 345.0]
TPU_EVENTS = [1_000_000, 10_000_000]
INSTRUCTIONS = 50_000

WARM = """
import gc, json, mmap, sys, threading, time
gc.set_threshold(50_000)
from podscope_collector.memory import give_back_free_memory
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope

def mapped(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

def resident():
    with open("/proc/self/status") as status:
        found = dict(line.split(":", 1) for line in status)
    return [int(found[name].split()[0]) << 10 for name in ("VmRSS", "RssAnon")]

def every_tool(path):
    seconds = {}
    begin = time.process_time()
    partial = analyze_host(mapped(path), "host")
    # What is asked for beside the partial is computed at once too.
    seconds["decode and databases"] = time.process_time() - begin
    for name in TOOLS:
        begin = time.process_time()
        json.dumps(run_tool(name, [partial], Scope(["host"])).to_json())
        seconds[name] = time.process_time() - begin
    return seconds

started = resident()[0]
every_tool(sys.argv[2])
give_back_free_memory()
warm = resident()[0]
peak, anonymous, is_over = 0, 0, threading.Event()
def watch():
    global peak, anonymous
    while not is_over.wait(0.005):
        now = resident()
        peak, anonymous = max(peak, now[0]), max(anonymous, now[1])

watcher = threading.Thread(target=watch)
watcher.start()
begin = time.process_time()
seconds = every_tool(sys.argv[1])
cpu = time.process_time() - begin
is_over.set()
watcher.join()
told = {"cpu": cpu, "seconds": seconds, "peak": peak, "anonymous": anonymous}
told |= {"started": started, "warm": warm}
print(json.dumps(told))
"""

PROGRAMS = """
import json, mmap, sys
from podscope_analyzers.pipeline import open_host, run_tool
from podscope_analyzers.result import Scope
with open(sys.argv[1], "rb") as file:
    partial = open_host(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), "host")
found = run_tool("memory_viewer", [partial], Scope(["host"])).tables["programs"]
size = [column.id for column in found.columns].index("hlo_bytes")
largest = max(found.rows, key=lambda row: row[size], default=None)
print("" if largest is None else largest[0])
"""

XPROF = """
import sys, time
from xprof.convert import raw_to_tool_data
path, tool, program = sys.argv[1:]
parameters = {"host": "host"}
if tool == "memory_viewer":
    parameters |= {"module_name": program, "program_id": program.rsplit("(", 1)[-1].rstrip(")")}
if tool == "graph_viewer":
    parameters["graph_viewer_options"] = {"module_name": program, "type": "short_txt"}
begin = time.process_time()
if tool in ("memory_viewer", "graph_viewer"):
    # It reads the programs from files that listing the tools leaves beside the capture.
    raw_to_tool_data.xspace_to_tool_names([path])
answer, _ = raw_to_tool_data.xspace_to_tool_data([path], tool, parameters)
if not answer:
    raise SystemExit(f"no answer for {tool}")
print(time.process_time() - begin)
"""

XPROF_TOOLS = (
    "overview_page",
    "pod_viewer",
    "input_pipeline_analyzer",
    "framework_op_stats",
    "op_profile",
    "hlo_stats",
    "roofline_model",
    "graph_viewer",
    "kernel_stats",
    "memory_profile",
    "memory_viewer",
    "megascale_stats",
    "perf_counters",
    "utilization_viewer",
    "inference_profile",
    "smart_suggestion",
)

LARGE_MODULE = """
import sys
from pathlib import Path
from podscope_agent.simulator import Pod
from podscope_agent.simulator.program import Program, Size
from podscope_agent.simulator.xspace import build_xspace
wanted, path = int(sys.argv[1]), Path(sys.argv[2])
pod = Pod(device="tpu-v5e", steps=1)

def program(layers):
    return Program(pod.kind, Size(layers, 1, 64), pod.kind.cores_per_host)

def instructions(layers):
    from podscope_agent.simulator.hlo import hlo_proto
    module = hlo_proto(program(layers)).hlo_module
    return sum(len(one.instructions) for one in module.computations)

few, more = instructions(2), instructions(12)
layers = 2 + round((wanted - few) / ((more - few) / 10))
pod.__dict__["program"] = program(layers)
path.write_bytes(build_xspace(pod, 0, pod.steps_window()))
print(instructions(layers))
"""

WHOLE_TEXT = {"limit": "200000"}
LARGE_MODULE_TOOLS = (
    ("memory_viewer", "memory_viewer", {}),
    ("graph_viewer", "graph_viewer", {}),
    ("graph_viewer short text", "graph_viewer", {"type": "short_txt", **WHOLE_TEXT}),
    ("graph_viewer long text", "graph_viewer", {"type": "long_txt", **WHOLE_TEXT}),
)

MODULE_TOOL = """
import json, mmap, sys, time
from podscope_analyzers.pipeline import analyze_host, open_host, run_tool
from podscope_analyzers.result import Scope

def mapped(path):
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

def opened(path):
    return open_host(mapped(path), "host")

def analyzed(path):
    return analyze_host(mapped(path), "host")

def timed(path, read):
    cpu, wall = time.process_time(), time.perf_counter()
    one = read(path)
    read_cpu = time.process_time() - cpu
    json.dumps(run_tool(tool, [one], Scope(["host"]), parameters).to_json())
    return {
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "without_reading": time.process_time() - cpu - read_cpu,
    }

rounds, tool, parameters = int(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5])
timed(sys.argv[2], opened)
timed(sys.argv[2], analyzed)
whole = min((timed(sys.argv[1], opened) for _ in range(rounds)), key=lambda told: told["cpu"])
stored = min((timed(sys.argv[1], analyzed)["without_reading"] for _ in range(rounds)))
print(json.dumps({"whole": whole, "stored": stored}))
"""


@dataclass(frozen=True)
class Conversions:
    """XProf's cold conversions of one capture.

    Attributes:
        cpu: Seconds of all processes together.
        converting: Seconds of them after everything was imported.
        peak_mb: Of the largest.
        cpu_by_tool: Whole processes.
    """

    cpu: float
    converting: float
    peak_mb: float
    cpu_by_tool: dict[str, float]


def cold_conversions(path: Path, program: str) -> Conversions:
    """Every tool in a process of its own, each on a copy without caches."""
    runs: dict[str, Run] = {}
    for tool in XPROF_TOOLS:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            copy = shutil.copy(path, Path(folder) / "host.xplane.pb")
            found = run([sys.executable, "-c", XPROF, str(copy), tool, program])
        if found is None:
            print(f"  xprof gives no {tool}; it is not counted", flush=True)
        else:
            runs[tool] = found
    return Conversions(
        cpu=sum(one.cpu for one in runs.values()),
        converting=sum(float(one.output) for one in runs.values()),
        peak_mb=max((one.peak_mb for one in runs.values()), default=0.0),
        cpu_by_tool={tool: one.cpu for tool, one in runs.items()},
    )


def verdict(what: str, value: float, goal: float, *, at_least: bool, why: str = "") -> str:
    """One line: the figure, its goal, whether it is met, and of a miss what it consists of."""
    met = value >= goal if at_least else value <= goal
    bound = "at least" if at_least else "at most"
    judged = "met" if met else f"NOT MET{why and f' ({why})'}"
    return f"{what} {value:.3g}, {bound} {goal:.3g}: {judged}"


def compare(path: Path, small: Path, *, with_xprof: bool, rounds: int) -> list[str]:
    """Prints both sides for one capture; its goals with whether they are met."""
    size = path.stat().st_size / 1e6
    name = path.name.removesuffix(".xplane.pb")
    print(f"{name}  {size:.1f} MB", flush=True)
    command = [sys.executable, "-c", WARM, str(path), str(small)]
    runs = [found for _ in range(rounds) if (found := run(command)) is not None]
    if not runs:
        return [f"{name}: failed: NOT MET"]
    ours = min((json.loads(one.output) for one in runs), key=lambda told: float(told["cpu"]))
    peak_mb, anonymous_mb = ours["peak"] / 2**20, ours["anonymous"] / 2**20
    print(
        f"  podscope  cpu {ours['cpu']:8.2f} s  peak {peak_mb:6.0f} MB, no file {anonymous_mb:.0f};"
        f" warm {ours['warm'] / 2**20:.0f} MB, imported {ours['started'] / 2**20:.0f} MB"
    )
    _parts(ours["seconds"])
    if not with_xprof:
        return []
    asked = run([sys.executable, "-c", PROGRAMS, str(path)])
    theirs = cold_conversions(path, asked.output.strip() if asked is not None else "")
    if not theirs.cpu_by_tool:
        return [f"{name}: XProf converts nothing"]
    print(
        f"  xprof     cpu {theirs.cpu:8.2f} s  peak {theirs.peak_mb:6.0f} MB,"
        f" converting alone {theirs.converting:.2f} s"
    )
    _parts(theirs.cpu_by_tool)
    goal = 30 if size >= 15 else 10
    started_mb = ours["started"] / 2**20
    longest = max(ours["seconds"], key=lambda part: float(ours["seconds"][part]))
    cpu = verdict(
        "XProf CPU / ours",
        theirs.cpu / ours["cpu"],
        goal,
        at_least=True,
        why=f"of our {ours['cpu']:.2f} s {ours['seconds'][longest]:.2f} s are {longest}",
    )
    peak = verdict(
        "XProf peak / ours",
        theirs.peak_mb / peak_mb,
        5,
        at_least=True,
        why=f"of our {peak_mb:.0f} MB {started_mb:.0f} MB are Python and its libraries before any"
        f" file, {peak_mb - anonymous_mb:.0f} MB mapped files; a fifth of XProf's peak is"
        f" {theirs.peak_mb / 5:.0f} MB",
    )
    return [f"{name}: {cpu}", f"{name}: {peak}"]


def _parts(seconds: dict[str, float]) -> None:
    longest = sorted(seconds.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {taken:.2f}" for name, taken in longest if taken >= 0.005)
    print(f"            {shown}", flush=True)


def large_module(folder: Path, small: Path, instructions: int, rounds: int) -> list[str]:
    """Tools on a module of so many instructions; their goals with whether they are met."""
    path = folder / f"module-{instructions}.xplane.pb"
    if not path.exists():
        made = run([sys.executable, "-c", LARGE_MODULE, str(instructions), str(path)])
        if made is None:
            return ["a large module: failed: NOT MET"]
        print(f"a module of {int(made.output):,} instructions")
    goals: list[str] = []
    for what, tool, parameters in LARGE_MODULE_TOOLS:
        arguments = [str(path), str(small), str(rounds), tool, json.dumps(parameters)]
        found = run([sys.executable, "-c", MODULE_TOOL, *arguments])
        if found is None:
            goals.append(f"{what}: failed: NOT MET")
            continue
        told = json.loads(found.output)
        whole, stored = told["whole"], told["stored"]
        print(
            f"{what}  from the file cpu {whole['cpu']:.2f} s wall {whole['wall']:.2f} s,"
            f" of a decoded capture cpu {stored:.2f} s",
            flush=True,
        )
        of = f"{what} of {instructions:,} instructions"
        goals += [
            verdict(f"{of} from the file, CPU seconds", whole["cpu"], 2, at_least=False),
            verdict(f"{of} of a decoded capture, CPU seconds", stored, 2, at_least=False),
        ]
    return goals


def main() -> None:
    """Makes the captures, prints the tables, and which goals are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jax-mb", type=float, nargs="*", default=[2.0])
    parser.add_argument("--tpu-events", type=int, nargs="*", default=[1_000_000])
    parser.add_argument("--all", action="store_true", help="every size that has a goal")
    parser.add_argument("--instructions", type=int, default=INSTRUCTIONS, help="0: leave it out")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-xprof", action="store_true")
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
    goals = []
    for path in paths:
        goals += compare(path, small, with_xprof=not chosen.skip_xprof, rounds=chosen.rounds)
    if chosen.instructions:
        goals += large_module(chosen.folder, small, chosen.instructions, chosen.rounds)
    print("goals")
    for line in goals:
        print(f"  {line}")


if __name__ == "__main__":
    main()
