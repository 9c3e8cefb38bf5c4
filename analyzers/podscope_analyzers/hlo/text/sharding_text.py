"""Devices of collective operations and of sharded values, as text."""

from collections.abc import Iterable, Iterator
from typing import Final

from podscope_analyzers.hlo.text.shape_text import braced, joined
from podscope_protos.v1 import hlo_pb2

_KIND: Final = hlo_pb2.OpSharding
_WHOLE: Final = {
    _KIND.REPLICATED: "replicated",
    _KIND.MANUAL: "manual",
    _KIND.UNKNOWN: "unknown",
    _KIND.UNREDUCED: "unreduced",
}


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _iota(sizes: Iterable[int], permutation: Iterable[int]) -> str:
    order = list(permutation)
    transposed = f"T({_numbers(order)})" if len(order) > 1 else ""
    return f"[{_numbers(sizes)}]{transposed}"


def mesh_text(mesh: hlo_pb2.MeshProto) -> str:
    """A mesh of named axes, with the order of its devices unless it is the plain one."""
    axes = ",".join(f"'{axis.name}'={axis.size}" for axis in mesh.axes)
    text = f"mesh[{axes}]"
    if mesh.HasField("iota_transform"):
        order = mesh.iota_transform
        return f"{text}, device_ids=({_iota(order.reshape_dims, order.transpose_perm)})"
    return f"{text}, device_ids=({_numbers(mesh.device_ids)})" if mesh.device_ids else text


def _axis(mesh: hlo_pb2.MeshProto, axis: hlo_pb2.AxisRefProto) -> str:
    at = axis.mesh_axis_index
    name = mesh.axes[at].name if 0 <= at < len(mesh.axes) else "?"
    part = axis.sub_axis_info
    return f"'{name}'" + (
        f":({part.pre_size}){part.size}" if axis.HasField("sub_axis_info") else ""
    )


def replica_groups_text(proto: hlo_pb2.HloInstructionProto) -> str:
    """Groups of devices: listed, as an iota, or by axes of a mesh."""
    which = proto.WhichOneof("replica_group_list")
    if which == "iota_collective_device_list":
        iota = proto.iota_collective_device_list
        sizes = f"[{iota.num_replica_groups},{iota.num_devices_per_group}]"
        return f"{sizes}<={_iota(iota.iota_reshape_dims, iota.iota_transpose_perm)}"
    if which == "mesh_axes_replica_group_list":
        groups = proto.mesh_axes_replica_group_list
        axes = ",".join(_axis(groups.mesh, axis) for axis in groups.axes)
        return f"{mesh_text(groups.mesh)} {{{axes}}}"
    listed = (
        proto.collective_device_list.replica_groups
        if which == "collective_device_list"
        else proto.replica_groups
    )
    return "{" + ",".join(braced(group.replica_ids) for group in listed) + "}"


def sharding_text(sharding: hlo_pb2.OpSharding) -> str:
    """How a value is spread over devices, in braces."""
    if sharding.type == _KIND.TUPLE:
        return "{" + joined(map(sharding_text, sharding.tuple_shardings)) + "}"
    return "{" + "".join(_parts(sharding)) + "}"


def _parts(sharding: hlo_pb2.OpSharding) -> Iterator[str]:
    if sharding.type in _WHOLE:
        yield _WHOLE[sharding.type]
    elif sharding.type == _KIND.MAXIMAL:
        yield f"maximal device={_numbers(sharding.tile_assignment_devices)}"
    else:
        yield f"devices=[{_numbers(sharding.tile_assignment_dimensions)}]"
        if sharding.iota_reshape_dims:
            yield f"<={_iota(sharding.iota_reshape_dims, sharding.iota_transpose_perm)}"
        else:
            yield _numbers(sharding.tile_assignment_devices)
        last = [_WHOLE.get(kind, "") for kind in sharding.last_tile_dims]
        if sharding.replicate_on_last_tile_dim or last == ["replicated"]:
            yield " last_tile_dim_replicate"
        elif last:
            yield f" last_tile_dims={{{', '.join(last)}}}"
    if sharding.is_shard_group:
        kind = "as" if sharding.shard_group_type == _KIND.AS else "like"
        yield f" shard_{kind} {sharding.shard_group_id}"
