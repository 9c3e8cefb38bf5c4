"""Devices of collective operations and of sharded values, as text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
# XLA notes on every unreduced value how it is to be reduced.
_UNREDUCED: Final = '{op_type="sdy::reduction_op" op_name="SUM"}'
_REDUCTION: Final = hlo_pb2.NamedShardingProto.ReductionOpProto


def _numbers(values: Iterable[int]) -> str:
    return ",".join(map(str, values))


def _iota(sizes: Sequence[int], permutation: Sequence[int]) -> str:
    """An iota, its neighbouring dimensions made one wherever that changes nothing."""
    wide = [axis for axis in permutation if 0 <= axis < len(sizes) and sizes[axis] != 1]
    if sorted(permutation) != list(range(len(sizes))) or not wide:
        return f"[{_numbers(sizes)}]{_transposed(permutation)}"
    kept = sorted(wide)
    before = {axis: kept[at - 1] if at else None for at, axis in enumerate(kept)}
    runs: list[list[int]] = []
    for axis in wide:
        if runs and runs[-1][-1] == before[axis]:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    stored = sorted(runs)
    merged = []
    for run in stored:
        size = 1
        for axis in run:
            size *= sizes[axis]
        merged.append(size)
    return f"[{_numbers(merged)}]{_transposed([stored.index(run) for run in runs])}"


def _transposed(permutation: Sequence[int]) -> str:
    return f"T({_numbers(permutation)})" if len(permutation) > 1 else ""


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


def sharding_text(sharding: hlo_pb2.OpSharding, *, metadata: bool = False) -> str:
    """How a value is spread over devices, in braces.

    Args:
        sharding: As serialised.
        metadata: Whether what the framework noted on it is shown.
    """
    if sharding.HasField("named_sharding"):
        return "{" + ", ".join(_named_parts(sharding.named_sharding, metadata)) + "}"
    if sharding.type == _KIND.TUPLE:
        inner = (sharding_text(one, metadata=metadata) for one in sharding.tuple_shardings)
        return "{" + joined(inner) + "}"
    noted = [f"{{{metadata_fields(one)}}}" for one in sharding.metadata] if metadata else []
    if metadata and not noted and _KIND.UNREDUCED in (sharding.type, *sharding.last_tile_dims):
        noted = [_UNREDUCED]
    text = "".join(_parts(sharding))
    if noted:
        text += f" metadata={noted[0] if len(noted) == 1 else '{' + ', '.join(noted) + '}'}"
    return "{" + text + "}"


def _named_parts(sharding: hlo_pb2.NamedShardingProto, metadata: bool) -> Iterator[str]:
    mesh = sharding.mesh
    if not mesh.axes and len(mesh.device_ids) == 1:
        yield f"single_device[device_id={mesh.device_ids[0]}]"
    else:
        special = (
            ("replicated=", sharding.replicated_axes),
            (f"unreduced={_reduction(sharding)}", sharding.unreduced_axes),
            ("manual=", sharding.manual_axes),
        )
        yield mesh_text(mesh)
        if sharding.dim_shardings or any(axes for _, axes in special):
            yield "[" + ", ".join(_dimension(mesh, one) for one in sharding.dim_shardings) + "]"
        else:
            yield "replicated"
        for name, axes in special:
            if axes:
                yield f"{name}{{{', '.join(_axis(mesh, axis) for axis in axes)}}}"
    if metadata and sharding.metadata:
        noted = (f"{{{metadata_fields(one)}}}" for one in sharding.metadata)
        yield f"metadata={{{', '.join(noted)}}}"


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
    return _REDUCTION.Name(operation).lower() if operation != _REDUCTION.SUM else ""


def _parts(sharding: hlo_pb2.OpSharding) -> Iterator[str]:
    if sharding.type in _WHOLE:
        yield _WHOLE[sharding.type]
    elif list(sharding.tile_assignment_devices) == [0] and sharding.type == _KIND.OTHER:
        yield "replicated"
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
