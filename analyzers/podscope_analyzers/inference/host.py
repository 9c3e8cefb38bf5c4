"""Requests and batches of one host, put together from the events of their groups.

A request is a root event of a kind that servers record; its group, and the batches that its group
led to, say what it was spent on.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.inference.breakdown import Spans, exclusive_times
from podscope_analyzers.inference.events import (
    ABSENT,
    Kind,
    Relations,
    ServingEvents,
    batching_parameters,
    serving_events,
)
from podscope_analyzers.inference.requests import BATCHES, Groups, Requests, find_requests
from podscope_analyzers.inference.stats import (
    BATCH_COLUMNS,
    MAX_HOST_ROWS,
    MAX_PATTERNS,
    MAX_PROGRAMS,
    PROGRAMS,
    REQUEST_COLUMNS,
    TENSOR_COLUMNS,
    InferenceStats,
    Rows,
    by_duration,
)
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.planes import XLA_MODULES, is_gpu, is_tensor_core
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, PreparedSpace
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.steps.event_types import EventType

Int64s = npt.NDArray[np.int64]

_SCHEDULES: Final = (
    Kind.SCHEDULE_WITH_SPLIT,
    Kind.SCHEDULE_WITHOUT_SPLIT,
    Kind.SCHEDULE_WITH_EAGER_SPLIT,
    Kind.SCHEDULE_QUEUE,
)
_CONCATENATIONS: Final = (
    Kind.CONCAT_INPUT_TENSORS,
    Kind.ORBAX_CONCAT_INPUT_BUFFERS,
    Kind.MERGE_INPUT_TENSORS,
    Kind.BRAIN_SESSION_RUN,
)
_EXECUTIONS: Final = (
    Kind.EXECUTE_LOCAL,
    Kind.EXECUTE_REMOTE,
    Kind.INITIALIZE_VARIABLES,
    Kind.SYSTEM_EXECUTE,
)
_LAUNCHES: Final = (Kind.ENQUEUE_PROGRAM, Kind.ENQUEUE_CONTINUATION)
_COPIES: Final = (
    (EventType.DEVICE_TO_HOST, (Kind.READ_HBM, Kind.TRANSFER_D2H)),
    (
        EventType.HOST_TO_DEVICE,
        (Kind.WRITE_HBM, Kind.TRANSFER_H2D, Kind.TRANSFER_PREPROCESSED_H2D),
    ),
)
_TRANSFERS: Final = (
    (EventType.HOST_TO_DEVICE, Kind.TO_DEVICE_ISSUE, Kind.TO_DEVICE_DONE),
    (EventType.DEVICE_TO_HOST, Kind.FROM_DEVICE_ISSUE, Kind.FROM_DEVICE_DONE),
)
_TENSORS: Final = (Kind.LINEARIZE, Kind.DELINEARIZE, Kind.TRANSFER_FAST_PATH)
_NAMED_PROGRAM: Final = re.compile(r"\((\d{1,20})\)$")
# Tracers write MemcpyH2D as well as MemcpyHToD.
_COPY_IN: Final = re.compile(r"memcpy[ _]?h(?:to|2)d", re.I)
_COPY_OUT: Final = re.compile(r"memcpy[ _]?d(?:to|2)h", re.I)
_NO_PROGRAM: Final = -1
_NEVER: Final = np.iinfo(np.int64).max


def host_inference(space: PreparedSpace) -> InferenceStats:
    """The requests that one host answered; nothing without the threads of the host."""
    is_tpu = any(is_tensor_core(plane.name) for plane in space.planes)
    has_gpu = not is_tpu and any(is_gpu(plane.name) for plane in space.planes)
    nothing = InferenceStats(is_device_known=is_tpu, is_gpu_known=has_gpu)
    plane = space.host_plane
    if plane is None:
        return nothing
    events = serving_events(plane)
    if not len(events.kind):
        return nothing
    relations = Relations.of(space)
    requests = find_requests(events, relations)
    batches = Groups.of(events.group[events.of(*BATCHES)])
    if not len(requests.ids) and not len(batches.ids):
        return replace(nothing, models=requests.models)
    found = _Host(space, plane, events, relations, requests, batches)
    return replace(found.stats(), is_device_known=is_tpu, is_gpu_known=has_gpu)


@dataclass(frozen=True)
class _Host:
    space: PreparedSpace
    plane: PreparedPlane
    events: ServingEvents
    relations: Relations
    requests: Requests
    batches: Groups

    def stats(self) -> InferenceStats:
        """All of it, sorted by duration and bounded."""
        begin, end = self._request_spans()
        rows, link_request, link_batch = self._links()
        batch_begin, batch_end = self._batch_spans()
        # Of the batches of a request, the one with the smallest id counts as first and as last.
        first = np.full(len(self.requests.ids), -1, np.int64)
        is_known = rows >= 0
        first[link_request[is_known][::-1]] = rows[is_known][::-1]
        delay = np.where(first >= 0, batch_begin[first] - begin, 0) if len(batch_begin) else first
        if len(batch_end):
            end = np.where(first >= 0, np.maximum(end, batch_end[first]), end)
        else:
            delay = np.zeros(len(begin), np.int64)
        device = self._device_spans()
        times, size = self._breakdown(device, begin, end)
        requests = Rows.of(
            REQUEST_COLUMNS,
            {
                "id": self.requests.ids,
                "model": self.requests.model,
                "begin_ps": begin,
                "end_ps": end,
                "size": size,
                "delay_ps": delay,
                **times,
            },
        )
        batches = self._batch_rows(begin, batch_begin, batch_end, device)
        kept = np.flatnonzero(requests.duration_ps > 0)
        kept = kept[by_duration(requests.take(kept))]
        place = np.full(len(requests), -1, np.int64)
        place[kept] = np.arange(len(kept))
        linked = place[link_request] >= 0
        patterns, tensors = self._tensors(place, batches)
        stats = InferenceStats(
            models=self.requests.models,
            requests=requests.take(kept),
            batches=batches.take(by_duration(batches)),
            link_request=place[link_request[linked]],
            link_batch=link_batch[linked],
            patterns=patterns,
            tensors=tensors,
            parameters=batching_parameters(self.space, self.requests.models),
        )
        return stats.bounded(MAX_HOST_ROWS)

    def _request_spans(self) -> tuple[Int64s, Int64s]:
        """First begin and last end of all events of each request's group on the host."""
        first = np.full(len(self.requests.ids), _NEVER)
        last = np.zeros(len(self.requests.ids), np.int64)
        for line in self.plane.lines:
            if line.is_derived or not line.event_count:
                continue
            row = self.requests.rows(np.asarray(line.group_id, np.int64))
            rows = np.flatnonzero(row >= 0)
            columns = line.columns()
            start = columns.start_ps[rows]
            # A begin of 0 counts as not set.
            np.minimum.at(first, row[rows], np.where(start == 0, _NEVER, start))
            np.maximum.at(last, row[rows], start + columns.duration_ps[rows])
        return np.where(first == _NEVER, 0, first), last

    def _links(self) -> tuple[Int64s, Int64s, Int64s]:
        """Pairs of a request and a group it led to: row of the batch (or -1), request, group."""
        request = self.requests.rows(self.relations.parent)
        pairs = np.flatnonzero(request >= 0)
        child = self.relations.child[pairs]
        return self.batches.rows(child), request[pairs], child

    def _batch_spans(self) -> tuple[Int64s, Int64s]:
        rows = self.events.of(*BATCHES)
        place = self.batches.rows(self.events.group[rows])
        begin = np.zeros(len(self.batches.ids), np.int64)
        end = np.zeros(len(self.batches.ids), np.int64)
        begin[place], end[place] = self.events.start_ps[rows], self.events.end_ps[rows]
        return begin, end

    def _owners(self, groups: Int64s) -> tuple[Int64s, Int64s]:
        """Which events say something of which request: its own, and those of what it led to.

        Returns:
            Index among ``groups`` and row of the request, of every such pair.
        """
        own = self.requests.rows(groups)
        events = np.flatnonzero(own >= 0)
        by_child = np.argsort(self.relations.child, kind="stable")
        child = self.relations.child[by_child]
        low, high = np.searchsorted(child, groups), np.searchsorted(child, groups, side="right")
        count = high - low
        index = np.repeat(np.arange(len(groups)), count)
        within = np.arange(len(index)) - np.repeat(np.cumsum(count) - count, count)
        parents = self.relations.parent[by_child][np.repeat(low, count) + within]
        request = self.requests.rows(parents)
        known = np.flatnonzero(request >= 0)
        return np.concatenate([events, index[known]]), np.concatenate([own[events], request[known]])

    def _device_spans(self) -> Spans:
        """Copies and computation on the device, by group."""
        events = self.events
        parts: list[Spans] = []
        for kind, kinds in _COPIES:
            rows = events.of(*kinds)
            start, end = events.start_ps[rows], events.end_ps[rows]
            parts.append(Spans.of(kind, events.group[rows], start, end))
        parts += [self._issued(kind, issue, done) for kind, issue, done in _TRANSFERS]
        for line, rows, group in self._module_lines():
            columns = line.columns()
            start = columns.start_ps[rows]
            end = start + columns.duration_ps[rows]
            parts.append(Spans.of(EventType.DEVICE_COMPUTE_32, group, start, end))
        parts += self._stream_spans()
        return Spans.join(parts)

    def _stream_spans(self) -> Iterator[Spans]:
        """Kernels and copies of GPUs that the host launched for a group."""
        for plane in self.space.planes:
            if not is_gpu(plane.name) or "correlation_id" not in plane.stat_names:
                continue
            for line in plane.lines:
                if line.is_derived or not line.event_count:
                    continue
                columns = line.columns(["correlation_id"])
                group = np.asarray(line.group_id, np.int64)
                rows = np.flatnonzero((group >= 0) & columns.stat("correlation_id").present())
                metadata, place = np.unique(columns.metadata[rows], return_inverse=True)
                names = line.plane.event_metadata.names
                kinds = np.array([_stream_kind(names[int(row)]) for row in metadata], np.int64)
                start = columns.start_ps[rows]
                end = start + columns.duration_ps[rows]
                yield Spans(kinds[place], group[rows], start, end)

    def _module_lines(self) -> Iterator[tuple[PreparedLine, npt.NDArray[np.intp], Int64s]]:
        """Lines of what ran on the TensorCores, their events of groups, and these groups."""
        for plane in self.space.planes:
            if not is_tensor_core(plane.name):
                continue
            for line in plane.lines:
                if line.name == XLA_MODULES and not line.is_derived:
                    group = np.asarray(line.group_id, np.int64)
                    rows = np.flatnonzero(group >= 0)
                    yield line, rows, group[rows]

    def _programs(self) -> dict[str, Int64s]:
        """Ids of the programs that each batch ran, from the first one on."""
        batches, programs = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for line, rows, group in self._module_lines():
            batch = self.batches.rows(group)
            mine = np.flatnonzero(batch >= 0)
            batches.append(batch[mine])
            programs.append(_program_ids(line)[rows[mine]])
        batch, program = np.concatenate(batches), np.concatenate(programs)
        first = group_rows(np.stack([batch, program]))[1]
        first = first[program[first] != _NO_PROGRAM]
        order = first[np.argsort(batch[first], kind="stable")]
        starts = np.searchsorted(batch[order], batch[order])
        place = np.arange(len(order)) - starts
        found = np.full((MAX_PROGRAMS, len(self.batches.ids)), _NO_PROGRAM)
        kept = np.flatnonzero(place < MAX_PROGRAMS)
        found[place[kept], batch[order][kept]] = program[order][kept]
        return dict(zip(PROGRAMS, found, strict=True))

    def _issued(self, kind: EventType, issue: Kind, done: Kind) -> Spans:
        """Transfers of the newer runtime: from the issue to the end of what is done with it."""
        events = self.events
        context = events.ints["_c"]
        issued = {int(context[row]): row for row in events.of(issue) if context[row] != ABSENT}
        ended: dict[int, int] = {}
        for row in events.of(done):
            begun = issued.get(int(context[row]))
            if begun is not None and events.start_ps[begun] < events.start_ps[row]:
                ended[int(context[row])] = row
        begins = np.array([issued[key] for key in ended], np.intp)
        ends = np.array(list(ended.values()), np.intp)
        return Spans.of(kind, events.group[begins], events.start_ps[begins], events.end_ps[ends])

    def _moments(self, kinds: Sequence[Kind], *, earliest: bool = False) -> tuple[Int64s, Int64s]:
        """Groups that have an event of some kinds, and when: the last one read, or the earliest."""
        rows = self.events.of(*kinds)
        groups, when = self.events.group[rows], self.events.start_ps[rows]
        if earliest:
            order = np.lexsort((-when, groups))
            groups, when = groups[order], when[order]
        known, last = np.unique(groups[::-1], return_index=True)
        return known, when[::-1][last]

    def _breakdown(
        self, device: Spans, begin: Int64s, end: Int64s
    ) -> tuple[dict[str, Int64s], Int64s]:
        """Exclusive times of every request, and the size it was scheduled with."""
        count = len(begin)
        at, request = self._owners(device.group)
        parts = [device.take(at).with_group(request)]
        execute, execute_at = self._moments(_EXECUTIONS)
        launch, launch_at = self._moments(_LAUNCHES, earliest=True)
        at, request = self._owners(execute)
        launched = Groups(launch).rows(execute[at])
        has = launched >= 0
        parts.append(
            Spans.between(
                EventType.HOST_RUNTIME, request[has], execute_at[at][has], launch_at[launched[has]]
            )
        )
        first_execute = _extreme(np.minimum, request, execute_at[at], count, _NEVER)
        if any(is_gpu(plane.name) for plane in self.space.planes) and not len(execute):
            # No runtime of GPUs says when it is called: the first copy or kernel does.
            first_execute = _extreme(np.minimum, parts[0].group, parts[0].start_ps, count, _NEVER)
        rows = np.flatnonzero(first_execute != _NEVER)
        parts.append(
            Spans.between(EventType.HOST_PREPROCESS, rows, begin[rows], first_execute[rows])
        )
        # What is done after the last callback, or without one after the last computation.
        callback, callback_at = self._moments((Kind.COMPLETE_CALLBACKS,))
        at, request = self._owners(callback)
        after = _extreme(np.maximum, request, callback_at[at], count, -1)
        own = parts[0]
        computing = own.kind == EventType.DEVICE_COMPUTE_32
        computed = _extreme(np.maximum, own.group[computing], own.end_ps[computing], count, 0)
        after = np.where(after >= 0, after, np.where(computed > 0, computed, -1))
        rows = np.flatnonzero(after >= 0)
        parts.append(Spans.between(EventType.HOST_POSTPROCESS, rows, after[rows], end[rows]))
        parts.append(self._formation(count))
        exclusive = exclusive_times(Spans.join(parts), count)
        return {
            "preprocess_ps": exclusive[:, EventType.HOST_PREPROCESS],
            "formation_ps": exclusive[:, EventType.HOST_BATCH_FORMATION],
            "runtime_ps": exclusive[:, EventType.HOST_RUNTIME],
            "write_ps": exclusive[:, EventType.HOST_TO_DEVICE],
            "read_ps": exclusive[:, EventType.DEVICE_TO_HOST],
            "device_ps": exclusive[:, EventType.DEVICE_COMPUTE_32],
            "postprocess_ps": exclusive[:, EventType.HOST_POSTPROCESS],
            "idle_ps": exclusive[:, EventType.UNKNOWN_TIME],
        }, self._sizes(count)

    def _formation(self, count: int) -> Spans:
        """From the schedule of a request to the first concatenation of inputs."""
        scheduled, scheduled_at = self._moments(_SCHEDULES)
        at, request = self._owners(scheduled)
        # A request is scheduled once; should there be more, that of the smallest group counts.
        order = np.lexsort((scheduled[at], request))[::-1]
        schedule = np.full(count, -1, np.int64)
        schedule[request[order]] = scheduled_at[at][order]
        joined, joined_at = self._moments(_CONCATENATIONS)
        at, request = self._owners(joined)
        concatenated = _extreme(np.minimum, request, joined_at[at], count, _NEVER)
        rows = np.flatnonzero((schedule >= 0) & (concatenated != _NEVER))
        return Spans.between(
            EventType.HOST_BATCH_FORMATION, rows, schedule[rows], concatenated[rows]
        )

    def _sizes(self, count: int) -> Int64s:
        rows = self.events.of(*_SCHEDULES)
        size = self.events.ints["batching_input_task_size"][rows]
        place = self.requests.rows(self.events.group[rows])
        told = np.flatnonzero((size != ABSENT) & (place >= 0))
        sizes = np.zeros(count, np.int64)
        sizes[place[told]] = size[told]
        return sizes

    def _batch_rows(self, request_begin: Int64s, begin: Int64s, end: Int64s, device: Spans) -> Rows:
        count = len(self.batches.ids)
        rows = self.events.of(*_CONCATENATIONS)
        place = self.batches.rows(self.events.group[rows])
        padding = self.events.ints["padding_amount"][rows]
        padded = self.events.ints["batch_size_after_padding"][rows]
        told = np.flatnonzero((place >= 0) & (padding != ABSENT) & (padded != ABSENT))
        columns = {name: np.zeros(count, np.int64) for name in ("padding", "padded_size")}
        columns["model"] = np.full(count, -1, np.int64)
        columns["padding"][place[told]] = padding[told]
        columns["padded_size"][place[told]] = padded[told]
        batch = self.batches.rows(self.relations.child)
        pairs = np.flatnonzero(batch >= 0)
        parent, batch = self.relations.parent[pairs], batch[pairs]
        request = self.requests.rows(parent)
        # The smallest group that led to the batch says its model, if it is a request.
        smallest = _extreme(np.minimum, batch, parent, count, _NEVER)
        of_smallest = self.requests.rows(smallest)
        known = np.flatnonzero(of_smallest >= 0)
        columns["model"][known] = self.requests.model[of_smallest[known]]
        is_request = request >= 0
        earliest = _extreme(
            np.minimum, batch[is_request], request_begin[request[is_request]], count, _NEVER
        )
        own = self.batches.rows(device.group)
        mine = np.flatnonzero(own >= 0)
        exclusive = exclusive_times(device.take(mine).with_group(own[mine]), count)
        return Rows.of(
            BATCH_COLUMNS,
            {
                "id": self.batches.ids,
                "begin_ps": begin,
                "end_ps": end,
                "delay_ps": np.where(earliest != _NEVER, begin - earliest, 0),
                "device_ps": exclusive[:, EventType.DEVICE_COMPUTE_32],
                **columns,
                **self._programs(),
            },
        )

    def _tensors(self, place: Int64s, batches: Rows) -> tuple[tuple[str, ...], Rows]:
        """Which tensors each request or batch transferred together, and how long that took."""
        events = self.events
        rows = events.of(*_TENSORS)
        request = self.requests.rows(events.group[rows])
        batch = self.batches.rows(events.group[rows])
        owner = np.where(request >= 0, request, len(self.requests.ids) + batch)
        owned = (request >= 0) | (batch >= 0)
        rows, owner = rows[owned], owner[owned]
        patterns: dict[str, int] = {}
        table: list[tuple[int, int, int]] = []
        ends = np.flatnonzero(np.diff(np.sort(owner), append=-1))
        order = np.argsort(owner, kind="stable")
        for part in np.split(order, ends[:-1] + 1) if len(owner) else ():
            pattern = self._pattern(rows[part])
            if pattern is None or (pattern not in patterns and len(patterns) >= MAX_PATTERNS):
                continue
            index = patterns.setdefault(pattern, len(patterns))
            one = int(owner[part[0]])
            took = int((events.end_ps[rows[part]] - events.start_ps[rows[part]]).sum())
            if one >= len(self.requests.ids):
                table.append((int(batches["model"][one - len(self.requests.ids)]), index, took))
            elif place[one] >= 0:
                table.append((int(self.requests.model[one]), index, took))
        columns = np.array(table, np.int64).reshape(-1, 3)
        return tuple(patterns), Rows.of(
            TENSOR_COLUMNS,
            {"model": columns[:, 0], "pattern": columns[:, 1], "time_ps": columns[:, 2]},
        )

    def _pattern(self, rows: Iterable[np.intp]) -> str | None:
        """Name, shape and layout of the tensors; None if any does not tell."""
        texts, table = self.events.texts, self.events.table
        parts = []
        for row in rows:
            shape, layout = int(texts["shape"][row]), int(texts["layout"][row])
            if shape < 0 or layout < 0 or not table[shape]:
                return None
            parts.append(f"{table[int(texts['name'][row])]} {table[shape]} {table[layout]}")
        return "<br>".join(sorted(parts))


def _stream_kind(name: str) -> EventType:
    """What an event of a GPU's stream does; between devices and in collectives it works too."""
    if _COPY_IN.match(name):
        return EventType.HOST_TO_DEVICE
    return EventType.DEVICE_TO_HOST if _COPY_OUT.match(name) else EventType.DEVICE_COMPUTE_32


def _program_ids(line: PreparedLine) -> Int64s:
    """The program of every run: by its stat, or else by the number in its name."""
    metadata = line.plane.event_metadata
    of_row = np.full(len(metadata), _NO_PROGRAM)
    columns = line.columns(("program_id",))
    for row in distinct(columns.metadata).tolist():
        told = metadata.stats(row).get("program_id")
        named = _NAMED_PROGRAM.search(metadata.names[row])
        number = told if isinstance(told, int) else int(named[1]) if named else _NO_PROGRAM
        of_row[row] = np.uint64(number & (2**64 - 1)).astype(np.int64)
    stat = columns.stat("program_id")
    return np.where(stat.present(), stat.ints_or_uints(), of_row[columns.metadata])


def _extreme(choose: np.ufunc, place: Int64s, values: Int64s, count: int, initial: int) -> Int64s:
    """Per place the least or greatest value, shape (count,)."""
    found = np.full(count, initial, np.int64)
    choose.at(found, place, values)
    return found
