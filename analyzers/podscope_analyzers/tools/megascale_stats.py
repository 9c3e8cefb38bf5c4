"""Collectives across slices: how much time each had to hide in, and what it cost."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.reasons import NO_SLICE_TRANSFERS
from podscope_analyzers.result import Cell, Column, Scope, Table, ToolResult
from podscope_analyzers.slice_transfers import Durations, SliceTransfer
from podscope_analyzers.xprof_table import XprofColumn, XprofTable

NAME: Final = "megascale_stats"
VERSION: Final = 1

_COLUMNS: Final = (
    Column("rendezvous", "Collective", "string"),
    Column("transfer_type", "Type", "string"),
    Column("send_op", "Send operation", "string"),
    Column("recv_op", "Receive operation", "string"),
    Column("hosts", "Hosts", "integer"),
    Column("occurrences", "Occurrences", "integer"),
    Column("slack_us", "Slack", "number", "us"),
    Column("observed_us", "Observed", "number", "us"),
    Column("stall_us", "Stall", "number", "us"),
    Column("send_us", "Send", "number", "us"),
    Column("send_done_us", "Send-done", "number", "us"),
    Column("recv_us", "Receive", "number", "us"),
    Column("recv_done_us", "Receive-done", "number", "us"),
    Column("total_stall_us", "Stall of all occurrences", "number", "us"),
    Column("sent_bytes", "Sent", "integer", "bytes"),
    Column("required_bytes_per_second", "Bandwidth that the slack requires", "number", "bytes/s"),
)
_PER_HOST: Final = (Column("host", "Host", "string"), *_COLUMNS)
_XPROF_COLUMNS: Final = (
    XprofColumn("rendezvous_name", "Rendezvous Name", "string"),
    XprofColumn("recv_op_name", "Recv Op Name", "string"),
    XprofColumn("send_op_name", "Send Op Name", "string"),
    XprofColumn("transfer_type", "Transfer Type", "string"),
    XprofColumn("slack_time", "Slack Time (ms)"),
    XprofColumn("host_stall", "Host Stall (ms)", "string"),
    XprofColumn("observed_duration", "Observed Duration (ms)"),
    XprofColumn("send_stall", "Send Stall (ms)"),
    XprofColumn("send_done_stall", "SendDone Stall (ms)"),
    XprofColumn("recv_stall", "Recv Stall (ms)"),
    XprofColumn("recv_done_stall", "RecvDone Stall (ms)"),
    XprofColumn("stall_duration", "Stall Duration (ms)"),
    XprofColumn("total_stall", "Aggregated Total Stall (ms)"),
    XprofColumn("occurrences", "Occurrences"),
    XprofColumn("net_tx_bytes", "Data Transmitted Size"),
    XprofColumn("required_bandwidth", "Required Bandwidth (Gbps)"),
)
_BYTES_CELL: Final = 14
_KIB: Final = 1024
_LETTERS: Final = "KMGTPE"
_UINT64: Final = 1 << 64


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """Every collective over all cores, the costliest first; then by host."""
    del parameters  # It takes none.
    everywhere = [(host.host, row) for host in stats.hosts for row in host.slice_transfers.rows]
    tables = {
        "collectives": Table(_COLUMNS, _summed(everywhere)),
        "by_host": Table(
            _PER_HOST,
            [
                [host.host, *row]
                for host in stats.hosts
                for row in _summed((host.host, one) for one in host.slice_transfers.rows)
            ],
        ),
    }
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if everywhere else "empty",
        result={name: table.to_json() for name, table in tables.items()},
        tables=tables,
        reasons=() if everywhere else (NO_SLICE_TRANSFERS,),
        losses=stats.losses,
    )


def _summed(rows: Iterable[tuple[str, SliceTransfer]]) -> list[list[Cell]]:
    sums: dict[str, SliceTransfer] = {}
    hosts: dict[str, set[str]] = {}
    for host, row in rows:
        known = sums.get(row.rendezvous)
        sums[row.rendezvous] = row if known is None else known.with_occurrence(row)
        hosts.setdefault(row.rendezvous, set()).add(host)
    order = sorted(sums.values(), key=lambda one: (-one.sums.stall, one.rendezvous))
    return [_row(one, len(hosts[one.rendezvous])) for one in order]


def _row(one: SliceTransfer, hosts: int) -> list[Cell]:
    def mean(total_ps: int) -> float:
        return total_ps / one.occurrences / 1e6

    slack_s = one.sums.slack / one.occurrences / 1e12
    return [
        one.rendezvous,
        one.transfer_type,
        one.send_op,
        one.recv_op,
        hosts,
        one.occurrences,
        mean(one.sums.slack),
        mean(one.sums.observed),
        mean(one.sums.stall),
        mean(one.sums.send),
        mean(one.sums.send_done),
        mean(one.sums.recv),
        mean(one.sums.recv_done),
        one.sums.stall / 1e6,
        one.bytes_sent,
        one.bytes_sent / slack_s if slack_s > 0 else None,
    ]


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's table: of each host's first core, means in whole microseconds."""
    del parameters  # It takes none.
    merged: dict[str, SliceTransfer] = {}
    for host in stats.hosts:
        for row in host.slice_transfers.reference:
            own = _weighted(row)
            known = merged.get(row.rendezvous)
            merged[row.rendezvous] = own if known is None else known.with_occurrence(own)
    rows = [_xprof_row(merged[name]) for name in sorted(merged)]
    table = XprofTable(_XPROF_COLUMNS, rows).to_json()
    for row in table["rows"]:
        sent = row["c"][_BYTES_CELL]
        sent["f"] = _bytes_text(int(sent["v"]))
    return [table]


def _bytes_text(value: int) -> str:
    """As the reference formats bytes: ``28B``, ``1.5K``, ``2.00M``."""
    if value < _KIB:
        return f"{value}B"
    letter = 0
    while value >= _KIB**2 and letter < len(_LETTERS) - 1:
        value //= _KIB
        letter += 1
    return f"{value / _KIB:.{1 if letter == 0 else 2}f}{_LETTERS[letter]}"


def _mean(sums: Durations, count: int) -> Durations:
    return Durations(*(value % _UINT64 // count for value in vars(sums).values()))


def _weighted(row: SliceTransfer) -> SliceTransfer:
    """Hosts' whole means are averaged by their occurrences."""
    mean = _mean(row.sums, row.occurrences)
    # A defect there takes the receive's time for seconds.
    mean = replace(mean, recv=mean.recv // 1_000_000)
    weighted = Durations(*(value * row.occurrences for value in vars(mean).values()))
    return replace(row, sums=weighted)


def _xprof_row(one: SliceTransfer) -> tuple[str | float, ...]:
    us = _mean(one.sums, one.occurrences)
    bandwidth = one.bytes_sent * 8 / (us.slack * 1000) if us.slack else 0.0
    return (
        one.rendezvous,
        one.recv_op,
        one.send_op,
        one.transfer_type,
        us.slack / 1000,
        "-",
        us.observed / 1000,
        us.send / 1000,
        us.send_done / 1000,
        us.recv / 1000,
        us.recv_done / 1000,
        us.stall / 1000,
        us.stall * one.occurrences / 1000,
        one.occurrences,
        one.bytes_sent,
        bandwidth,
    )
