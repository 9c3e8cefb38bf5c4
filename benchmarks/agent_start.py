"""How far apart the hosts of a capture begin when each has an agent, with and without an instant.

    python benchmarks/agent_start.py --agents 1024

Every agent is the real one, in front of a simulated profiler of its own; many share a process, and
all share this machine, so that what is late here is late for want of cores. Without a delay hosts
begin when their request arrives; with one each is given the same instant in its own clock. All
clocks are this machine's, so the starts that the profiles tell can be compared as they are; beside
that is what the collector tells of it, by the clocks as it measured them.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from podscope_agent import inventory, session
from podscope_agent.delivery import Delivery
from podscope_agent.host_captures import HostCaptures
from podscope_agent.inventory import TargetInventory
from podscope_agent.live.exporter import LiveFigures
from podscope_agent.own_service import OwnService
from podscope_agent.repository import Repository
from podscope_agent.results import ResultSpool
from podscope_agent.server import AgentServer, AgentService, OwnRpcs
from podscope_agent.session import HostSession
from podscope_agent.simulator import Pod, serve
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.outcome import CaptureOutcome
from podscope_collector.captures.request import parse_request
from podscope_collector.storage import Storage


async def serve_agents(targets: Sequence[str]) -> None:
    """An agent in front of each target, until stdin ends; prints their addresses."""
    # A host has its own sockets. Here each agent would look through those of a thousand.
    inventory.owners_of_ports = session.owners_of_ports = dict
    # A server that nobody holds stops.
    servers = []
    for number, target in enumerate(targets):
        live, spool = LiveFigures(f"h{number}", []), ResultSpool(None, 64 << 20, 600)
        repository = Repository([])
        of_host = HostSession(TargetInventory([target]))
        captures = HostCaptures(of_host, spool, repository)
        own = OwnService(f"h{number}", {}, of_host, captures, live, spool, repository)
        profiler = AgentService(of_host, live, Delivery(repository, spool))
        server = AgentServer(profiler, OwnRpcs(own), "127.0.0.1", 0, None)
        await server.start()
        servers.append(server)
    print(json.dumps([f"127.0.0.1:{server.port}" for server in servers]), flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextlib.contextmanager
def agents(targets: Sequence[str], per_process: int) -> Iterator[list[str]]:
    """The addresses of agents that run in processes of their own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    running = [
        subprocess.Popen(
            [sys.executable, __file__, "--serve", ",".join(targets[first : first + per_process])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for first in range(0, len(targets), per_process)
    ]
    try:
        addresses: list[str] = []
        for process in running:
            assert process.stdout is not None
            addresses += json.loads(process.stdout.readline())
        yield addresses
    finally:
        for process in running:
            process.kill()
            process.communicate()


def capture(addresses: Sequence[str], delay_ms: int, duration_ms: int) -> CaptureOutcome:
    """One capture of all agents."""
    request = parse_request(
        {
            "targets": list(addresses),
            "duration_ms": duration_ms,
            "delay_ms": delay_ms,
            "synchronized": delay_ms > 0,
            "expected_host_bytes": 100_000,
            "attempts": 1,
            "timeout_ms": 300_000,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage(folder)
        name = storage.new_session()
        targets = request.parsed_targets().targets
        return asyncio.run(run_capture(request, targets, storage, name, lambda update: None))


def report(outcome: CaptureOutcome, delay_ms: int, cpu_s: float) -> None:
    """Print how far apart the hosts began."""
    starts = [host.window_ns[0] for host in outcome.hosts if host.window_ns[0] is not None]
    apart_ms = (max(starts) - min(starts)) / 1e6 if starts else float("nan")
    told = outcome.alignment
    said, error = "unknown", ""
    if told is not None:
        said = f"{told.skew_ns / 1e6:.1f} ms"
        error = "unknown" if told.error_ns is None else f"± {told.error_ns / 1e6:.2f} ms"
    print(
        f"{len(outcome.hosts):6d}  {delay_ms:6d} ms  {len(starts):6d}  {apart_ms:9.1f} ms  "
        f"{said:>12s}  {error:>12s}  {cpu_s:6.1f} s",
        flush=True,
    )


def main() -> None:
    """Serve the hosts and their agents, capture without and with an instant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", default="16,128,1024")
    parser.add_argument("--per-process", type=int, default=256)
    parser.add_argument("--delay-ms", type=int, default=5000)
    parser.add_argument("--duration-ms", type=int, default=1000)
    parser.add_argument("--serve", default=None, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve is not None:
        asyncio.run(serve_agents(chosen.serve.split(",")))
        return
    print("agents     delay    done  began within     told skew    told error     CPU")
    for count in (int(text) for text in chosen.agents.split(",")):
        for delay_ms in (0, chosen.delay_ms):
            with contextlib.ExitStack() as stack:
                pod = Pod(device="cpu", hosts=count, steps=1)
                found = stack.enter_context(
                    agents(stack.enter_context(serve(pod)).addresses, chosen.per_process)
                )
                before = time.process_time()
                outcome = capture(found, delay_ms, chosen.duration_ms)
                report(outcome, delay_ms, time.process_time() - before)


if __name__ == "__main__":
    main()
