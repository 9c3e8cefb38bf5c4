"""Devices of collective operations and of sharded values, as text."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final

from podscope_analyzers.hlo.text.device_tiles import DeviceTiles, Iota
from podscope_analyzers.hlo.text.enums import enum_name
from podscope_analyzers.hlo.text.metadata_text import metadata_fields
from podscope_analyzers.hlo.text.shape_text import braced, joined
from podscope_protos.v1 import hlo_pb2

_KIND: Final = hlo_pb2.OpSharding
_WHOLE: Final = {
    _KIND.REPLICATED: "replicated",
    _KIND.MANUAL: "manual",
    _KIND.UNKNOWN: "unknown",
    _KIND.UNREDUCED: "unreduced",
}
# Of all copies together: many devices for each of many arrays fill the memory.
_MAX_REPEATED: Final = 1_000_000
_REDUCTION_OP: Final = "sdy::reduction_op"
_REDUCTION: Final = hlo_pb2.NamedShardingProto.ReductionOpProto


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _iota(devices: Iota) -> str:
    short = devices.merged()
    return f"[{_numbers(short.sizes)}]{_transposed(short.permutation)}"


def _transposed(permutation: Sequence[int]) -> str:
    return f"T({_numbers(permutation)})" if len(permutation) > 1 else ""


def mesh_text(mesh: hlo_pb2.MeshProto) -> str:
    """A mesh of named axes, with the order of its devices unless it is the plain one."""
    axes = ",".join(f"'{axis.name}'={axis.size}" for axis in mesh.axes)
    text = f"mesh[{axes}]"
    if mesh.HasField("iota_transform"):
        order = mesh.iota_transform
        devices = Iota(tuple(order.reshape_dims), tuple(order.transpose_perm))
        return f"{text}, device_ids=({_iota(devices)})"
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
        devices = Iota(tuple(iota.iota_reshape_dims), tuple(iota.iota_transpose_perm))
        return f"{sizes}<={_iota(devices)}"
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


def sharding_text(
    sharding: hlo_pb2.OpSharding, *, leaves: int | None = None, metadata: bool = False
) -> str:
    """How a value is spread over devices, in braces.

    Args:
        sharding: As serialised.
        leaves: Of a tuple how many arrays are in it, which are shown one by one.
        metadata: Whether what the framework noted on it is shown.
    """
    is_tuple = sharding.type == _KIND.TUPLE and not sharding.HasField("named_sharding")
    if leaves is not None and not is_tuple:
        # One sharding of a whole tuple is that of every array in it.
        one = sharding_text(sharding, metadata=metadata)
        wanted = max(leaves, 1)
        fitting = min(wanted, max(_MAX_REPEATED // len(one), 1))
        return "{" + joined(repeat(one, fitting)) + (", ..." if fitting < wanted else "") + "}"
    if is_tuple:
        listed = (sharding_text(one, metadata=metadata) for one in sharding.tuple_shardings)
        return "{" + joined(listed) + "}"
    if sharding.HasField("named_sharding"):
        return "{" + ", ".join(_named_parts(sharding.named_sharding, metadata)) + "}"
    text = "".join(_parts(sharding))
    noted = list(_noted(sharding)) if metadata else []
    if noted:
        text += f" metadata={noted[0] if len(noted) == 1 else '{' + ', '.join(noted) + '}'}"
    return "{" + text + "}"


def _noted(sharding: hlo_pb2.OpSharding) -> Iterator[str]:
    yield from (f"{{{metadata_fields(one)}}}" for one in sharding.metadata)
    is_unreduced = _KIND.UNREDUCED in (sharding.type, *_tiles(sharding).canonical().kinds)
    if is_unreduced and all(one.op_type != _REDUCTION_OP for one in sharding.metadata):
        # XLA notes on every unreduced value how it is to be reduced.
        yield f'{{op_type="{_REDUCTION_OP}" op_name="SUM"}}'


def _named_parts(sharding: hlo_pb2.NamedShardingProto, metadata: bool) -> Iterator[str]:
    mesh = sharding.mesh
    if not mesh.axes and len(mesh.device_ids) == 1:
        yield f"single_device[device_id={mesh.device_ids[0]}]"
    else:
        yield mesh_text(mesh)
        whole = _whole(sharding)
        if whole:
            yield whole
        else:
            yield "[" + ", ".join(_dimension(mesh, one) for one in sharding.dim_shardings) + "]"
            special = (
                ("replicated=", sharding.replicated_axes),
                (f"unreduced={_reduction(sharding)}", sharding.unreduced_axes),
                ("manual=", sharding.manual_axes),
            )
            for name, axes in special:
                if axes:
                    yield f"{name}{{{', '.join(_axis(mesh, axis) for axis in axes)}}}"
    if metadata and sharding.metadata:
        noted = (f"{{{metadata_fields(one)}}}" for one in sharding.metadata)
        yield f"metadata={{{', '.join(noted)}}}"


def _whole(sharding: hlo_pb2.NamedShardingProto) -> str:
    """What every device of the mesh holds alike; empty if the value is split."""
    if sharding.dim_shardings:
        return ""
    if not (sharding.replicated_axes or sharding.unreduced_axes or sharding.manual_axes):
        return "replicated"
    for name, axes in (
        ("manual", sharding.manual_axes),
        (f"unreduced{_reduction(sharding)}", sharding.unreduced_axes),
    ):
        is_every_axis = len({axis.mesh_axis_index for axis in axes}) == len(sharding.mesh.axes)
        if is_every_axis and not any(axis.HasField("sub_axis_info") for axis in axes):
            return name
    return ""


def _dimension(
    mesh: hlo_pb2.MeshProto, dimension: hlo_pb2.NamedShardingProto.DimensionSharding
) -> str:
    axes = [_axis(mesh, axis) for axis in dimension.axes]
    if not dimension.is_closed:
        axes.append("?")
    return "{" + ", ".join(axes) + "}"


def _reduction(sharding: hlo_pb2.NamedShardingProto) -> str:
    """How unreduced values are combined, if it is no sum."""
    operation = sharding.reduction_op
    return enum_name(_REDUCTION, operation).lower() if operation != _REDUCTION.SUM else ""


def _parts(sharding: hlo_pb2.OpSharding) -> Iterator[str]:
    if sharding.type in _WHOLE:
        yield _WHOLE[sharding.type]
    elif sharding.type == _KIND.MAXIMAL:
        yield f"maximal device={_numbers(sharding.tile_assignment_devices)}"
    else:
        yield from _tiled(_tiles(sharding))
    if sharding.is_shard_group:
        kind = "as" if sharding.shard_group_type == _KIND.AS else "like"
        yield f" shard_{kind} {sharding.shard_group_id}"


def _tiles(sharding: hlo_pb2.OpSharding) -> DeviceTiles:
    kinds: tuple[hlo_pb2.OpSharding.Type, ...] = tuple(sharding.last_tile_dims)
    if sharding.replicate_on_last_tile_dim:
        kinds = (_KIND.REPLICATED,)
    devices: Iota | tuple[int, ...] = tuple(sharding.tile_assignment_devices)
    if sharding.iota_reshape_dims:
        devices = Iota(tuple(sharding.iota_reshape_dims), tuple(sharding.iota_transpose_perm))
    return DeviceTiles(tuple(sharding.tile_assignment_dimensions), devices, kinds)


def _tiled(stored: DeviceTiles) -> Iterator[str]:
    if stored.only_kind is not None:
        yield _WHOLE[stored.only_kind]
        return
    tiles = stored.canonical()
    yield f"devices=[{_numbers(tiles.sizes)}]{_devices(tiles.devices)}"
    if tiles.kinds == (_KIND.REPLICATED,):
        yield " last_tile_dim_replicate"
    elif tiles.kinds:
        yield f" last_tile_dims={{{', '.join(_WHOLE.get(one, '') for one in tiles.kinds)}}}"


def _devices(devices: Iota | tuple[int, ...]) -> str:
    return f"<={_iota(devices)}" if isinstance(devices, Iota) else _numbers(devices)
