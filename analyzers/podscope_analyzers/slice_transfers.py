"""Transfers between slices, over the data-centre network: how long each had, and who waited.

A collective across slices is a host transfer of four HLO operations: ``send`` and ``recv`` begin
it, ``send-done`` and ``recv-done`` wait for its ends. The *slack* is the time from the send to the
recv-done in which the core did other work: a transfer that takes no longer costs nothing. The
*stall* is the time that the core spent in the four.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import prod
from typing import Any, Final, Self

import numpy as np
from google.protobuf.message import DecodeError

from podscope_analyzers.hlo.programs import Program, Programs
from podscope_analyzers.hlo.shapes import bit_width, leaves
from podscope_analyzers.planes import XLA_MODULES, XLA_OPS, is_tensor_core
from podscope_analyzers.prepared import PreparedLine, PreparedSpace
from podscope_analyzers.prepared_metadata import PreparedMetadata
from podscope_protos.v1 import hlo_pb2

_CATEGORIES: Final = ("host send", "host recv")
_RENDEZVOUS: Final = "_xla_host_transfer_rendezvous"
_TRANSFER_TYPE: Final = "_xla_megascale_transfer_type"
_INFO: Final = "dcn_collective_info"
_ENDPOINT_GROUPS, _ONE_TO_ONE_GROUPS, _ENDPOINTS = 2, 3, 1
_LENGTH_DELIMITED: Final = 2
_PS_PER_US: Final = 1_000_000
_UINT64: Final = 1 << 64
_RUNTIME_PREFIX: Final = "MegaScale:"
_FIRST_CORE: Final = "/device:TPU:0"
_PLAIN: Final = 7
"""Fields of a transfer before its durations."""


@dataclass(frozen=True)
class Durations:
    """Of the occurrences of one transfer, summed."""

    slack: int = 0
    observed: int = 0
    stall: int = 0
    send: int = 0
    recv: int = 0
    send_done: int = 0
    recv_done: int = 0

    def __add__(self, other: Self) -> "Durations":
        mine, others = vars(self).values(), vars(other).values()
        return Durations(*(a + b for a, b in zip(mine, others, strict=True)))


@dataclass(frozen=True)
class SliceTransfer:
    """All occurrences of a rendezvous on one core.

    Attributes:
        plane: The core's plane.
        rendezvous: Name of the collective.
        recv_op: The operation that waits for the data.
        bytes_sent: Over the network, of the last occurrence.
        sums: Over the occurrences; the slack is negative where the four overlap.
    """

    plane: str
    rendezvous: str
    transfer_type: str
    recv_op: str
    send_op: str
    occurrences: int
    bytes_sent: int
    sums: Durations

    def with_occurrence(self, other: Self) -> Self:
        """These occurrences and later ones."""
        return replace(
            other,
            occurrences=self.occurrences + other.occurrences,
            sums=self.sums + other.sums,
        )


@dataclass(frozen=True)
class SliceTransfers:
    """The transfers of one host, by core and rendezvous.

    Attributes:
        rows: Times in picoseconds.
        reference: Of the first core as the reference has them: each occurrence in whole
            microseconds, a negative slack as an unsigned number of nanoseconds; a recv-done whose
            recv was not captured is none, and one without a new send counts from the last.
    """

    rows: Sequence[SliceTransfer] = ()
    reference: Sequence[SliceTransfer] = ()

    @property
    def send_ps(self) -> int:
        """Time of all cores in sends to other slices and their ends."""
        return self._between_slices.send + self._between_slices.send_done

    @property
    def send_done_ps(self) -> int:
        """Time of all cores in the ends of sends to other slices."""
        return self._between_slices.send_done

    @property
    def recv_ps(self) -> int:
        """Time of all cores in receives from other slices and their ends."""
        return self._between_slices.recv + self._between_slices.recv_done

    @cached_property
    def _between_slices(self) -> Durations:
        # Calls back into the host meet by name too, but have no type of transfer.
        return sum((row.sums for row in self.rows if row.transfer_type), Durations())

    def to_state(self) -> dict[str, Any]:
        """Plain values for storing."""
        return {"rows": _plain(self.rows), "reference": _plain(self.reference)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The transfers that ``to_state`` described."""
        return cls(_transfers(state["rows"]), _transfers(state["reference"]))


def _plain(rows: Sequence[SliceTransfer]) -> list[list[Any]]:
    # Numbers as text: a wrapped slack exceeds 64 bits.
    return [
        [*list(vars(row).values())[:_PLAIN], *(str(value) for value in vars(row.sums).values())]
        for row in rows
    ]


def _transfers(rows: Sequence[list[Any]]) -> list[SliceTransfer]:
    found = []
    for plane, rendezvous, kind, recv, send, count, sent, *sums in rows:
        durations = Durations(*map(int, sums))
        found.append(SliceTransfer(plane, rendezvous, kind, recv, send, count, sent, durations))
    return found


def bytes_over_network(transfer_type: str, group_size: int, buffer_bytes: int) -> int:
    """What one core sends for a buffer; 0 for other types and unknown groups."""
    if not group_size:
        return 0
    match transfer_type:
        case "ONE_TO_ONE":
            return group_size * buffer_bytes
        case "ALL_GATHER" | "ALL_TO_ALL":
            return (group_size - 1) * buffer_bytes // group_size
        case "ALL_REDUCE":
            return 2 * (group_size - 1) * buffer_bytes // group_size
        case "REDUCE_SCATTER":
            return (group_size - 1) * buffer_bytes
        case _:
            return 0


def group_size(info: bytes) -> int:
    """Cores of a collective: 1 of a pair, else those of its first group; 0 when it does not say."""
    groups = _parts(info)
    if _ONE_TO_ONE_GROUPS in groups:
        return 1
    endpoints = groups.get(_ENDPOINT_GROUPS)
    return len(_parts(endpoints[0]).get(_ENDPOINTS, ())) if endpoints else 0


def _parts(message: bytes) -> dict[int, list[bytes]]:
    """The nested messages of a message by field number."""
    # Of no use to captures without such a transfer, which are most.
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    found: dict[int, list[bytes]] = {}
    try:
        parsed = UnknownFieldSet(Empty.FromString(message))
    except DecodeError:
        return found
    for number in range(len(parsed)):
        part = parsed[number]
        if part.wire_type == _LENGTH_DELIMITED:
            found.setdefault(part.field_number, []).append(part.data)
    return found


@dataclass(frozen=True)
class _Op:
    """What is known of a transfer's operation.

    Attributes:
        begun_by: Name of the send or recv that says what it is; of these, and of what says it
            itself, empty.
    """

    name: str
    opcode: str
    rendezvous: str
    transfer_type: str
    group_size: int
    buffer_bytes: int
    begun_by: str


_Event = tuple[_Op, int, int]


@dataclass
class _Open:
    """A rendezvous between its send and its recv-done."""

    send: _Op
    start_ps: int
    other_ps: int
    group_size: int
    sums: dict[str, int]


def host_slice_transfers(space: PreparedSpace, programs: Programs) -> SliceTransfers:
    """What a host's TensorCores sent to other slices."""
    rows: list[SliceTransfer] = []
    reference: list[SliceTransfer] = []
    host = space.host_plane
    names = host.event_metadata.names if host else ()
    # Without an event of the runtime on the host it looks no further.
    has_runtime = any(name.startswith(_RUNTIME_PREFIX) for name in names)
    for plane in space.planes:
        if not is_tensor_core(plane.name):
            continue
        table = plane.event_metadata
        ops = table.made_of(
            np.arange(table.empty_row), "transfers", partial(_transfer_ops, table, programs)
        )
        modules, line = plane.line(XLA_MODULES), plane.line(XLA_OPS)
        if not ops or modules is None or line is None:
            continue
        events = list(_events(line, modules, ops))
        rows += _summed(_occurrences(plane.name, events))
        if plane.name == _FIRST_CORE and has_runtime:
            found = _occurrences(plane.name, _known_to_reference(events), reuses_sends=True)
            reference += _summed(found)
    return SliceTransfers(rows, reference)


def _summed(occurrences: Iterable[SliceTransfer]) -> Iterable[SliceTransfer]:
    found: dict[str, SliceTransfer] = {}
    for one in occurrences:
        known = found.get(one.rendezvous)
        found[one.rendezvous] = one if known is None else known.with_occurrence(one)
    return found.values()


def _known_to_reference(events: Iterable[_Event]) -> Iterator[_Event]:
    """The operations but those whose send or recv was not seen before."""
    seen = set()
    for op, start, end in events:
        seen.add(op.name)
        if not op.begun_by or op.begun_by in seen:
            yield op, start, end


def _transfer_ops(table: PreparedMetadata, programs: Programs) -> dict[int, _Op]:
    """The transfers' operations by row of a plane's event metadata."""
    found: dict[int, _Op] = {}
    channels: dict[int, dict[tuple[bool, int], hlo_pb2.HloInstructionProto]] = {}
    for row in range(table.empty_row):
        stats = table.stats(row)
        category = stats.get("hlo_category")
        program_id = stats.get("program_id")
        if not isinstance(category, str) or not isinstance(program_id, int):
            continue
        if not any(known in category for known in _CATEGORIES):
            continue
        name = table.display_names[row] or table.names[row]
        program = programs.get(program_id)
        known_op = programs.instruction(program_id, name)
        if program is None or known_op is None:
            continue
        if program.id not in channels:
            channels[program.id] = _channels(program)
        info = stats.get(_INFO)
        size = group_size(info) if isinstance(info, bytes) else 0
        op = _op(known_op.proto, channels[program.id], size)
        if op is not None:
            found[row] = op
    return found


def _channels(program: Program) -> dict[tuple[bool, int], hlo_pb2.HloInstructionProto]:
    """The sends and receives of a program by direction and channel."""
    return {
        (one.opcode == "send", one.channel_id): one
        for one in program.by_id.values()
        if one.opcode in ("send", "recv")
    }


def _op(
    proto: hlo_pb2.HloInstructionProto,
    channels: Mapping[tuple[bool, int], hlo_pb2.HloInstructionProto],
    size: int,
) -> _Op | None:
    begun = proto
    if proto.opcode in ("send-done", "recv-done") and not proto.frontend_attributes.map.get(
        _RENDEZVOUS
    ):
        begun = channels.get((proto.opcode == "send-done", proto.channel_id), proto)
    attributes = begun.frontend_attributes.map
    rendezvous = attributes.get(_RENDEZVOUS)
    if not rendezvous:
        return None
    return _Op(
        proto.name,
        proto.opcode,
        rendezvous,
        attributes.get(_TRANSFER_TYPE, ""),
        size,
        _buffer_bytes(begun.shape),
        begun.name if begun is not proto else "",
    )


def _buffer_bytes(shape: hlo_pb2.ShapeProto) -> int:
    """Bytes of the first array of a transfer; its other parts are the tracer's own."""
    for _, leaf in leaves(shape):
        if bits := bit_width(leaf.element_type):
            return int(prod(leaf.dimensions)) * max(1, bits // 8)
    return 0


def _events(line: PreparedLine, modules: PreparedLine, ops: Mapping[int, _Op]) -> Iterator[_Event]:
    """The transfers' operations in time order that lie within a run of a program."""
    columns = line.columns()
    events = np.flatnonzero(np.isin(columns.metadata, list(ops)))
    start = columns.start_ps[events]
    end = start + columns.duration_ps[events]
    runs = modules.columns()
    begins = np.sort(runs.start_ps)
    ends = (runs.start_ps + runs.duration_ps)[np.argsort(runs.start_ps, kind="stable")]
    at = np.searchsorted(begins, start, side="right") - 1
    inside = (at >= 0) & (end <= ends[np.maximum(at, 0)]) if len(begins) else np.zeros(0, np.bool_)
    events, start, end = events[inside], start[inside], end[inside]
    order = np.argsort(start, kind="stable")
    rows = columns.metadata[events[order]].tolist()
    for row, begin, until in zip(rows, start[order].tolist(), end[order].tolist(), strict=True):
        yield ops[row], begin, until


def _occurrences(
    plane: str, events: Iterable[_Event], *, reuses_sends: bool = False
) -> Iterator[SliceTransfer]:
    """A record at every recv-done whose send was seen.

    Args:
        plane: The core's.
        events: In time order.
        reuses_sends: As the reference does, count a recv-done without a new send from the last
            one, take the time 0 for none, and give whole microseconds.
    """
    active: dict[str, _Open] = {}
    in_transfers_ps = 0
    for op, start, end in events:
        duration = end - start
        if op.opcode == "send":
            before = active.get(op.rendezvous) if reuses_sends else None
            sums = before.sums if before else {"recv": 0, "send-done": 0}
            sums |= {"send": duration, "stall": duration}
            active[op.rendezvous] = _Open(op, start, in_transfers_ps, op.group_size, sums)
        elif op.rendezvous in active:
            one = active[op.rendezvous]
            one.sums["stall"] += duration
            if op.opcode != "recv-done":
                one.sums[op.opcode] = duration
            elif reuses_sends:
                if one.start_ps:
                    record = _record(plane, one, op, (start, end), in_transfers_ps - one.other_ps)
                    yield replace(record, sums=_whole_us(record.sums, one.start_ps, end))
            else:
                yield _record(plane, one, op, (start, end), in_transfers_ps - one.other_ps)
                del active[op.rendezvous]
        in_transfers_ps += duration


def _record(
    plane: str, one: _Open, done: _Op, span: tuple[int, int], other_ps: int
) -> SliceTransfer:
    start, end = span
    kind = one.send.transfer_type
    return SliceTransfer(
        plane=plane,
        rendezvous=done.rendezvous,
        transfer_type=kind,
        recv_op=done.name,
        send_op=one.send.name,
        occurrences=1,
        bytes_sent=bytes_over_network(kind, one.group_size, done.buffer_bytes),
        sums=Durations(
            slack=start - one.start_ps - other_ps,
            observed=end - one.start_ps,
            stall=one.sums["stall"],
            send=one.sums["send"],
            recv=one.sums["recv"],
            send_done=one.sums["send-done"],
            recv_done=end - start,
        ),
    )


def _whole_us(ps: Durations, start_ps: int, end_ps: int) -> Durations:
    return replace(
        Durations(*(value // _PS_PER_US for value in vars(ps).values())),
        slack=(ps.slack // 1000) % _UINT64 // 1000,
        observed=end_ps // _PS_PER_US - start_ps // _PS_PER_US,
    )
