"""``podscope simulate``: a pod to try things on, without any accelerator."""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from podscope_agent.errors import SimulationError
from podscope_agent.simulator import (
    DEVICES,
    FAULT_KINDS,
    Fault,
    Pod,
    PodServer,
    ServedHost,
    parse_faults,
    planted_truth,
    write_pod,
)
from podscope_agent.simulator.input_pipeline import INPUT_STAGES
from podscope_agent.simulator.journal import Journal
from podscope_agent.simulator.timeline import NOISE, SLOW_PARTS
from podscope_protos.errors import ExitCode

_HELP = f"""Serve or write the profiles of a simulated pod.

Host I listens on port-base + I and answers the profiler's RPCs as a stock server does. The hosts
train one data-parallel program in lock step; the same seed and options give the same profiles.
Runs until Ctrl-C or SIGTERM, unless --write is given.

\b
examples:
  podscope simulate --hosts 16 --device tpu-v5e --port-base 9100
  podscope simulate --hosts 4 --slow-host 2 --input-bound 0.3 --truth truth.json
  podscope simulate --hosts 4 --fault 1:refuse --fault 2:busy:2 --fault 3:slow:500000
  podscope simulate --hosts 8 --device cpu --steps 20 --write runs

\b
faults:
{chr(10).join(f"  {kind:<8} {what}" for kind, what in FAULT_KINDS.items())}
"""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command(help=_HELP)
def simulate(
    *,
    hosts: Annotated[int, typer.Option(help="Number of hosts.")] = 4,
    device: Annotated[str, typer.Option(help=f"One of {', '.join(DEVICES)}.")] = "tpu-v5e",
    steps: Annotated[
        int,
        typer.Option(
            help="Steps in each capture, whatever its duration; "
            "0: as many as are complete in the requested duration."
        ),
    ] = 10,
    port_base: Annotated[int, typer.Option(help="Port of host 0; 0: free ports.")] = 9100,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    seed: Annotated[int, typer.Option(help="Chooses the noise.")] = 0,
    events: Annotated[
        int | None, typer.Option(help="About how many events each capture of a host has.")
    ] = None,
    slow_host: Annotated[
        int | None, typer.Option(help="Index of a host that computes slower than the others.")
    ] = None,
    slow_factor: Annotated[
        float, typer.Option(help="How much longer the slow host's own compute takes.")
    ] = 1.5,
    slow_part: Annotated[
        str, typer.Option(help=f"What is slow on it: {', '.join(SLOW_PARTS)}.")
    ] = "compute",
    noise: Annotated[
        float, typer.Option(help="Relative deviation of a host's times from step to step.")
    ] = NOISE,
    input_bound: Annotated[
        float, typer.Option(help="Share of each step spent waiting for input, 0 to 0.95.")
    ] = 0.0,
    host_bytes: Annotated[
        int | None, typer.Option(help="Fill each profile up to so many bytes.")
    ] = None,
    clock_skew_ms: Annotated[
        float, typer.Option(help="By how much the hosts' clocks are off at most.")
    ] = 0.0,
    input_stage: Annotated[
        str, typer.Option(help=f"Slowest stage of the input: {', '.join(INPUT_STAGES)}.")
    ] = "read",
    leak_bytes: Annotated[int, typer.Option(help="Memory that each core leaks in every step.")] = 0,
    counters: Annotated[
        bool, typer.Option("--counters", help="Devices record hardware counters.")
    ] = False,
    slices: Annotated[
        int, typer.Option(help="Slices of TPUs that exchange parameters in every step.")
    ] = 1,
    fault: Annotated[
        list[str] | None, typer.Option(help="HOST:KIND, may be repeated; see above.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(help="Write what was planted to this file, as JSON.")
    ] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Write every request for a profile to this new file.")
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(help="Write DIR/plugins/profile/SESSION/HOST.xplane.pb instead of serving."),
    ] = None,
    session: Annotated[str | None, typer.Option(help="Name of the run folder for --write.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout instead of text.")
    ] = False,
) -> int:
    """Check the options, then serve or write."""
    pod = Pod(
        device=device,
        hosts=hosts,
        steps=steps,
        seed=seed,
        events=events,
        slow_host=slow_host,
        slow_factor=slow_factor,
        slow_part=slow_part,
        noise=noise,
        input_bound=input_bound,
        host_bytes=host_bytes,
        clock_skew_ms=clock_skew_ms,
        input_stage=input_stage,
        leak_bytes=leak_bytes,
        counters=counters,
        slices=slices,
    )
    faults = parse_faults(fault or (), hosts)
    if write is not None:
        return _write(pod, write, session, faults, truth, as_json=as_json)
    if session is not None:
        msg = "--session names a written run; give --write DIR too"
        raise SimulationError(msg)
    pod = replace(pod, started_at_ns=time.time_ns())
    return asyncio.run(_serve(pod, host, port_base, faults, truth, journal, as_json=as_json))


async def _serve(
    pod: Pod,
    host: str,
    port_base: int,
    faults: Mapping[int, Fault],
    truth: Path | None,
    journal_path: Path | None,
    *,
    as_json: bool,
) -> int:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        stopped.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    journal = None if journal_path is None else Journal(journal_path)
    server = PodServer(pod, host, port_base, faults, journal)
    await server.start()
    try:
        _write_truth(pod, server.hosts, truth)
        _print_served(pod, server.hosts, as_json=as_json)
        await stopped.wait()
    finally:
        await server.stop()
        if journal is not None:
            journal.close()
    return int(ExitCode.INTERRUPTED if signal.SIGINT in received else ExitCode.DONE)


def _write(
    pod: Pod,
    folder: Path,
    session: str | None,
    faults: Mapping[int, Fault],
    truth: Path | None,
    *,
    as_json: bool,
) -> int:
    if session is not None and (
        session in {"", ".."} or Path(session).name != session or not session.isprintable()
    ):
        msg = f"--session {session[:80]!r} is not a plain folder name"
        raise SimulationError(msg)
    written = []
    for host, path, size in write_pod(pod, folder, session, faults):
        address = "" if path is None else str(path)
        served = ServedHost(host, pod.hostname(host), address, faults.get(host))
        written.append((served, size))
    _write_truth(pod, [served for served, _ in written], truth)
    total = sum(size for _, size in written)
    files = [served for served, _ in written if served.address]
    if as_json:
        _print(json.dumps({"hosts": [{**_host_json(s), "bytes": n} for s, n in written]}))
    elif files:
        run = Path(files[0].address).parent
        _print(f"wrote {len(files)} profiles of {pod.device}, {total:,} bytes, to {run}")
    else:
        _print("wrote no profile: every host has a fault that leaves none")
    return int(ExitCode.DONE)


def _print_served(pod: Pod, hosts: Sequence[ServedHost], *, as_json: bool) -> None:
    if as_json:
        _print(json.dumps({"hosts": [_host_json(host) for host in hosts]}))
        return
    first, last = hosts[0].address, hosts[-1].address
    where = first if len(hosts) == 1 else f"{first} to {last}"
    faulty = sum(1 for host in hosts if host.fault is not None)
    extra = f" ({faulty} with a fault)" if faulty else ""
    _print(f"serving {len(hosts)} simulated {pod.device} hosts on {where}{extra}; Ctrl-C stops")


def _host_json(host: ServedHost) -> dict[str, object]:
    return {
        "index": host.index,
        "hostname": host.hostname,
        "address": host.address,
        "fault": None if host.fault is None else host.fault.kind,
    }


def _write_truth(pod: Pod, hosts: Sequence[ServedHost], path: Path | None) -> None:
    if path is None:
        return
    try:
        path.write_text(json.dumps(planted_truth(pod, hosts), indent=1) + "\n")
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror}; choose another --truth"
        raise SimulationError(msg) from error


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
