"""Time of a step by what it went into, each moment counted once."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from podscope_analyzers.kernels.steps import sweep_steps
from podscope_analyzers.steps.database import Bools, Int64s
from podscope_analyzers.steps.event_types import EVENT_TYPES
from podscope_analyzers.steps.events import StepEvents

_TYPES: Final = len(EVENT_TYPES)
_KEY_BITS: Final = 6
# A key holds a time beside kind and type; times further than ten hours from the first step, which
# only a broken clock gives, are cut to that.
_AT_ONCE: Final = 1 << 19
REACH_PS: Final = 1 << (61 - _KEY_BITS)


@dataclass(frozen=True)
class ExclusiveTimes:
    """Times of s steps by event type.

    Attributes:
        time_ps: Within the step, shape (s, types).
        present: Whether the type was the highest at some moment, shape (s, types).
        total_ps: Over all steps, not cut to them, shape (types,).
    """

    time_ps: Int64s
    present: Bools
    total_ps: Int64s


def _keys(events: StepEvents, rows: Int64s, base: int) -> Int64s:
    """Start and end of some events as keys of the sweep, shape (2n,)."""
    low = 31 - events.event_type[rows].astype(np.int64)
    starts, ends = (
        (np.clip(times[rows] - base, 0, 2 * REACH_PS) << _KEY_BITS) + low
        for times in (events.event_begin_ps, events.event_end_ps)
    )
    keys = np.empty(2 * len(rows), np.int64)
    keys[0::2], keys[1::2] = starts + 32, ends
    return keys


def exclusive_times(
    events: StepEvents, steps: Int64s, begin_ps: Int64s, duration_ps: Int64s
) -> ExclusiveTimes:
    """Give every moment of each step to the event of the highest priority then active.

    Args:
        events: Of a host.
        steps: Ids of the steps, ascending, shape (s,).
        begin_ps: Of every step, shape (s,).
        duration_ps: Of every step, shape (s,).
    """
    count = len(events.event_step)
    time_ps = np.zeros((len(steps), 32), np.int64)
    present = np.zeros((len(steps), 32), np.bool_)
    total_ps = np.zeros(32, np.int64)
    if count and len(steps):
        order = np.argsort(events.event_step, kind="stable")
        base = int(begin_ps.min()) - REACH_PS
        first = np.append(np.searchsorted(events.event_step, steps, sorter=order), count)
        end_ps = begin_ps + duration_ps
        done = 0
        while done < len(steps):
            # Some steps at a time: a host has millions of events, with two keys each.
            stop = int(np.searchsorted(first, first[done] + _AT_ONCE, side="right")) - 1
            some = slice(done, max(stop, done + 1))
            rows = order[first[some.start] : first[some.stop]]
            keys = _keys(events, rows, base)
            offsets = 2 * (first[some.start : some.stop + 1] - first[some.start]).astype(np.int64)
            for at in range(len(offsets) - 1):
                keys[offsets[at] : offsets[at + 1]].sort()
            sweep_steps(
                keys,
                offsets,
                base,
                begin_ps[some],
                end_ps[some],
                time_ps[some],
                present[some],
                total_ps,
                np.empty_like(total_ps),
            )
            done = some.stop
    return ExclusiveTimes(
        time_ps[:, :_TYPES].copy(), present[:, :_TYPES].copy(), total_ps[:_TYPES].copy()
    )
