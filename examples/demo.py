"""The demo: a real job on several hosts, captured on all of them at once and explained.

Starts podscope with one command, starts a job (four JAX processes that train together, or a
simulated TPU pod), captures every host through the service, and prints what it found. It uses
what every user has: the command line and the REST API.
"""

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import httpx
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

EXAMPLES = Path(__file__).resolve().parent
SLOW_PROCESS = 2
SLOW_SIMULATED_HOST = 5
TOP_OPS = 10
OP_WIDTH = 42
PLACES = {"device": "device", "host": "host", "host_execution": "CPU"}
PODSCOPE = [sys.executable, "-m", "podscope"]

console = Console(highlight=False)


class DemoError(Exception):
    """Something did not come up; the message says where to look."""


def free_port(preferred: int) -> int:
    """Return `preferred` when nothing listens there, else a port that the system picks."""
    for port in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    msg = "no free port on 127.0.0.1"
    raise DemoError(msg)


def free_ports(first: int, count: int) -> int:
    """Return the first of `count` consecutive free ports, from `first` on."""
    for base in range(first, 60000, count):
        if all(free_port(port) == port for port in range(base, base + count)):
            return base
    msg = f"no {count} consecutive free ports on 127.0.0.1"
    raise DemoError(msg)


class Processes:
    """Children of the demo, each with a log file; all of them end with it."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.running: list[tuple[str, subprocess.Popen[bytes], Path]] = []

    def start(self, name: str, command: Sequence[str], **environment: str) -> None:
        """Start one child in a process group of its own."""
        log = self.logs / f"{name}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self.running.append((name, child, log))

    def check(self) -> None:
        """Raise when a child has ended.

        Raises:
            DemoError: with the last lines of the child's log.
        """
        for name, child, log in self.running:
            if child.poll() is not None:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
                msg = f"{name} ended with exit code {child.returncode}:\n{tail}"
                raise DemoError(msg)

    def stop(self) -> None:
        """End every child: politely, then for good."""
        for _, child, _ in reversed(self.running):
            if child.poll() is None:
                child.terminate()
        deadline = time.monotonic() + 15
        for _, child, _ in self.running:
            try:
                child.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def wait_until(what: str, ready: Callable[[], bool], children: Processes, seconds: float) -> None:
    """Show a spinner until `ready` says so.

    Raises:
        DemoError: a child ended, or the time is over.
    """
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        progress.add_task(what)
        deadline = time.monotonic() + seconds
        while not ready():
            children.check()
            if time.monotonic() > deadline:
                msg = f"{what}: not ready after {seconds:.0f} s; logs are in {children.logs}"
                raise DemoError(msg)
            time.sleep(0.2)
    console.print(f"[green]✓[/] {what}")


def answers(port: int) -> bool:
    """Whether something listens on a local port."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_training(children: Processes, count: int) -> list[str]:
    """Start `count` JAX processes that train together; return their profilers' addresses."""
    base = free_ports(9410, count)
    coordinator = f"127.0.0.1:{free_port(9400)}"
    for process in range(count):
        slow = 25 if process == SLOW_PROCESS else 0
        command = [
            sys.executable,
            str(EXAMPLES / "train_data_parallel.py"),
            *("--process", str(process), "--processes", str(count)),
            *("--coordinator", coordinator, "--port", str(base + process)),
            *("--slow-input-ms", str(slow)),
        ]
        children.start(f"train-{process}", command, JAX_PLATFORMS="cpu")

    def training() -> bool:
        return all(
            b"training" in log.read_bytes()
            for name, _, log in children.running
            if name.startswith("train-")
        )

    wait_until(f"{count} JAX processes train together, one of them slow", training, children, 120)
    return [f"127.0.0.1:{base + process}" for process in range(count)]


def start_pod(children: Processes, count: int) -> list[str]:
    """Serve a simulated TPU pod of `count` hosts; return their profilers' addresses."""
    base = free_ports(9100, count)
    command = [
        *PODSCOPE,
        *("simulate", "--hosts", str(count), "--device", "tpu-v5e", "--port-base", str(base)),
        *("--slow-host", str(SLOW_SIMULATED_HOST), "--seed", "0"),
    ]
    children.start("simulate", command)
    ports = range(base, base + count)
    wait_until(
        f"a simulated TPU pod of {count} hosts, one of them slow",
        lambda: all(answers(port) for port in ports),
        children,
        60,
    )
    return [f"127.0.0.1:{port}" for port in ports]


def host_table(hosts: Sequence[dict[str, Any]]) -> Table:
    """Status of every host."""
    table = Table(title="Hosts", title_justify="left", box=None, pad_edge=False)
    for name in ("host", "state"):
        table.add_column(name)
    for name in ("attempts", "size", "analysis"):
        table.add_column(name, justify="right")
    colours = {"done": "green", "failed": "red", "empty": "yellow", "cancelled": "yellow"}
    for host in hosts:
        state = host["state"] + (f" ({host['reason']})" if host["reason"] else "")
        table.add_row(
            host["target"],
            f"[{colours.get(host['state'], 'cyan')}]{state}[/]",
            str(host["attempts"]),
            f"{host['bytes'] / 1e6:.2f} MB" if host["bytes"] else "",
            host["analysis"]["state"],
        )
    return table


class Service:
    """The REST API of a running podscope."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=f"{url}/api/v1", timeout=60, trust_env=False)
        self._root = httpx.Client(base_url=url, timeout=5, trust_env=False)

    def is_ready(self) -> bool:
        """Whether captures can be taken."""
        try:
            return self._root.get("/readyz").status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: str) -> Any:
        """One JSON answer."""
        answer = self._http.get(path, params=query)
        answer.raise_for_status()
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Send JSON, return JSON."""
        answer = self._http.post(path, json=body)
        answer.raise_for_status()
        return answer.json()


def capture(service: Service, targets: Sequence[str], children: Processes, run: str) -> Any:
    """Capture every target at once and wait for the analysis; return the capture."""
    body = {
        "targets": list(targets),
        "duration_ms": 2000,
        "quorum": "any",
        "labels": {"run": run},
    }
    identifier = service.post("/captures", body)["id"]
    deadline = time.monotonic() + 150
    progress = Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} hosts"),
        console=console,
    )
    captured = progress.add_task("captured", total=len(targets))
    analysed = progress.add_task("analysed", total=len(targets))
    with Live(progress, console=console, transient=False):
        while True:
            state = service.get(f"/captures/{identifier}")
            progress.update(captured, completed=state["hosts_done"])
            progress.update(analysed, completed=state["analysis"]["hosts_done"])
            over = state["state"] in {"failed", "cancelled"}
            if over or state["analysis"]["state"] in {"done", "failed"}:
                return state
            children.check()
            if time.monotonic() > deadline:
                msg = f"the analysis did not end; logs are in {children.logs}"
                raise DemoError(msg)
            time.sleep(0.3)


def report(service: Service, state: dict[str, Any]) -> bool:
    """Print what was found; return whether every host was captured and analysed."""
    identifier = state["id"]
    hosts = service.get(f"/captures/{identifier}/hosts")["items"]
    console.print()
    console.print(host_table(hosts))
    is_whole = (
        state["state"] == "complete"
        and state["analysis"]["state"] == "done"
        and all(h["state"] == "done" and h["analysis"]["state"] == "done" for h in hosts)
    )
    if state["analysis"]["state"] != "done":
        console.print(f"[red]the analysis failed:[/] {state['analysis']['error']}")
        return False
    print_findings(service, identifier)
    return is_whole


def rows_of(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a result's table as dictionaries by column id."""
    names = [column["id"] for column in table["columns"]]
    return [dict(zip(names, row, strict=True)) for row in table["rows"]]


def print_findings(service: Service, identifier: str) -> None:
    """Print step times, the slow host and the top ops."""
    pod = service.get(f"/captures/{identifier}/tools/pod_viewer")["result"]
    ops = service.get(f"/captures/{identifier}/tools/framework_op_stats")["result"]
    console.print(step_table(rows_of(pod["hosts"])))
    console.print()
    verdict = pod["straggler"]
    if verdict["host"] is None:
        console.print(f"No slow host: {verdict['verdict'].replace('_', ' ')}.")
    for late in verdict["stragglers"]:
        late_ms = late["lateness_us"] / 1000
        share = f"{late['lateness_ratio']:.0%}"
        console.print(
            f"[bold yellow]Slow host: {late['host']}[/] is {late_ms:.1f} ms late in a typical "
            f"step ({share} of it), because of its {late['cause']}.",
            soft_wrap=True,
        )
        for evidence in late["evidence"]:
            console.print(f"  {evidence}")
    console.print()
    console.print(op_table(rows_of(ops["without_idle"])[:TOP_OPS]))


def step_table(hosts: Sequence[dict[str, Any]]) -> Table:
    """Step times of every host: own work, and waiting for the others."""
    table = Table(title="Steps (medians, ms)", title_justify="left", box=None, pad_edge=False)
    table.add_column("host")
    for name in ("steps", "step time", "own work", "waiting", "compute", "input"):
        table.add_column(name, justify="right")
    columns = ("step_time_us", "own_work_us", "waiting_us", "compute_us", "input_us")
    for host in hosts:
        times = ["" if host[c] is None else f"{host[c] / 1000:.2f}" for c in columns]
        style = "bold yellow" if host["is_straggler"] else ""
        table.add_row(host["host"], str(host["step_count"]), *times, style=style)
    return table


def shortened(name: str, width: int) -> str:
    """A name with the beginning of a long path left out."""
    return name if len(name) <= width else "…" + name[1 - width :]


def op_name(op: dict[str, Any]) -> str:
    """An op's name; of an instruction also what it was compiled from, as far as there is room."""
    name = str(op["operation"])
    room = OP_WIDTH - len(name) - 3
    if op["framework_name"] and room > 0:
        return f"{name} ({shortened(op['framework_name'], room)})"
    return shortened(name, OP_WIDTH)


def op_table(ops: Sequence[dict[str, Any]]) -> Table:
    """The ops that take most of the time."""
    table = Table(title="Top ops", title_justify="left", box=None, pad_edge=False)
    table.add_column("where")
    # Paths are cut at their beginning by us: the end tells ops apart.
    table.add_column("operation", no_wrap=True)
    for name in ("count", "self ms", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for op in ops:
        # Shares are of the place's time; the two other places have 0 of it, or no time at all.
        share = sum(op[f"{place}_total_self_time_ratio"] or 0 for place in PLACES)
        table.add_row(
            PLACES[op["host_or_device"]],
            op_name(op),
            f"{op['occurrences']:,}",
            f"{op['total_self_time_us'] / 1000:.2f}",
            f"{share:.1%}",
        )
    return table


def fail(message: str) -> NoReturn:
    """Print one error and end."""
    console.print(f"[red]demo:[/] {message}", soft_wrap=True)
    sys.exit(1)


@contextlib.contextmanager
def children_of(folder: Path) -> Iterator[Processes]:
    """Yield the demo's processes; none outlives it."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    children = Processes(logs)
    try:
        yield children
    finally:
        children.stop()


def run(kind: str, folder: Path, *, is_short: bool) -> bool:
    """Run the demo once; return whether every host was captured and analysed."""
    with children_of(folder) as children:
        port = free_port(8080)
        command = [*PODSCOPE, "up", "--data-dir", str(folder / "data"), "--port", str(port)]
        children.start("podscope", command)
        service = Service(f"http://127.0.0.1:{port}")
        targets = start_pod(children, 16) if kind == "pod" else start_training(children, 4)
        wait_until("podscope up: API, worker, scheduler, broker", service.is_ready, children, 120)
        state = capture(service, targets, children, run=f"demo-{kind}")
        is_whole = report(service, state)
        page = f"{service.url}/captures/{state['id']}/overview_page"
        # Never wrapped: people click it or copy it.
        console.print(f"\nWeb page: [bold]{page}[/]", soft_wrap=True)
        if not is_short:
            console.print("It stays up until Ctrl-C.")
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    children.check()
                    time.sleep(1)
            console.print("stopping ...")
        return is_whole


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["jax", "pod"], default="jax")
    parser.add_argument("--exit", action="store_true", help="end when the result is printed")
    arguments = parser.parse_args()
    # SIGTERM ends the demo as Ctrl-C does, so that no child is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="podscope-demo-"))
    started = time.monotonic()
    try:
        is_whole = run(arguments.kind, folder, is_short=arguments.exit)
    except DemoError as error:
        fail(str(error))
    except httpx.HTTPError as error:
        fail(f"{error}; logs are in {folder / 'logs'}")
    except KeyboardInterrupt:
        sys.exit(130)
    if not is_whole:
        fail(f"not every host was captured and analysed; logs are in {folder / 'logs'}")
    if arguments.exit:
        console.print(f"done in {time.monotonic() - started:.0f} s")
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
