"""Results of a whole pod: what one worker needs for all hosts, and what one host more adds.

    python benchmarks/reduce.py                          1,024 hosts of 8 cores and 10 steps
    python benchmarks/reduce.py --hosts 64 256 1024 --xprof-hosts 1 4 16 --tpu-steps 10
    python benchmarks/reduce.py --skip-xprof             our side only

"Reduce" is what the service does when the last host has answered: combine the hosts' stored
partials, keep that state, make the results of all tools that answer for several hosts, and store
them. A host that comes after that is merged into the state: see `late_host.py`. XProf has no
such step: it decodes every host's file for a tool of all hosts, so it is measured on files, beside
ours doing the same. Each figure is of a fresh process.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = [str(ROOT / part) for part in ("agent", "analyzers", "collector", "protos")]
sys.path[:0] = PATHS

SESSION = "2026_01_01_00_00_00_000"
DISTINCT = 16
"""Hosts that are made; others of the pod repeat them under names of their own."""
CORES = 8

XPROF = """
import sys
from xprof.convert import raw_to_tool_data
for tool in sys.argv[1].split(","):
    answer, _ = raw_to_tool_data.xspace_to_tool_data(sys.argv[2:], tool, {})
    assert answer
"""
OURS = """
import sys
from pathlib import Path
from podscope_analyzers.pipeline import analyze_host, run_tool_xprof
hosts = [analyze_host(Path(p).read_bytes(), f"h{n}") for n, p in enumerate(sys.argv[2:])]
for tool in sys.argv[1].split(","):
    assert run_tool_xprof(tool, hosts)
"""
TOOLS = "overview_page,pod_viewer,input_pipeline_analyzer,framework_op_stats,hlo_stats"


@dataclass(frozen=True)
class Cost:
    """What a process needed."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def host_xspace(host: int, steps: int) -> bytes:
    """A simulated TPU host of eight cores: the simulator's has four, each is there twice."""
    from podscope_agent.simulator import Pod, build_xspace
    from podscope_protos.v1 import xplane_pb2

    pod = Pod(device="tpu-v5e", hosts=DISTINCT, steps=steps, seed=1)
    space = xplane_pb2.XSpace.FromString(build_xspace(pod, host))
    cores = [plane for plane in space.planes if plane.name.startswith("/device:TPU:")]
    highest = max(plane.id for plane in space.planes)
    for number in range(CORES - len(cores)):
        plane = space.planes.add()
        plane.CopyFrom(cores[number])
        plane.name = f"/device:TPU:{len(cores) + number}"
        plane.id = highest + 1 + number
    return space.SerializeToString()


def make_pod(folder: Path, hosts: int, steps: int) -> tuple[list[tuple[str, str]], int]:
    """Stores the partials of all hosts; their names and where they are, and the size of one."""
    from podscope_analyzers.pipeline import analyze_host
    from podscope_collector.storage import Storage

    storage = Storage(str(folder))
    partials = []
    for host in range(min(DISTINCT, hosts)):
        raw = host_xspace(host, steps)
        (folder / f"h{host}.xplane.pb").write_bytes(raw)
        partials.append(analyze_host(raw, f"h{host}"))
    stored = []
    for host in range(hosts):
        name = f"host-{host:04d}"
        content = replace(partials[host % DISTINCT], host=name).to_bytes()
        file = storage.put_derived("partials", SESSION, f"{name}.partial", content)
        stored.append((name, file.path))
    return stored, len(content)


def reduce_here(folder: str, listing: str, hosts: int) -> None:
    """In a process of its own: what the service's worker does; prints what it took."""
    from podscope_collector.analyses.jobs import merge_stored_hosts, reduce_stored_capture
    from podscope_collector.analyses.pod_states import StoredPartial

    listed = json.loads(Path(listing).read_text())[:hosts]
    stored = [StoredPartial(name, path, None) for name, path in listed]
    names = [partial.host for partial in stored]
    begin, cpu = time.perf_counter(), time.process_time()
    files = merge_stored_hosts(folder, SESSION, stored, [])["files"]
    found = reduce_stored_capture(folder, SESSION, "benchmark", names, [], files, 1 << 16)
    print(
        json.dumps(
            {
                "wall_s": time.perf_counter() - begin,
                "cpu_s": time.process_time() - cpu,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "tools": len(found["results"]),
            }
        )
    )


def reduce_cost(folder: Path, listing: Path, hosts: int, rounds: int) -> tuple[Cost, int]:
    """The round of least CPU, and how many tools answered."""
    command = [sys.executable, __file__, "--reduce-here", str(folder), str(listing), str(hosts)]
    runs = []
    for _ in range(rounds):
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        runs.append(json.loads(told.strip().splitlines()[-1]))
    best = min(runs, key=lambda one: one["cpu_s"])
    return Cost(best["wall_s"], best["cpu_s"], best["peak_mb"]), int(best["tools"])


def process_cost(command: list[str]) -> Cost | None:
    """What a process needed, or None when it fails."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS), "TF_CPP_MIN_LOG_LEVEL": "3"}
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=err, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            err.seek(0)
            lines = err.read().decode(errors="replace").strip().splitlines() or ["no message"]
            print(f"  failed with {process.returncode}: {lines[-1][:160]}")
            return None
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def compare_files(folder: Path, hosts: int) -> None:
    """XProf and podscope on the same files, each cold."""
    raws = [(folder / f"h{host % DISTINCT}.xplane.pb").read_bytes() for host in range(hosts)]
    for name, script in (("podscope", OURS), ("XProf", XPROF)):
        with tempfile.TemporaryDirectory() as made:
            paths = []
            for host, raw in enumerate(raws):
                path = Path(made) / f"host-{host:04d}.xplane.pb"
                path.write_bytes(raw)
                paths.append(str(path))
            cost = process_cost([sys.executable, "-c", script, TOOLS, *paths])
        if cost is not None:
            print(
                f"| {hosts:,} | {name} | {cost.wall_s:.1f} s | {cost.cpu_s:.1f} s "
                f"| {cost.peak_mb:,.0f} MB |",
                flush=True,
            )


def main() -> None:
    """Makes the pod, and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, nargs="+", default=[64, 512, 1024])
    parser.add_argument("--xprof-hosts", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--tpu-steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--skip-xprof", action="store_true")
    parser.add_argument("--reduce-here", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--make-here", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make_here:
        folder, hosts, steps = options.make_here
        stored, size = make_pod(Path(folder), int(hosts), int(steps))
        print(json.dumps({"stored": stored, "size": size}))
        return
    if options.reduce_here:
        folder, listing, hosts = options.reduce_here
        reduce_here(folder, listing, int(hosts))
        return
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        # Not in this process: what it grows to would count as the peak of those it starts.
        command = [sys.executable, __file__, "--make-here", made]
        late = max(options.hosts) + 1
        command += [str(late), str(options.tpu_steps)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        pod = json.loads(told.strip().splitlines()[-1])
        listing, size = folder / "hosts.json", pod["size"]
        listing.write_text(json.dumps(pod["stored"]))
        print(f"{CORES} cores and {options.tpu_steps} steps a host, {size / 1e3:.0f} kB a partial")
        print("| hosts | tools | wall | CPU | peak |\n|--:|--:|--:|--:|--:|")
        costs = {}
        for hosts in sorted(options.hosts):
            costs[hosts], tools = reduce_cost(folder, listing, hosts, options.rounds)
            cost = costs[hosts]
            print(
                f"| {hosts:,} | {tools} | {cost.wall_s:.1f} s | {cost.cpu_s:.1f} s "
                f"| {cost.peak_mb:,.0f} MB |",
                flush=True,
            )
        print(flush=True)
        script = str(Path(__file__).with_name("late_host.py"))
        subprocess.run([sys.executable, script, made, str(listing), str(late)], check=True)
        if not options.skip_xprof:
            print("\n| hosts | | wall | CPU | peak |\n|--:|---|--:|--:|--:|")
            for hosts in options.xprof_hosts:
                compare_files(folder, hosts)


if __name__ == "__main__":
    main()
