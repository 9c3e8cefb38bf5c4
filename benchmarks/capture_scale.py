"""A capture of very many hosts: time, memory and CPU of the collector beside a bare client.

    python benchmarks/capture_scale.py --hosts 1024 --host-bytes 8000000
    python benchmarks/capture_scale.py --hosts 10000 --duration-ms 1000

The hosts are ``podscope simulate``'s, on this machine's loopback. The collector's side is one
process that has the capture in a database, fans out, checks, stores and writes every change of
state down, as a service's worker does; the bare client sends the same requests (without a window),
128 at once, and throws the answers away. ``--files`` lowers the collector's limit of open files.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import psutil

from podscope_agent.simulator import Pod, serve
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

POD_HOSTS = 2048
AT_ONCE = 128


def used() -> tuple[float, float]:
    """CPU seconds and peak resident MiB of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def cpu_of(pods: list[psutil.Process]) -> float:
    """CPU seconds of the simulated hosts so far."""
    return sum(times.user + times.system for times in (pod.cpu_times() for pod in pods))


def collector(options: dict[str, Any]) -> dict[str, Any]:
    """Capture as a worker does; what came out of it."""
    from podscope_collector.captures import services
    from podscope_collector.captures.fanout import run_capture
    from podscope_collector.captures.limits import FanoutLimits
    from podscope_collector.captures.loop import LoopRun
    from podscope_collector.captures.models import Capture, Trigger
    from podscope_collector.captures.recorder import Recorder
    from podscope_collector.captures.request import parse_request
    from podscope_collector.processes import load_kernels
    from podscope_collector.runtime import Runtime
    from podscope_collector.schema import upgrade
    from podscope_collector.settings import CollectorSettings

    class Nobody:
        """Takes the analyses that become due, and leaves them: they are not measured here."""

        def send_task(self, name: str, **options: object) -> None:
            """Do nothing."""

    settings = CollectorSettings(data_dir=Path(options["folder"]))
    Path(options["folder"]).mkdir(parents=True, exist_ok=True)
    runtime = Runtime.from_settings(settings)
    upgrade(runtime.database)
    request = parse_request(options["request"])
    with runtime.database.writing() as session:
        name = runtime.storage.new_session()
        capture_id = services.create_capture(
            session, request, Trigger.API, datetime.now(UTC), name=name
        ).id
    # As a worker does when it starts.
    load_kernels()
    began, cpu_before = time.perf_counter(), used()[0]
    with runtime.database.writing() as session:
        services.start_capture(session, capture_id, datetime.now(UTC))
        hosts = services.open_hosts(session, capture_id)
    with Recorder(runtime, Nobody(), capture_id) as recorder:
        LoopRun(
            run_capture(
                request,
                [host.target for host in hosts],
                runtime.storage,
                name,
                recorder.on_update,
                host_names=[host.name for host in hosts],
                limits=FanoutLimits.of(settings),
            )
        ).result()
    with runtime.database.writing() as session:
        services.finish_capture(session, capture_id, datetime.now(UTC))
    wall = time.perf_counter() - began
    cpu, peak = used()
    with runtime.database.reading() as session:
        capture = session.get_one(Capture, capture_id)
        rows = [(h.state.value, h.file, h.sha256, h.bytes) for h in capture.hosts]
        state, size = capture.state.value, capture.bytes
    wrong = 0
    for _, file, digest, _ in rows:
        content = b"" if file is None else runtime.storage.read(file)
        wrong += hashlib.sha256(content).hexdigest() != digest
    return {
        "wall": wall,
        "cpu": cpu - cpu_before,
        "peak": peak,
        "state": state,
        "bytes": size,
        "states": dict(Counter(row[0] for row in rows)),
        "wrong_files": wrong,
    }


def bare(options: dict[str, Any]) -> dict[str, Any]:
    """Read the same answers and throw them away."""

    async def one(address: str, turn: asyncio.Semaphore) -> int:
        opts = wire.ProfileOptions(
            version=1,
            duration_ms=1,
            host_tracer_level=2,
            device_tracer_level=1,
            enable_hlo_proto=True,
        )
        request = wire.ProfileRequest(opts=opts, emit_xspace=True, session_id="bare")
        settings = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))
        async with turn, grpc.aio.insecure_channel(address, options=settings) as channel:
            call = channel.unary_unary(methods.PROFILE, None, None)
            return len(await call(request.SerializeToString(), timeout=600))

    async def everyone() -> int:
        turn = asyncio.Semaphore(AT_ONCE)
        return sum(await asyncio.gather(*(one(a, turn) for a in options["addresses"])))

    began = time.perf_counter()
    size = asyncio.run(everyone())
    wall = time.perf_counter() - began
    cpu, peak = used()
    return {"wall": wall, "cpu": cpu, "peak": peak, "bytes": size}


def child(role: str, options: dict[str, Any], files: int | None) -> dict[str, Any]:
    """Run one side in a process of its own."""

    def limited() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    ended = subprocess.run(
        [sys.executable, __file__, "--role", role],
        input=json.dumps(options),
        capture_output=True,
        text=True,
        env=environment,
        preexec_fn=limited,
        check=False,
    )
    if ended.returncode:
        sys.exit(ended.stderr[-2000:])
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def say(what: str, measured: str, goal: str, *, met: bool) -> None:
    """One line of the verdict."""
    print(f"  {what:34s} {measured:>22s}   goal {goal:24s} {'met' if met else 'MISSED'}")


def main() -> None:
    """Serve the hosts, run both sides and say what is met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=1024)
    parser.add_argument("--host-bytes", type=int, default=None)
    parser.add_argument("--duration-ms", type=int, default=2000)
    parser.add_argument("--files", type=int, default=None)
    parser.add_argument("--role", default=None, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role is not None:
        measure = {"collector": collector, "bare": bare}[chosen.role]
        print(json.dumps(measure(json.load(sys.stdin))))
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        addresses: list[str] = []
        pods: list[psutil.Process] = []
        for first in range(0, chosen.hosts, POD_HOSTS):
            count = min(POD_HOSTS, chosen.hosts - first)
            pod = Pod("cpu", hosts=count, steps=1, host_bytes=chosen.host_bytes)
            served = stack.enter_context(serve(pod))
            addresses += served.addresses
            pods.append(psutil.Process(served.process_id))
        before = cpu_of(pods)
        reference = child("bare", {"addresses": addresses}, None)
        reference["pods"] = cpu_of(pods) - before
        request = {"targets": addresses, "duration_ms": chosen.duration_ms}
        request |= {"timeout_ms": 600_000, "expected_host_bytes": chosen.host_bytes}
        before = cpu_of(pods)
        ours = child("collector", {"folder": folder, "request": request}, chosen.files)
        ours["pods"] = cpu_of(pods) - before
    rate = reference["bytes"] / reference["wall"]
    print(f"{chosen.hosts:,} hosts, {ours['bytes'] / 1e6:,.0f} MB, {chosen.duration_ms} ms windows")
    for name, side in (("bare client", reference), ("collector", ours)):
        print(
            f"  {name:12s} wall {side['wall']:7.1f} s   CPU {side['cpu']:6.1f} s   "
            f"peak {side['peak']:6.0f} MiB   {side['bytes'] / side['wall'] / 1e6:6.0f} MB/s   "
            f"CPU of the hosts {side['pods']:6.1f} s"
        )
    longest = max(chosen.duration_ms / 1000, ours["bytes"] / rate)
    done = ours["states"].get("done", 0)
    say(
        "hosts done, files right",
        f"{done:,}, {chosen.hosts - ours['wrong_files']:,}",
        f"{chosen.hosts:,}",
        met=done == chosen.hosts and not ours["wrong_files"],
    )
    say("peak memory", f"{ours['peak']:.0f} MiB", "1,536 MiB", met=ours["peak"] <= 1536)
    ratio = ours["wall"] / longest
    say("wall over the longer of both", f"{ratio:.2f}", "1.30", met=ratio <= 1.3)
    say("CPU of the collector", f"{ours['cpu']:.1f} s", "60 s for 10,000", met=ours["cpu"] <= 60)


if __name__ == "__main__":
    main()
