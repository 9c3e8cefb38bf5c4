"""Tables of the pod viewer: steps of every core, some at a time; collectives, channels, cores."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.arrivals import MAX_ERROR_RATIO, Meetings, occurrences
from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.collectives import kind_name
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.host_work import own_work_ps
from podscope_analyzers.result import Cell, Column, Table
from podscope_analyzers.step_categories import CATEGORY_NAMES, Int64s, own_categories_ps
from podscope_analyzers.steps.database import (
    CORES_PER_HOST,
    SPARSE_CORE_OFFSET,
)

MAX_ROWS: Final = 100_000
"""Rows of ``steps`` in one result; at least one step is listed whole."""
MAX_COLLECTIVES: Final = 1000
MAX_CHANNELS: Final = 1000
MAX_ARRIVALS: Final = 1000

PARAMETERS: Final = {
    "first_step": "place of the first step to list, from 0; default 0",
    "steps": "most steps to list; default: as many as fit into the table",
    "of_host": "list the steps of this host alone",
}
CATEGORY_COLUMNS: Final = (
    ("device_compute_us", "Device compute"),
    ("device_to_device_us", "Device to device"),
    ("collectives_us", "Waiting in collectives"),
    ("host_compute_us", "Host compute"),
    ("kernel_launch_us", "Kernel launch"),
    ("input_us", "Input"),
    ("output_us", "Output"),
    ("compilation_us", "Compilation"),
    ("other_us", "All others"),
)
# Of equally long parts the reference names the last in the order of the alphabet.
_BY_NAME: Final = sorted(range(len(CATEGORY_NAMES)), key=CATEGORY_NAMES.__getitem__, reverse=True)
_CHANNEL: Final = re.compile(r"\bchannel_id=(\d{1,18})\b")
_CHANNEL_CATEGORIES: Final = re.compile(r"(?:host )?(?:send|recv)(?:-done)?$")


@dataclass(frozen=True)
class StepWindow:
    """Which rows of the steps a result lists.

    Attributes:
        rows: Their places, ascending.
        row_count: Rows of all steps (of the host that is asked for).
        first_step: Place of the first step listed.
        step_count: Steps listed.
        next_step: Place of the first step after those; None at the end.
    """

    rows: npt.NDArray[np.intp]
    row_count: int
    first_step: int
    step_count: int
    next_step: int | None


def step_window(stats: CaptureStats, parameters: Mapping[str, str]) -> StepWindow:
    """The steps that are asked for, as many of them as fit.

    Raises:
        ParameterError: a number is none, or the host is not in the capture.
    """
    steps = stats.all_steps
    first = _number("first_step", parameters, 0)
    rows = np.arange(len(steps.row_step))
    name = parameters.get("of_host", "")
    if name:
        index = next((host.index for host in stats.hosts if host.host == name), None)
        if index is None:
            msg = f"pod_viewer: no host '{name}' in this capture"
            raise ParameterError(msg)
        rows = rows[steps.host_index == index]
    offsets = np.searchsorted(steps.row_step[rows], np.arange(len(steps) + 1))
    first = min(first, len(steps))
    fitting = int(np.searchsorted(offsets, offsets[first] + MAX_ROWS, side="right")) - 1
    most = _number("steps", parameters, len(steps))
    last = min(max(fitting, first + 1), first + most, len(steps))
    last = max(last, first)
    return StepWindow(
        rows=rows[offsets[first] : offsets[last]],
        row_count=len(rows),
        first_step=first,
        step_count=last - first,
        next_step=last if last < len(steps) else None,
    )


def _number(name: str, parameters: Mapping[str, str], default: int) -> int:
    given = parameters.get(name)
    if given is None:
        return default
    if not given.isdecimal() or len(given) > 9:
        msg = f"pod_viewer: {name} is a number from 0 on, not '{given}'"
        raise ParameterError(msg)
    return int(given)


def bottlenecks(times: Int64s) -> list[str]:
    """The longest part of each row; of equally long ones the last in the alphabet."""
    longest = times[:, _BY_NAME].argmax(axis=1)
    return [CATEGORY_NAMES[_BY_NAME[at]] for at in longest.tolist()]


def steps_table(stats: CaptureStats, window: StepWindow) -> Table:
    """One row per step and core."""
    steps, rows = stats.all_steps, window.rows
    every = own_categories_ps(steps, stats.hosts)
    own = own_work_ps(steps, every)[rows]
    times = every[rows]
    names = [host.host for host in stats.hosts]
    columns: list[list[Cell]] = [
        steps.step_numbers[steps.row_step[rows]].tolist(),
        [steps.names[code] for code in steps.name_code[rows].tolist()],
        [names[index] for index in steps.host_index[rows].tolist()],
        steps.core_id[rows].tolist(),
        *(
            (values / 1e6).tolist()
            for values in (steps.begin_ps[rows], steps.duration_ps[rows], own, *times.T)
        ),
        [*bottlenecks(times)],
    ]
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("step_name", "Step name", "string"),
            Column("host", "Host", "string"),
            Column("core_id", "Core", "integer"),
            Column("begin_us", "Begin", "number", "us"),
            Column("duration_us", "Step time", "number", "us"),
            Column("own_work_us", "Own work", "number", "us"),
            *(Column(name, label, "number", "us") for name, label in CATEGORY_COLUMNS),
            Column("bottleneck", "Longest part", "string"),
        ),
        rows=list(zip(*columns, strict=True)),
    )


def collectives_table(stats: CaptureStats) -> Table:
    """Collectives of the steps whose cores were known by the tracer, most waited in first.

    All cores leave a collective together, so what it took the core that came last is what it
    takes, and the others waited for the rest: no clocks are compared.
    """
    steps = stats.all_steps
    found = steps.collectives
    occurrence = occurrences(found.step, found.id, found.core_id, found.begin_ps)
    key = np.stack([found.step, found.id, occurrence])
    order = np.lexsort((found.end_ps - found.begin_ps, *key[::-1]))
    ordered = key[:, order]
    opens = np.ones(len(order), np.bool_)
    opens[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    first = np.flatnonzero(opens)
    duration = (found.end_ps - found.begin_ps)[order]
    count = np.diff(np.append(first, len(order)))
    shortest, longest = duration[first], duration[first + count - 1]
    size = np.maximum.reduceat(found.size_bytes[order], first) if len(first) else first
    waiting = longest - shortest
    most = np.lexsort((first, -waiting))
    most = most[count[most] > 1][:MAX_COLLECTIVES]
    hosts = {host.index: host.host for host in stats.hosts}
    rows: list[Sequence[Cell]] = []
    for at in most.tolist():
        row = int(order[first[at]])
        core, took = int(found.core_id[row]), int(shortest[at])
        bytes_moved = int(size[at])
        rows.append(
            (
                int(steps.step_numbers[found.step[row]]),
                collective_name(int(found.id[row]), is_by_kind=steps.kind == "generic"),
                int(occurrence[row]),
                int(count[at]),
                bytes_moved or None,
                took / 1e6,
                int(waiting[at]) / 1e6,
                hosts.get(_host_of_core(core, len(hosts))),
                core,
                bytes_moved / (took / 1e12) if bytes_moved and took > 0 else None,
            )
        )
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("collective_id", "Collective", "string"),
            Column("occurrence", "Occurrence in the step", "integer"),
            Column("core_count", "Cores", "integer"),
            Column("size_bytes", "Bytes accessed", "integer", "bytes"),
            Column("shortest_us", "On the core that came last", "number", "us"),
            Column("waiting_us", "Longest wait for it", "number", "us"),
            Column("last_host", "Host that came last", "string"),
            Column("last_core_id", "Core that came last", "integer"),
            Column("bytes_per_second", "Bytes per second", "number", "bytes/s"),
        ),
        rows=rows,
    )


def _host_of_core(core: int, hosts: int) -> int:
    index = core // CORES_PER_HOST
    # A SparseCore's id has its offset on top of its plane's and the host's thousands.
    return index if index < hosts else core % SPARSE_CORE_OFFSET // CORES_PER_HOST


def collective_name(identity: int, *, is_by_kind: bool) -> str:
    """The id as the tracer gave it, or the kind that stands for it."""
    return kind_name(identity) if is_by_kind else str(identity & (2**64 - 1))


def arrivals_table(stats: CaptureStats, met: Meetings | None) -> Table:
    """Who came late to which collective, the latest first."""
    rows: list[Sequence[Cell]] = []
    if met is not None:
        told = np.abs(met.clock_late_ps) * MAX_ERROR_RATIO >= met.error_ps[:, None]
        late = np.where(told, met.clock_late_ps, met.late_ps)
        late = np.where(np.isnan(late), -np.inf, late)
        flat = np.argsort(-late, axis=None, kind="stable")[:MAX_ARRIVALS]
        names = {host.index: host.host for host in stats.hosts}
        for host, meeting in zip(
            *(axis.tolist() for axis in np.unravel_index(flat, late.shape)), strict=True
        ):
            if late[host, meeting] <= 0:
                break
            by_clock = bool(told[host, meeting])
            rows.append(
                (
                    int(stats.all_steps.step_numbers[met.step[meeting]]),
                    collective_name(int(met.id[meeting]), is_by_kind=met.is_by_kind),
                    int(met.occurrence[meeting]),
                    names[int(met.hosts[host])],
                    float(late[host, meeting]) / 1e6,
                    float(met.error_ps[host]) / 1e6 if by_clock else None,
                    "clocks" if by_clock else "durations",
                    float(met.waited_ps[host, meeting]) / 1e6,
                )
            )
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("collective_id", "Collective", "string"),
            Column("occurrence", "Occurrence in the step", "integer"),
            Column("host", "Host", "string"),
            Column("lateness_us", "Later than the others", "number", "us"),
            Column("error_us", "Error of the clocks", "number", "us"),
            Column("basis", "Told by", "string"),
            Column("waited_us", "Its own time in it", "number", "us"),
        ),
        rows=rows,
    )


def channels_table(stats: CaptureStats) -> Table:
    """Channels between devices and to hosts: what was sent and received on each."""
    ops = stats.device_ops
    names = ops.text_column("category")[: ops.top_count]
    found: dict[tuple[int, int], list[int]] = {}
    for row, category in enumerate(names):
        match = _CHANNEL_CATEGORIES.match(category)
        channel = _CHANNEL.search(ops.text("long_name", row)) if match else None
        if channel is None:
            continue
        sums = found.setdefault((ops.module_id(row), int(channel[1])), [0, 0, 0, 0])
        is_receipt = "recv" in category
        sums[is_receipt] += int(ops.column("occurrences")[row])
        sums[2 + is_receipt] += int(ops.column("self_time_ps")[row])
    longest = sorted(found.items(), key=lambda item: (-sum(item[1][2:]), item[0]))
    return Table(
        columns=(
            Column("program_id", "Program", "string"),
            Column("channel_id", "Channel", "integer"),
            Column("send_count", "Sends", "integer"),
            Column("receive_count", "Receipts", "integer"),
            Column("send_us", "Time sending", "number", "us"),
            Column("receive_us", "Time receiving", "number", "us"),
        ),
        rows=[
            (str(program), channel, sends, receipts, sent / 1e6, received / 1e6)
            for (program, channel), (sends, receipts, sent, received) in longest[:MAX_CHANNELS]
        ],
    )


def cores_table(stats: CaptureStats) -> Table:
    """Where every core is, as far as the tracers say."""
    names = {host.index: host.host for host in stats.hosts}
    return Table(
        columns=(
            Column("core_id", "Core", "integer"),
            Column("host", "Host", "string"),
            Column("device_ordinal", "Device of the host", "integer"),
            Column("core_on_chip", "Core of the chip", "integer"),
            Column("local_chip_id", "Chip of the host", "integer"),
            Column("global_chip_id", "Chip of the pod", "integer"),
            Column("global_core_id", "Core of the pod", "integer"),
            Column("is_sparse_core", "SparseCore", "boolean"),
        ),
        rows=[
            (
                core,
                names.get(core // CORES_PER_HOST),
                about.device_ordinal,
                about.core_on_chip,
                about.local_chip_id,
                about.global_chip_id,
                about.global_core_id,
                about.is_sparse_core,
            )
            for core, about in sorted(stats.cores.items())
        ],
    )


def row_medians(values: Int64s, present: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The median of each row over what is present; NaN without any, shape (n,)."""
    ordered = np.sort(np.where(present, values, np.iinfo(np.int64).max), axis=1)
    count = present.sum(axis=1)
    if not ordered.shape[1]:
        return np.full(len(values), np.nan)
    rows = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, np.minimum(count // 2, ordered.shape[1] - 1)
    middle = ordered[rows, low] / 2 + ordered[rows, high] / 2
    return np.where(count > 0, middle, np.nan)
