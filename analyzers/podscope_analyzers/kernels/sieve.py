"""Kernels that read a line of events and keep few of them: those that say something themselves.

Most events of a host are calls of Python functions, which only lie around others. One walk over
all of them keeps the spans that are open on a stack, so that what is kept still knows what lies
around it, and of the others those right below what is kept: the rest lies within these.
"""

from typing import Final

from podscope_analyzers.kernels.compiled import inner, kernel
from podscope_analyzers.kernels.events import (
    TIME_BOUND,
    Int16s,
    Int32s,
    UInt8s,
    clipped,
    read_event,
    row_of,
)
from podscope_analyzers.kernels.spans import Bools
from podscope_analyzers.kernels.wire import CHANGED, EVENTS, Bytes, Int64s, UInt64, fail, read_field

# Of so many events it is judged whether sifting pays.
_SAMPLE: Final = 1 << 16
DENSE: Final = -2
"""Instead of a count: nearly all events are kept."""
_WITHIN_KEPT: Final = -1


@kernel(
    "i8(Array(u1, 1, 'C', True), i8, i8, i8, i8, i4[::1], i8[::1], u8, i8, i2[::1], i8[::1],"
    " i2[::1], u1[::1], i8, i8[::1], i8[::1], i4[::1], i4[::1], i4[::1], i4[::1], i4[::1],"
    " i4[::1], i8[::1], i8[::1], i8[::1], u1[:, ::1], i8[:, ::1], i4[::1], i4[::1], i4[::1],"
    " i8[::1], i8[::1], i8[::1], i8[::1])",
)
def sift(
    buffer: Bytes,
    start: int,
    end: int,
    base_ps: int,
    low: int,
    rows: Int32s,
    keys: Int64s,
    multiplier: UInt64,
    missing: int,
    low_slots: Int16s,
    high_ids: Int64s,
    high_slots: Int16s,
    wanted: UInt8s,
    aside: int,
    stack_start: Int64s,
    stack_end: Int64s,
    stack_kept: Int32s,
    stack_between: Int32s,
    events: Int32s,
    parent: Int32s,
    between: Int32s,
    metadata: Int32s,
    start_ps: Int64s,
    duration_ps: Int64s,
    occurrences: Int64s,
    kinds: UInt8s,
    raws: Int64s,
    outer_events: Int32s,
    outer_parent: Int32s,
    outer_metadata: Int32s,
    outer_start_ps: Int64s,
    outer_duration_ps: Int64s,
    outer_after: Int64s,
    report: Int64s,
) -> int:
    """Decodes the events of an XLine that have a wanted name or stat; see ``events.decode``.

    ``wanted`` is 1 for every row of the metadata whose events are kept, ``aside`` the slot of the
    stat that takes an event out of the nesting, -1 for none. The stack has room for all events.

    Out, of the kept events: their indices, which of them is the innermost around each (-1 for
    none), how many events that are not kept are between the two, and the columns. Of the others
    the outer ones, those right below a kept one, and those without duration anywhere below one:
    index, the innermost kept one around, fields, and where the next event's field may start.

    Returns:
        How many events are kept; ``DENSE`` when nearly all of the first ones are. ``report[3]``
        is the number of outer ones, ``report[4]`` and ``report[5]`` the earliest start and the
        latest end of all that are not kept, ``report[6]`` 1 where outer spans come before inner
        ones and none begins within a kept one and ends after it.
    """
    event = 0
    kept = 0
    outer = 0
    top = -1
    earliest = report[4]
    latest = report[5]
    is_ordered = True
    is_whole = True
    last_id = 0
    last_row = row_of(last_id, low, rows, keys, multiplier, missing)
    at = start
    while at < end:
        key, payload, after = read_field(buffer, at, end, report)
        if after < 0:
            return -1
        at = after
        if key != EVENTS:
            continue
        if event == events.size:
            fail(report, CHANGED, at)
            return -1
        if event == _SAMPLE and kept > _SAMPLE // 4 * 3:
            return DENSE
        metadata_id, offset, duration, times, stats = read_event(
            buffer,
            payload,
            after,
            low_slots,
            high_ids,
            high_slots,
            kept,
            kinds,
            raws,
            report,
        )
        if stats < 0:
            return -1
        if metadata_id != last_id:
            last_id = metadata_id
            last_row = row_of(metadata_id, low, rows, keys, multiplier, missing)
        begin = clipped(base_ps, offset)
        duration = min(max(duration, 0), TIME_BOUND)
        finish = begin + duration
        is_aside = False
        if stats > 0 and aside >= 0:
            is_aside = kinds[aside, kept] == 4 and raws[aside, kept] != 0
        around = -1
        hops = 0
        if not is_aside:
            if top >= 0:
                # The last event is on top. Outer ones come first.
                is_ordered &= stack_start[top] < begin or (
                    stack_start[top] == begin and stack_end[top] >= finish
                )
            while top >= 0 and (stack_start[top] > begin or stack_end[top] < finish):
                is_whole &= stack_end[top] <= begin or stack_between[top] > 0
                top -= 1
            if top >= 0:
                around = stack_kept[top]
                hops = stack_between[top]
            top += 1
            stack_start[top] = begin
            stack_end[top] = finish
        if stats > 0 or wanted[last_row] != 0:
            events[kept] = event
            parent[kept] = around
            between[kept] = hops
            metadata[kept] = last_row
            start_ps[kept] = begin
            duration_ps[kept] = duration
            if times != 0:
                occurrences[kept] = times
            around = kept
            hops = -1
            kept += 1
        else:
            earliest = min(earliest, begin)
            latest = max(latest, finish)
            if around >= 0 and (hops == 0 or duration == 0):
                outer_events[outer] = event
                outer_parent[outer] = around
                outer_metadata[outer] = last_row
                outer_start_ps[outer] = begin
                outer_duration_ps[outer] = duration
                outer_after[outer] = after
                outer += 1
        if not is_aside:
            stack_kept[top] = around
            stack_between[top] = hops + 1
        event += 1
    if event != events.size:
        fail(report, CHANGED, end)
        return -1
    report[3] = outer
    report[4] = earliest
    report[5] = latest
    report[6] = is_ordered and is_whole
    return kept


@kernel("void(i4[::1], i4[::1], i4[::1], b1[::1], b1[::1], i8, i4[::1], b1[::1])")
def find_levels(
    groups: Int32s,
    parent: Int32s,
    between: Int32s,
    counts: Bools,
    around: Bools,
    depth: int,
    level: Int32s,
    is_inner: Bools,
) -> None:
    """Within how many others of their group the kept events of a line are, and which are inner.

    An event that is not kept has the group of the event around it. Spans count that have a
    duration, a group and the kind of those that are not kept. One that lies within another of its
    group is inner and left out; those ``around`` a moment of note only when they lie within
    ``depth`` others. So as many levels as that are told apart, at most.

    Out: the level below each event, and the inner ones. All arrays are of the kept events.
    """
    for i in range(groups.size):
        above = 0
        if parent[i] >= 0 and groups[i] == groups[parent[i]]:
            above = min(level[parent[i]] + between[i], depth)
        is_inner[i] = counts[i] and above > 0 and not (around[i] and above < depth)
        level[i] = above + 1 if counts[i] and not is_inner[i] else above


@inner
def _first_after(moments: Int64s, begin: int, guess: int) -> int:
    """Index of the first of the ascending moments after a begin; ``guess`` is often right."""
    if (guess == 0 or moments[guess - 1] <= begin) and (
        guess == moments.size or moments[guess] > begin
    ):
        return guess
    low = 0
    high = moments.size
    while low < high:
        middle = (low + high) // 2
        if moments[middle] > begin:
            high = middle
        else:
            low = middle + 1
    return low


@kernel(
    "i8(i4[::1], i4[::1], i4[::1], i8[::1], i8[::1], i8, i8[::1], i8[::1], i8[::1], i8[::1],"
    " i8[::1], i4[::1], i8[::1])",
)
def take_outer(
    groups: Int32s,
    level: Int32s,
    parent: Int32s,
    start_ps: Int64s,
    duration_ps: Int64s,
    depth: int,
    moments: Int64s,
    step: Int64s,
    begin_ps: Int64s,
    end_ps: Int64s,
    deep: Int64s,
    deep_level: Int32s,
    report: Int64s,
) -> int:
    """Step and span of ``sift``'s outer events that are not inner; see ``find_levels``.

    Args as there, ``parent`` and times of the outer events. Out too: those within which there may
    be others to a depth, and the level below each.

    Returns:
        How many spans were written; ``report[0]`` is the number of those with others.
    """
    found = 0
    deeper = 0
    nearest = 0
    for i in range(parent.size):
        group = groups[parent[i]]
        if group < 0:
            continue
        above = level[parent[i]]
        begin = start_ps[i]
        end = begin + duration_ps[i]
        nearest = _first_after(moments, begin, nearest)
        is_around = nearest < moments.size and moments[nearest] < end
        if above == 0 or begin == end or (is_around and above < depth):
            step[found] = group
            begin_ps[found] = begin
            end_ps[found] = end
            found += 1
            if is_around and above + 1 < depth:
                deep[deeper] = i
                deep_level[deeper] = above + 1
                deeper += 1
    report[0] = deeper
    return found


@kernel(
    "i8(Array(u1, 1, 'C', True), i8, i8, i2[::1], i8[::1], i2[::1], u1[:, ::1], i8[:, ::1],"
    " i4[::1], b1[::1], i4[::1], i8[::1], i8[::1], i8[::1], i4[::1], i8, i8[::1], i8[::1],"
    " i8[::1], i4[::1], i4[::1], i4[::1], i8[::1], i8[::1], i8[::1])",
)
def find_inner(
    buffer: Bytes,
    end: int,
    base_ps: int,
    low_slots: Int16s,
    high_ids: Int64s,
    high_slots: Int16s,
    kinds: UInt8s,
    raws: Int64s,
    events: Int32s,
    apart: Bools,
    outer_events: Int32s,
    outer_start_ps: Int64s,
    outer_end_ps: Int64s,
    outer_after: Int64s,
    outer_level: Int32s,
    depth: int,
    moments: Int64s,
    stack_start: Int64s,
    stack_end: Int64s,
    stack_level: Int32s,
    stack_outer: Int32s,
    within: Int32s,
    start_ps: Int64s,
    end_ps: Int64s,
    report: Int64s,
) -> int:
    """Spans around moments that lie within some of ``sift``'s outer events, to a depth.

    Of the events that ``sift`` kept come their indices and which are neither around others nor
    within them: what lies within a kept event is not looked for. Of the outer events, which are in
    the line's order, ``outer_level`` is the level below each. ``moments`` are ascending. No stats
    are wanted: there are no slots. Out, of every span, the outer event that it lies in, start and
    end. These arrays and the stack have room for all events.

    Returns:
        How many spans were found.
    """
    found = 0
    known = 0
    outer = 0
    nearest = 0
    while outer < outer_events.size:
        event = outer_events[outer]
        at = outer_after[outer]
        top = 0
        stack_start[0] = outer_start_ps[outer]
        stack_end[0] = outer_end_ps[outer]
        stack_level[0] = outer_level[outer]
        stack_outer[0] = outer
        outer += 1
        while known < events.size and events[known] <= event:
            known += 1
        # Until an event that is not within the first of the stack. An outer event on the way,
        # which is within a kept one, joins the stack, so that nothing is read twice.
        while at < end:
            key, payload, after = read_field(buffer, at, end, report)
            if after < 0:
                return -1
            at = after
            if key != EVENTS:
                continue
            event += 1
            if event >= start_ps.size:
                fail(report, CHANGED, at)
                return -1
            is_kept = known < events.size and events[known] == event
            if is_kept:
                known += 1
                if apart[known - 1]:
                    continue
            _, offset, duration, _, stats = read_event(
                buffer,
                payload,
                after,
                low_slots,
                high_ids,
                high_slots,
                0,
                kinds,
                raws,
                report,
            )
            if stats < 0:
                return -1
            begin = clipped(base_ps, offset)
            finish = begin + min(max(duration, 0), TIME_BOUND)
            while top >= 0 and (stack_start[top] > begin or stack_end[top] < finish):
                top -= 1
            if top < 0:
                break
            level = stack_level[top]
            own = stack_outer[top]
            if is_kept:
                level = _WITHIN_KEPT
            elif outer < outer_events.size and outer_events[outer] == event:
                level = outer_level[outer]
                own = outer
                outer += 1
            elif 0 <= level < depth:
                nearest = _first_after(moments, begin, nearest)
                if nearest < moments.size and moments[nearest] < finish:
                    within[found] = own
                    start_ps[found] = begin
                    end_ps[found] = finish
                    found += 1
                    level += 1
            top += 1
            stack_start[top] = begin
            stack_end[top] = finish
            stack_level[top] = level
            stack_outer[top] = own
    return found
