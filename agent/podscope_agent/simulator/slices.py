"""What slices of a pod exchange over the data-centre network while the optimizer runs.

Each exchange is a host transfer of four operations, as XLA makes them for several slices: ``send``
and ``recv`` begin it, ``send-done`` and ``recv-done`` wait for its ends.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from podscope_agent.simulator.encoding import bytes_field, varint_field
from podscope_agent.simulator.program import TRANSFER_PS, TRANSFERS, Op, Program

_TYPES: Final = ("ALL_REDUCE", "ALL_GATHER")
_FIRST_CHANNEL: Final = 101
_ENDPOINT, _GROUP = 1, 2


def exchange_number(op: Op) -> int:
    """Which exchange an operation is of."""
    return int(op.name.partition(".")[2] or 0)


def rendezvous(op: Op) -> str:
    """What the runtimes of the slices call it."""
    return f"parameters_{exchange_number(op)}"


def transfer_type(op: Op) -> str:
    """What the slices do with what they send."""
    return _TYPES[exchange_number(op) % len(_TYPES)]


def channel(op: Op) -> int:
    """Number of the channel: that of a send is its send-done's too, likewise of a recv."""
    return _FIRST_CHANNEL + 2 * exchange_number(op) + op.kind.startswith("recv")


def attributes(op: Op) -> dict[str, str]:
    """The frontend attributes of a send or a recv, in alphabetical order."""
    return {
        "_xla_host_transfer_rendezvous": rendezvous(op),
        "_xla_megascale_transfer_type": transfer_type(op),
    }


def collective_description(slices: int) -> bytes:
    """The tracer's stat of a send: one group that has a core of each slice."""
    group = b"".join(
        bytes_field(_ENDPOINT, varint_field(1, number) + varint_field(2, 0))
        for number in range(slices)
    )
    return bytes_field(_GROUP, group)


def transfers_truth(program: Program) -> list[dict[str, Any]]:
    """Every exchange in one step of one core."""
    ops = program.epilogue
    ends = list(accumulate(op.weight_ps for op in ops))
    return [_truth(program, ops, ends, index) for index, op in enumerate(ops) if op.kind == "send"]


def _truth(program: Program, ops: Sequence[Op], ends: Sequence[int], first: int) -> dict[str, Any]:
    send = ops[first]
    own = dict(_own(ops, exchange_number(send)))
    last = own["recv-done"]
    between = (op.weight_ps for op in ops[first:last] if op.kind not in TRANSFERS)
    size = send.operand_shapes[0].elements * program.element_bytes
    slices = program.slices
    return {
        "rendezvous": rendezvous(send),
        "transfer_type": transfer_type(send),
        "send_op": send.name,
        "recv_op": ops[last].name,
        "slack_ps": sum(between),
        "observed_ps": ends[last] - ends[first] + send.weight_ps,
        "stall_ps": sum(TRANSFER_PS.values()),
        **{f"{kind.replace('-', '_')}_ps": ops[at].weight_ps for kind, at in own.items()},
        "sent_bytes": (1 + (transfer_type(send) == "ALL_REDUCE")) * (slices - 1) * size // slices,
    }


def _own(ops: Sequence[Op], number: int) -> Iterator[tuple[str, int]]:
    for at, op in enumerate(ops):
        if op.kind in TRANSFERS and exchange_number(op) == number:
            yield op.kind, at
