"""Capture of many hosts: podscope's fan-out beside XProf's client, in one run.

Both capture the same simulated hosts on this machine's loopback, some of them dead. Printed are the
time beyond the capture window, the profiles kept, the requests that healthy hosts got beyond the
one that was needed (by the simulator's journal), and what each client says of the lost hosts. With
two or more addresses XProf always delays the start by 3 s; podscope's first row includes loading
its checks (about one second, once per process).

usage: python benchmarks/capture_fanout.py [--hosts 2,16,64] [--dead 0.1] [--duration-ms 1000]
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from podscope_agent.simulator.faults import parse_faults
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.process import serve
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.request import parse_request
from podscope_collector.storage import Storage


def podscope(addresses: tuple[str, ...], duration_ms: int, folder: str) -> str:
    """Capture with the fan-out; returns what it says."""
    storage = Storage(folder)
    request = parse_request({"targets": list(addresses), "duration_ms": duration_ms})
    outcome = asyncio.run(
        run_capture(
            request,
            request.parsed_targets().targets,
            storage,
            storage.new_session(),
            lambda update: None,
        )
    )
    lost = [host for host in outcome.hosts if host.reason is not None]
    reasons = ", ".join(sorted({str(host.reason) for host in lost})) or "none lost"
    return f"{outcome.state}, {len(lost)} hosts named ({reasons})"


def xprof(addresses: tuple[str, ...], duration_ms: int, folder: str) -> str:
    """Capture with XProf's client; returns what it says."""
    from xprof.convert import _pywrap_profiler_plugin as plugin

    try:
        plugin.trace(",".join(addresses), folder, "", True, duration_ms, 3, {})
    except RuntimeError as error:
        return f"error: {str(error)[:60]}"
    return "success, no host named"


def main() -> None:
    """Run both clients on each number of hosts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="2,16,64")
    parser.add_argument("--dead", type=float, default=0.1)
    parser.add_argument("--duration-ms", type=int, default=1000)
    options = parser.parse_args()
    print("hosts  dead  client     beyond the window  profiles kept  wasted  says")
    for count in (int(text) for text in options.hosts.split(",")):
        dead = round(count * options.dead)
        faults = parse_faults([f"{index}:refuse" for index in range(dead)], count)
        pod_of = Pod(device="cpu", hosts=count, steps=3)
        for client in (podscope, xprof):
            with tempfile.TemporaryDirectory() as folder:
                journal = Path(folder) / "journal"
                with serve(pod_of, faults=faults, journal=journal) as pod:
                    began = time.perf_counter()
                    says = client(pod.addresses, options.duration_ms, folder)
                    beyond = time.perf_counter() - began - options.duration_ms / 1000
                    kept = len(list(Path(folder).glob("plugins/profile/*/*.xplane.pb")))
                wasted = len(journal.read_text().splitlines()) - (count - dead)
            print(
                f"{count:5d}  {dead:4d}  {client.__name__:9s}  {beyond:15.2f} s  "
                f"{kept:13d}  {wasted:6d}  {says}",
                flush=True,
            )


if __name__ == "__main__":
    main()
