"""Capture of many hosts: podscope's fan-out beside XProf's client, in one run.

Both capture the same simulated hosts on this machine's loopback, some of them dead; in a second
round those that live are idle: healthy, with nothing to trace in this window. Printed are the time
beyond the capture window, the profiles kept, the requests that healthy hosts got beyond the one
that was needed (by the simulator's journal), and what each client says of the lost hosts. With two
or more addresses XProf always delays the start by 3 s, in every attempt.

usage: python benchmarks/capture_fanout.py [--hosts 2,16,64] [--dead 0.1] [--duration-ms 1000]
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from podscope_agent.simulator.faults import Fault, parse_faults
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


def one_capture(
    count: int,
    faults: dict[int, Fault],
    client: Callable[[tuple[str, ...], int, str], str],
    duration_ms: int,
) -> tuple[int, int, float, str]:
    """Capture a fresh pod: profiles kept, requests of hosts, seconds, what the client says."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "journal"
        with serve(Pod(device="cpu", hosts=count, steps=3), faults=faults, journal=journal) as pod:
            began = time.perf_counter()
            says = client(pod.addresses, duration_ms, folder)
            seconds = time.perf_counter() - began
            kept = len(list(Path(folder).glob("plugins/profile/*/*.xplane.pb")))
        return kept, len(journal.read_text().splitlines()), seconds, says


def main() -> None:
    """Run both clients on each number of hosts and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", default="2,16,64")
    parser.add_argument("--dead", type=float, default=0.1)
    parser.add_argument("--duration-ms", type=int, default=1000)
    options = parser.parse_args()
    print("hosts  dead  others   client     beyond the window  profiles kept  wasted  says")
    for count in (int(text) for text in options.hosts.split(",")):
        dead = round(count * options.dead)
        refusing = [f"{index}:refuse" for index in range(dead)]
        idle = [f"{index}:empty" for index in range(dead, count)]
        for others, texts in (("working", refusing), ("idle", [*refusing, *idle])):
            faults = parse_faults(texts, count)
            for client in (podscope, xprof):
                kept, asked, seconds, says = one_capture(count, faults, client, options.duration_ms)
                beyond = seconds - options.duration_ms / 1000
                print(
                    f"{count:5d}  {dead:4d}  {others:7s}  {client.__name__:9s}  "
                    f"{beyond:15.2f} s  {kept:13d}  {asked - (count - dead):6d}  {says}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
