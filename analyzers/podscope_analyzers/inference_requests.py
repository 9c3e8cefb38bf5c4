"""Inference requests of one host, put together from the events of their groups.

A request is a root event of a kind that servers record; its group, and the batches that its group
led to, say what it was spent on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.inference_latency import Requests
from podscope_analyzers.intervals import Int64s, Union, join, union
from podscope_analyzers.planes import is_tensor_core
from podscope_analyzers.prepared import PreparedLine, PreparedSpace

_BATCHES: Final = frozenset({"ProcessBatch", "OrbaxServing::ProcessBatch"})
_BATCHING: Final = "BatchingSessionRun"
# Of these, the first kind that occurs is what a request is.
_REQUESTS: Final = (
    frozenset({_BATCHING}),
    frozenset({"TfrtModelRun"}),
    frozenset({"ServingModelRun"}),
    frozenset({"SessionRun", "RunGraph"}),
)
_NAMES_MODEL: Final = frozenset({"SessionRun", "TfrtModelRun", "ServingModelRun"})
_READS: Final = frozenset({"ReadHbm", "TransferD2HRequest"})
_WRITES: Final = frozenset({"WriteHbm", "TransferH2DRequest", "TransferPreprocessedH2DRequest"})
_ISSUED: Final = {
    "tpu::System::TransferToDevice=>IssueEvent": "write",
    "tpu::System::TransferFromDevice=>IssueEvent": "read",
}
_DONE: Final = "=>Done"
_MODEL_SERVER: Final = "ModelServerRequest_"
_STATS: Final = ("_r", "model_id", "_ct", "_c")


@dataclass
class _Found:
    """What the host's threads recorded, by group."""

    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    models: dict[int, str] = field(default_factory=dict)
    named_roots: dict[int, str] = field(default_factory=dict)
    roots: dict[str, list[int]] = field(default_factory=dict)
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    work: dict[str, list[tuple[Int64s, Int64s, Int64s]]] = field(
        default_factory=lambda: {"device": [], "write": [], "read": []}
    )


def host_requests(space: PreparedSpace) -> Requests:
    """The requests that one host answered, in order of their groups' appearance."""
    plane = space.host_plane
    if plane is None:
        return Requests.empty()
    found = _Found()
    for line in plane.lines:
        if line.event_count and not line.is_derived:
            _read_line(line, found)
    for device in space.planes:
        modules = device.line("XLA Modules") if is_tensor_core(device.name) else None
        if modules is not None:
            columns = modules.columns()
            _add_work(found, "device", modules.group_id, columns.start_ps, columns.duration_ps)
    for kind, group, begin, end in _issued_transfers(space):
        span = (np.array([group]), np.array([begin]), np.array([end - begin]))
        _add_work(found, kind, *span)
    return _requests(found, _Relations(space))


class _Relations:
    """Which groups led to which."""

    def __init__(self, space: PreparedSpace) -> None:
        self.children: dict[int, list[int]] = {}
        self.parents: dict[int, list[int]] = {}
        if isinstance(space.groups, Groups):
            for parent, child in sorted(space.groups.relations()):
                self.children.setdefault(parent, []).append(child)
                self.parents.setdefault(child, []).append(parent)


def _read_line(line: PreparedLine, found: _Found) -> None:
    names = line.plane.event_metadata.names
    wanted = [name for name in _STATS if name in line.plane.stat_names]
    columns = line.columns(wanted)
    group = np.asarray(line.group_id, np.int64)
    start, end = columns.start_ps, columns.start_ps + columns.duration_ps
    _widen_spans(found, group, start, end)
    levels = columns.stat("_r").ints() if "_r" in wanted else np.zeros(len(group), np.int64)
    codes, models = columns.stat("model_id").strings() if "model_id" in wanted else (None, [])
    special = np.array([_is_special(name) for name in names], np.bool_)
    looked_at = (special[columns.metadata] | (levels != 0)) & (group >= 0)
    for event in np.flatnonzero(looked_at).tolist():
        name, own = names[columns.metadata[event]], int(group[event])
        model = models[codes[event]] if codes is not None and codes[event] >= 0 else ""
        level = int(levels[event])
        if level == -1 or (level == 1 and name.startswith(_MODEL_SERVER)):
            found.roots.setdefault("", []).append(own)
            if model:
                found.named_roots[own] = model
        if name in _BATCHES:
            found.batches[own] = (int(start[event]), int(end[event]))
        elif any(name in kind for kind in _REQUESTS):
            found.roots.setdefault(name, []).append(own)
        if name in _NAMES_MODEL and model:
            found.models[own] = model
    _read_transfers(line, found, group)


def _is_special(name: str) -> bool:
    return name in _BATCHES or any(name in kind for kind in _REQUESTS)


def _widen_spans(found: _Found, group: Int64s, start: Int64s, end: Int64s) -> None:
    rows = np.flatnonzero(group >= 0)
    if not len(rows):
        return
    ids, inverse = np.unique(group[rows], return_inverse=True)
    # A begin of 0 counts as not set in the reference.
    begins = np.where(start[rows] == 0, np.iinfo(np.int64).max, start[rows])
    first = np.full(len(ids), np.iinfo(np.int64).max)
    last = np.zeros(len(ids), np.int64)
    np.minimum.at(first, inverse, begins)
    np.maximum.at(last, inverse, end[rows])
    for own, one, other in zip(ids.tolist(), first.tolist(), last.tolist(), strict=True):
        known = found.spans.get(own, (one, other))
        found.spans[own] = (min(known[0], one), max(known[1], other))


def _read_transfers(line: PreparedLine, found: _Found, group: Int64s) -> None:
    names = line.plane.event_metadata.names
    columns = line.columns()
    for kind, wanted in (("read", _READS), ("write", _WRITES)):
        rows = np.flatnonzero(
            np.array([name in wanted for name in names], np.bool_)[columns.metadata]
        )
        _add_work(found, kind, group[rows], columns.start_ps[rows], columns.duration_ps[rows])


def _add_work(found: _Found, kind: str, group: Int64s, start: Int64s, duration: Int64s) -> None:
    rows = np.flatnonzero(group >= 0)
    if len(rows):
        found.work[kind].append((group[rows], start[rows], start[rows] + duration[rows]))


def _issued_transfers(space: PreparedSpace) -> Iterator[tuple[str, int, int, int]]:
    """Transfers of the newer runtime: an issue event, and a done event of the same context."""
    plane = space.host_plane
    if plane is None or "_c" not in plane.stat_names:
        return
    issued: dict[tuple[str, int], list[tuple[int, int]]] = {}
    done: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for line in plane.lines:
        names = line.plane.event_metadata.names
        is_ours = np.array([name.removesuffix(_DONE) in _ISSUED for name in names], np.bool_)
        if not is_ours.any() or not line.event_count:
            continue
        columns = line.columns(("_c",))
        contexts = columns.stat("_c").ints_or_uints()
        for event in np.flatnonzero(is_ours[columns.metadata]).tolist():
            name = names[columns.metadata[event]]
            begin = int(columns.start_ps[event])
            finish = begin + int(columns.duration_ps[event])
            key = (_ISSUED[name.removesuffix(_DONE)], int(contexts[event]))
            if name.endswith(_DONE):
                done.setdefault(key, []).append((begin, finish))
            else:
                issued.setdefault(key, []).append((begin, int(line.group_id[event])))
    for (kind, context), begins in issued.items():
        for begin, own in begins:
            later = [finish for at, finish in done.get((kind, context), ()) if at > begin]
            if later and own >= 0:
                yield kind, own, begin, min(later)


def _requests(found: _Found, relations: _Relations) -> Requests:
    kinds = [[g for name in kind for g in found.roots.get(name, ())] for kind in _REQUESTS]
    is_batching = bool(kinds[0])
    plain = next((kind for kind in kinds if kind), [])
    users = set(found.roots.get("", ()))
    models: dict[str, int] = {}
    indices: dict[int, int] = {}
    for own in dict.fromkeys([*plain, *found.roots.get("", ())]):
        if own in found.batches or own in indices:
            continue
        name = _model_of(own, found, relations, is_batching=is_batching, is_user=own in users)
        indices[own] = models.setdefault(name, len(models)) if name else -1
    work = {kind: _by_group(parts) for kind, parts in found.work.items()}
    rows = []
    for own, model in indices.items():
        begin, end = found.spans.get(own, (0, 0))
        batches = [b for b in relations.children.get(own, ()) if b in found.batches]
        if batches:
            end = max(end, found.batches[min(batches)][1])
        if end <= begin:
            continue
        groups = [own, *relations.children.get(own, ())]
        device, read, write = (_spans(work[kind], groups) for kind in ("device", "read", "write"))
        busy, reading = join(device, read), join(device, read, write)
        rows.append(
            (
                model,
                begin,
                end,
                device.total_ps,
                reading.total_ps - busy.total_ps,
                busy.total_ps - device.total_ps,
            )
        )
    if not rows:
        return Requests.empty()
    table = np.array(rows, np.int64)
    return Requests(tuple(models), *(table[:, column] for column in range(6)))


def _model_of(
    own: int, found: _Found, relations: _Relations, *, is_batching: bool, is_user: bool
) -> str:
    below = [found.models[g] for g in relations.children.get(own, ()) if g in found.models]
    if is_user:
        if own in found.named_roots:
            return found.named_roots[own]
        return below[0] if below and len(set(below)) == 1 else ""
    if is_batching:
        return below[0] if below else ""
    return found.models.get(own, "")


def _by_group(
    parts: list[tuple[Int64s, Int64s, Int64s]],
) -> Mapping[int, tuple[Int64s, Int64s]]:
    if not parts:
        return {}
    group, start, end = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(group, kind="stable")
    ids, first = np.unique(group[order], return_index=True)
    starts = np.split(start[order], first[1:])
    ends = np.split(end[order], first[1:])
    return dict(zip(ids.tolist(), zip(starts, ends, strict=True), strict=True))


def _spans(by_group: Mapping[int, tuple[Int64s, Int64s]], groups: list[int]) -> Union:
    found = [by_group[group] for group in groups if group in by_group]
    nothing = np.zeros(0, np.int64)
    return union(
        np.concatenate([nothing, *(start for start, _ in found)]),
        np.concatenate([nothing, *(end for _, end in found)]),
    )
