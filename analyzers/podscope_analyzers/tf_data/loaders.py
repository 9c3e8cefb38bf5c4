"""Loaders that are no tf.data: Grain and PyTorch's DataLoader, by what they annotate.

Grain annotates its datasets with the stats ``_ipl_stage_name`` and ``_ipl_stage_cat``; what a
thread prefetches has ``_ipl_dataset_name`` too, and the stage's name is that of who takes it.

Recognised are also names of events on the host's threads, of annotations and of Python functions
(``$file.py:line function``):

* PyTorch: ``enumerate(DataLoader)#…``, which its DataLoader records itself, and ``__next__`` of
  ``dataloader.py``;
* Grain: ``grain`` followed by one of ``. / : _`` and the stage, and ``__next__`` of its
  ``data_loader.py``.

A recognised event within another on the same thread is a stage of it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from podscope_analyzers.prepared import PreparedLine, PreparedSpace

READ: Final = "read"
PREFETCH: Final = "prefetch"

_MAX_EVENTS: Final = 2_000_000
_STAGE, _CATEGORY, _DATASET = "_ipl_stage_name", "_ipl_stage_cat", "_ipl_dataset_name"
_RULES: Final = (
    ("torch", re.compile(r"enumerate\(DataLoader\)#(.+)|\$dataloader\.py:\d+ (__next__)\Z")),
    ("grain", re.compile(r"(?i:grain)[./:_](.+)|\$data_loader\.py:\d+ (__next__)\Z")),
)


@dataclass(frozen=True)
class LoaderStage:
    """A stage of a loader over all its calls on one thread.

    Attributes:
        loader: ``torch`` or ``grain``.
        path: Names of the stages that it runs in, its own at the end.
        total_ps: Of its calls.
        self_ps: The same without the stages within.
        slow_calls: Calls above the threshold of tf.data.
        category: What Grain calls the stage: ``read``, ``preprocessing``, ``prefetch``; else empty.
        made_for: The stage that takes what this one makes ahead; empty where it is called.
    """

    loader: str
    thread: str
    path: tuple[str, ...]
    calls: int
    total_ps: int
    self_ps: int
    max_ps: int
    slow_calls: int
    category: str = ""
    made_for: str = ""


@dataclass(frozen=True)
class Loaders:
    """The loaders of one host, every stage once."""

    stages: Sequence[LoaderStage] = ()

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {
            "stages": [
                [one.loader, one.thread, list(one.path), *list(vars(one).values())[3:]]
                for one in self.stages
            ]
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The loaders that ``to_state`` described."""
        return cls(
            [
                LoaderStage(loader, thread, tuple(path), *figures)
                for loader, thread, path, *figures in state["stages"]
            ]
        )


_ADVICE: Final[Mapping[str, tuple[str, ...]]] = {
    "torch": (
        "Raise `num_workers`, and give each worker more to do ahead: `prefetch_factor`, "
        "`persistent_workers=True`.",
        "Copy to the device while the step runs: `pin_memory=True` and `non_blocking=True`.",
        "Move work out of `__getitem__`: decode and tokenise once, and store the result.",
    ),
    "grain": (
        "Raise `worker_count` (`mp_prefetch`), and `worker_buffer_size` so that workers run ahead.",
        "Read with more threads: `ReadOptions(num_threads, prefetch_buffer_size)`.",
        "Move expensive transformations before `batch`, or store their result.",
    ),
}
_IN_ONE_PROCESS: Final = (
    "The loader runs in the training process (`num_workers=0`): set `num_workers` to a few per "
    "device, so that batches are made while the step runs."
)


def loader_advice(loader: str, call: str, category: str = "") -> tuple[str, ...]:
    """What to do about a slow loader; parts in backticks are identifiers.

    Args:
        loader: ``torch`` or ``grain``.
        call: Its outermost stage.
        category: That of the stage which takes the time.
    """
    known = _ADVICE[loader]
    if category == READ:
        return (known[1], known[0], known[2])
    return (_IN_ONE_PROCESS, *known[1:]) if "SingleProcess" in call else known


@dataclass(frozen=True)
class _Stage:
    """What an event is a call of."""

    loader: str
    name: str
    category: str = ""
    made_for: str = ""


def stage_of(name: str) -> tuple[str, str] | None:
    """Loader and stage of an event's name; None for any other event."""
    for loader, pattern in _RULES:
        if found := pattern.match(name):
            return loader, found[1] or found[2]
    return None


def host_loaders(space: PreparedSpace, slow_ps: int) -> Loaders:
    """What loaders did on a host's threads.

    Args:
        space: The host's.
        slow_ps: From this duration on a call is slow.
    """
    plane = space.host_plane
    if plane is None:
        return Loaders()
    named = {
        row: _Stage(*stage)
        for row, name in enumerate(plane.event_metadata.names)
        if (stage := stage_of(name)) is not None
    }
    if not named and _STAGE not in plane.stat_names:
        return Loaders()
    found: list[LoaderStage] = []
    for line in plane.lines:
        if not line.is_derived and line.event_count:
            found += _line_stages(line, named, slow_ps)
    return Loaders(found)


def _line_stages(
    line: PreparedLine, named: Mapping[int, _Stage], slow_ps: int
) -> list[LoaderStage]:
    told = frozenset((_STAGE, _CATEGORY, _DATASET)) & line.plane.stat_names
    columns = line.columns(told)
    texts = {stat: columns.stat(stat).strings() for stat in told}
    is_call = np.isin(columns.metadata, list(named))
    if _STAGE in texts:
        codes, table = texts[_STAGE]
        # The last place is for -1, no text; a text may be empty too.
        is_call |= np.array([*(bool(_short(name)) for name in table), False])[codes]
    events = np.flatnonzero(is_call)[:_MAX_EVENTS]
    start = columns.start_ps[events]
    end = start + columns.duration_ps[events]
    # Outer events before those within.
    order = np.lexsort((-end, start))

    def text(stat: str, event: int) -> str:
        codes, table = texts.get(stat, (None, ()))
        return "" if codes is None or codes[event] < 0 else table[codes[event]]

    def stage(event: int) -> _Stage:
        name = _short(text(_STAGE, event))
        if not name:
            return named[int(columns.metadata[event])]
        made = _short(text(_DATASET, event))
        return _Stage("grain", made or name, text(_CATEGORY, event), name if made else "")

    return _summed(
        line,
        zip(
            [stage(event) for event in events[order].tolist()],
            start[order].tolist(),
            end[order].tolist(),
            strict=True,
        ),
        slow_ps,
    )


def _short(name: str) -> str:
    """A stage's name without its arguments."""
    return name.partition("(")[0].strip()


def _summed(
    line: PreparedLine, stage_calls: Iterable[tuple[_Stage, int, int]], slow_ps: int
) -> list[LoaderStage]:
    """The stages of one thread, from their calls in the order of their begins."""
    sums: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    first: dict[tuple[str, tuple[str, ...]], _Stage] = {}
    open_calls: list[tuple[int, str, tuple[str, ...]]] = []
    for stage, begin, until in stage_calls:
        while open_calls and open_calls[-1][0] < until:
            open_calls.pop()
        loader = stage.loader
        inside = open_calls[-1][2] if open_calls and open_calls[-1][1] == loader else ()
        duration = until - begin
        if inside:
            sums[loader, inside][2] -= duration
        path = (*inside, stage.name)
        first.setdefault((loader, path), stage)
        entry = sums.setdefault((loader, path), [0, 0, 0, 0, 0])
        entry[0] += 1
        entry[1] += duration
        entry[2] += duration
        entry[3] = max(entry[3], duration)
        entry[4] += duration > slow_ps
        open_calls.append((until, loader, path))
    thread = line.display_name or line.name
    return [
        LoaderStage(
            loader,
            thread,
            path,
            *(calls, total_ps, self_ps, longest_ps, slow_calls),
            first[loader, path].category,
            first[loader, path].made_for,
        )
        for (loader, path), (calls, total_ps, self_ps, longest_ps, slow_calls) in sums.items()
    ]
