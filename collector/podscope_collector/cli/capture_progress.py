"""The progress of a capture: a live table on a terminal, plain lines everywhere else."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from podscope_collector.captures.outcome import HostUpdate
from podscope_collector.captures.states import HostState
from podscope_collector.host_names import distinct_host_names

_STYLE = {
    HostState.DONE: "green",
    HostState.EMPTY: "yellow",
    HostState.FAILED: "red",
    HostState.SKIPPED: "yellow",
    HostState.CANCELLED: "yellow",
}


class Progress:
    """Shows updates on stderr; stdout stays for the result.

    Args:
        pending: All hosts before the first update, in order.
        window_ms: From the start of the capture to the end of its window.
        quiet: Remember the updates, show nothing.
        steps: What the window is to hold, where it is no duration.
    """

    def __init__(
        self,
        pending: Sequence[HostUpdate],
        window_ms: int,
        *,
        quiet: bool,
        steps: int | None = None,
    ) -> None:
        self._steps = steps
        self._hosts = {update.target: update for update in pending}
        self._window_s = window_ms / 1000
        self._began = monotonic()
        self._live: Live | None = None
        self._plain = not quiet
        if not quiet and sys.stderr.isatty():
            self._plain = False
            # Redrawn by the clock: a window may be long, and nothing else tells how far it is.
            self._live = Live(
                get_renderable=self._table,
                console=Console(stderr=True),
                refresh_per_second=5,
                transient=True,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take the live table away; what follows is the summary."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, update: HostUpdate) -> None:
        """Take in a change of one host."""
        before = self._hosts.get(update.target)
        self._hosts[update.target] = update
        if self._plain and _worth_a_line(before, update):
            seconds = monotonic() - self._began
            sys.stderr.write(f"{seconds:7.1f}s {_line(update)}\n")
            sys.stderr.flush()

    def keep_only(self, targets: set[str]) -> None:
        """Forget the hosts that are not among these; lookups become hosts."""
        self._hosts = {name: host for name, host in self._hosts.items() if name in targets}

    def to_json(self) -> list[dict[str, Any]]:
        """The hosts as they are now, in order."""
        return [host.to_json() for host in self._hosts.values()]

    def _table(self) -> Group:
        hosts = list(self._hosts.values())
        final = sum(host.state.is_final for host in hosts)
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("target", "state", "tries", "size", ""):
            table.add_column(name, justify="right" if name in {"tries", "size"} else "left")
        # Thousands of rows are no table: those that need eyes come first.
        room = 40
        shown = hosts if len(hosts) <= room else sorted(hosts, key=_attention)[:room]
        for host in shown:
            table.add_row(
                _called(host),
                Text(str(host.state), style=_STYLE.get(host.state, "cyan")),
                str(host.attempts),
                size_text(host.bytes) if host.bytes else "",
                Text(host.message or "", overflow="ellipsis", no_wrap=True),
            )
        elapsed = monotonic() - self._began
        window = f"window {min(elapsed, self._window_s):.1f} of {self._window_s:g} s"
        if self._steps is not None:
            window = f"{self._steps} steps"
        head = Text(f"{final} of {len(hosts)} hosts final, {window}, {elapsed:.0f} s in all")
        if len(shown) < len(hosts):
            head.append(f" ({len(hosts) - len(shown)} more not shown)")
        return Group(head, ProgressBar(total=max(1, len(hosts)), completed=final, width=60), table)


def alignment_text(told: Mapping[str, Any] | None) -> str:
    """How well the hosts started together, in one line; empty when one host alone tells."""
    if told is None or told["hosts"] < 2:
        return ""
    error = told["error_ns"]
    sure = "by their own clocks" if error is None else f"± {error / 1e6:.2f} ms"
    line = f"started within {told['skew_ns'] / 1e6:.2f} ms ({sure})"
    if told["common_ns"] is not None:
        line += f", {told['common_ns'] / 1e6:,.0f} ms in common"
    if told["outside"]:
        line += f"; not together with the others: {', '.join(told['outside'][:5])}"
    return f"{line}\n"


def clock_check_text(told: Mapping[str, Any] | None) -> str:
    """What the profiles themselves say of the clocks, in one line; empty where nothing does."""
    if told is None:
        return ""
    what = "collectives" if told["basis"] == "collective_ends" else "steps"
    line = (
        f"apart by {told['residual_ns'] / 1e6:.3f} ms (± {told['error_ns'] / 1e6:.3f} ms) at the "
        f"common ends of {told['ends']:,} {what} of {told['hosts']:,} hosts"
    )
    if told["promised_ns"] is not None:
        line += f"; measured to within {told['promised_ns'] / 1e6:.3f} ms"
    if told["skew_ns"] is not None:
        line += f"; by these ends started within {told['skew_ns'] / 1e6:.2f} ms"
    if told["unplaced"]:
        line += f"; not comparable: {', '.join(told['unplaced'][:5])}"
    return line


def summary(state: str, hosts: Iterable[HostUpdate]) -> str:
    """The table of all hosts, as plain text that also reads well in a log file."""
    found = list(hosts)
    rows = [
        ("target", "state", "tries", "size", "reason"),
        *(
            (
                _called(host),
                str(host.state),
                str(host.attempts),
                size_text(host.bytes) if host.bytes else "-",
                f"{host.reason}: {host.message}" if host.reason else "",
            )
            for host in found
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]])
        for row in rows
    ]
    done = sum(host.state is HostState.DONE for host in found)
    skipped = sum(host.state is HostState.SKIPPED for host in found)
    total = size_text(sum(host.bytes for host in found))
    line = f"{state}: {done} of {len(found) - skipped} hosts captured, {total}"
    lines.append(f"{line}; {skipped} skipped" if skipped else line)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def size_text(size: int) -> str:
    """Bytes in a unit that people read."""
    amount = float(size)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.2f} GB"


def _called(host: HostUpdate) -> str:
    """The address, behind the host's own name where it has one: a pod's, a TPU worker's."""
    (plain,) = distinct_host_names([host.target])
    return host.target if host.host == plain else f"{host.host} ({host.target})"


def _attention(host: HostUpdate) -> int:
    if host.state in {HostState.FAILED, HostState.EMPTY, HostState.SKIPPED}:
        return 0
    return 2 if host.state is HostState.DONE else 1


def _worth_a_line(before: HostUpdate | None, update: HostUpdate) -> bool:
    """In a log only what a reader looks for: ends, and tries that failed."""
    if update.state.is_final:
        return True
    return update.state is HostState.PENDING and before is not None and update.reason is not None


def _line(update: HostUpdate) -> str:
    if update.state is HostState.DONE:
        return f"{_called(update)} done, {size_text(update.bytes)}"
    reason = f" ({update.reason}): {update.message}" if update.reason else ""
    word = "try failed" if update.state is HostState.PENDING else str(update.state)
    return f"{_called(update)} {word}{reason}"
