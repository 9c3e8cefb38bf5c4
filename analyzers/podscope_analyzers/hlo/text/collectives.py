"""Attributes of instructions that devices, or a device and its host, do together."""

from collections.abc import Iterator

from podscope_analyzers.hlo.text.shape_text import braced
from podscope_analyzers.hlo.text.sharding_text import replica_groups_text
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto
Attributes = Iterator[str]


def _channel(proto: Proto) -> Attributes:
    if proto.channel_id > 0:
        yield f"channel_id={proto.channel_id}"


def collective(proto: Proto) -> Attributes:
    """Which devices take part, and how."""
    opcode = proto.opcode
    yield from _channel(proto)
    yield f"replica_groups={replica_groups_text(proto)}"
    if proto.constrain_layout:
        yield "constrain_layout=true"
    if opcode.startswith("all-gather"):
        yield f"dimensions={braced(proto.dimensions)}"
    if proto.use_global_device_ids and opcode.startswith(
        ("all-gather", "all-reduce", "reduce-scatter")
    ):
        yield "use_global_device_ids=true"
    if opcode == "reduce-scatter" or (opcode == "all-to-all" and proto.dimensions):
        yield f"dimensions={braced(proto.dimensions)}"
    if opcode == "collective-broadcast":
        yield f"has_dynamic_root={str(proto.has_dynamic_root).lower()}"


def permute(proto: Proto) -> Attributes:
    """From which device to which."""
    yield from _channel(proto)
    pairs = ",".join(f"{{{pair.source},{pair.target}}}" for pair in proto.source_target_pairs)
    yield f"source_target_pairs={{{pairs}}}"


def transfer(proto: Proto) -> Attributes:
    """By which channel, and whether from or to the host."""
    yield from _channel(proto)
    if proto.is_host_transfer:
        yield "is_host_transfer=true"
