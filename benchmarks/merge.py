"""Merging a host's profiles: memory and speed, alone and through a running agent.

    python benchmarks/merge.py                       8 processes of 64 MB, then one of 300 MB
    python benchmarks/merge.py --processes 4 --megabytes 16

"Merge" joins XSpaces that are in memory, in a process of its own: from the bytes of the processes
to one byte string. "Agent" is a running `podscope agent` in front of as many profiler servers,
from the request to the answer at the client: receiving, merging, sending. Times are CPU time of
the merging process: on a machine that does other work too, wall time measures that. Memory is the
largest resident set of the merging process above what it had before, and its ratio to the size of
the output.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATHS = [str(ROOT / part) for part in ("agent", "analyzers", "collector", "protos")]
sys.path[:0] = PATHS

GOAL_RATIO, GOAL_MB_PER_S = 3.0, 200.0
MB = 1_000_000
EVENTS_PER_LINE = 50_000


def made_xspace(megabytes: float, seed: int) -> bytes:
    """A device plane with as many lines of events as are needed, and 5,000 names."""
    from podscope_protos.v1.xplane_pb2 import XEvent, XLine, XPlane, XSpace

    plane = XPlane(name="/device:TPU:0")
    for key in range(1, 5001):
        plane.event_metadata[key].id = key
        plane.event_metadata[key].name = f"%fusion.{key} = f32[8,128]{{1,0}} fusion(%p.{seed})"
    events = b"".join(
        XLine(
            events=[XEvent(metadata_id=1 + n % 5000, offset_ps=n * 10**6, duration_ps=900_000)]
        ).SerializeToString()
        for n in range(1, EVENTS_PER_LINE + 1)
    )
    lines = max(1, int(megabytes * MB / len(events)))
    body = bytearray(plane.SerializeToString())
    for number in range(lines):
        header = XLine(id=number, name=f"line {number}", timestamp_ns=seed).SerializeToString()
        body += b"\x1a" + _varint(len(header) + len(events)) + header + events
    task = XPlane(name="Task Environment")
    task.stat_metadata[1].name = "profile_start_time"
    task.stats.add(metadata_id=1, uint64_value=1_700_000_000_000_000_000 + seed)
    other = XSpace(planes=[task], hostnames=["h0"]).SerializeToString()
    return b"".join([b"\x0a", _varint(len(body)), body, other])


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def measure_merge(folder: Path) -> None:
    """Child process: read the files, merge them, print size, seconds and memory."""
    from podscope_agent.merge import ProcessXSpace, merge_xspaces
    from podscope_agent.responses import profile_response

    before = _status_mb(os.getpid(), "VmRSS")
    processes = [
        ProcessXSpace(1000 + n, path.read_bytes(), f"localhost:{9000 + n}")
        for n, path in enumerate(sorted(folder.iterdir()))
    ]
    began = time.process_time()
    answer = profile_response(merge_xspaces(processes))
    seconds = time.process_time() - began
    print(len(answer), seconds, _status_mb(os.getpid(), "VmHWM") - before)


def serve_targets(folder: Path) -> None:
    """Child process: one profiler server for each file; print the ports."""
    from concurrent import futures

    import grpc

    from podscope_protos import methods

    ports = []
    servers = []
    for path in sorted(folder.iterdir()):
        xspace = path.read_bytes()
        answer = b"\x42" + _varint(len(xspace)) + xspace

        def profile(_body: bytes, _context: grpc.ServicerContext, answer: bytes = answer) -> bytes:
            return answer

        server = grpc.server(
            futures.ThreadPoolExecutor(1), options=(("grpc.max_send_message_length", -1),)
        )
        handlers = {"Profile": grpc.unary_unary_rpc_method_handler(profile)}
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(methods.PROFILER_SERVICE, handlers),)
        )
        ports.append(server.add_insecure_port("127.0.0.1:0"))
        server.start()
        servers.append(server)
    print(",".join(f"127.0.0.1:{port}" for port in ports), flush=True)
    sys.stdin.read()


def measure_agent(folder: Path) -> tuple[int, float, float]:
    """Size of the answer, the agent's CPU seconds, and its memory above what it had before."""
    import grpc

    from podscope_protos import methods
    from podscope_protos.v1 import profiler_service_pb2 as wire

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    targets = subprocess.Popen([sys.executable, __file__, "--serve", str(folder)], **pipe)
    addresses = targets.stdout.readline().strip()
    with tempfile.TemporaryDirectory() as runtime:
        agent = subprocess.Popen(
            [
                *(sys.executable, "-m", "podscope", "agent", "--port", "0", "--metrics-port", "0"),
                *("--target", addresses, "--runtime-dir", runtime),
            ],
            stderr=subprocess.DEVNULL,
            **pipe,
        )
        address = agent.stdout.readline().split("profiler service on ")[1].split(",")[0]
        options = (
            ("grpc.max_receive_message_length", methods.MAX_MESSAGE_BYTES),
            ("grpc.enable_http_proxy", 0),
        )
        before, cpu = _status_mb(agent.pid, "VmRSS"), _cpu_seconds(agent.pid)
        request = wire.ProfileRequest(session_id="s", emit_xspace=True)
        request.opts.version = 1
        with grpc.insecure_channel(address, options=options) as channel:
            call = channel.unary_unary(
                methods.PROFILE, request_serializer=bytes, response_deserializer=bytes
            )
            size = len(call(request.SerializeToString(), timeout=300))
        seconds = _cpu_seconds(agent.pid) - cpu
        peak = _status_mb(agent.pid, "VmHWM") - before
        agent.terminate()
        agent.wait()
    targets.stdin.close()
    targets.wait()
    return size, seconds, peak


def _status_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / MB
    raise ValueError(name)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(what: str, size: int, seconds: float, memory_mb: float) -> None:
    """One row of the table."""
    print(
        f"{what:<34}{size / MB:>10.0f} MB{seconds:>9.2f} s{size / MB / seconds:>9.0f} MB/s"
        f"{memory_mb:>10.0f} MB{memory_mb / (size / MB):>7.2f} x"
    )


def run(processes: int, megabytes: float) -> None:
    """Measure both for so many processes of that size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(processes):
            xspace = made_xspace(megabytes, number * 1000)
            (folder / f"{number:04}").write_bytes(xspace)
        child = subprocess.run(
            [sys.executable, __file__, "--merge", name], capture_output=True, text=True, check=True
        )
        size, seconds, memory = child.stdout.split()
        report(f"merge {processes} x {megabytes:g} MB", int(size), float(seconds), float(memory))
        report(f"agent {processes} x {megabytes:g} MB", *measure_agent(folder))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--merge", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.merge:
        measure_merge(options.merge)
        return
    if options.serve:
        serve_targets(options.serve)
        return
    print(f"goals: memory below {GOAL_RATIO:g} x the output, {GOAL_MB_PER_S:g} MB/s or more\n")
    print(f"{'':<34}{'output':>13}{'CPU':>11}{'':>14}{'memory':>13}")
    run(options.processes, options.megabytes)
    run(1, 300)


if __name__ == "__main__":
    main()
