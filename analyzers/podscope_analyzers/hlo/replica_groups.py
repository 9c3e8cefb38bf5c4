"""Groups of devices that take part in a collective operation together."""

from math import prod

from podscope_protos.v1 import hlo_pb2


def group_size(proto: hlo_pb2.HloInstructionProto) -> int:
    """Devices of the largest group; 1 when no groups are named."""
    which = proto.WhichOneof("replica_group_list")
    if which == "iota_collective_device_list":
        return max(1, proto.iota_collective_device_list.num_devices_per_group)
    if which == "mesh_axes_replica_group_list":
        groups = proto.mesh_axes_replica_group_list
        return max(
            1,
            prod(
                axis.sub_axis_info.size
                if axis.HasField("sub_axis_info")
                else groups.mesh.axes[axis.mesh_axis_index].size
                for axis in groups.axes
            ),
        )
    listed = proto.collective_device_list.replica_groups or proto.replica_groups
    return max((len(group.replica_ids) for group in listed), default=1) or 1


def has_groups(proto: hlo_pb2.HloInstructionProto) -> bool:
    """Whether the groups are named."""
    which = proto.WhichOneof("replica_group_list")
    if which in ("iota_collective_device_list", "mesh_axes_replica_group_list"):
        return True
    return bool(proto.collective_device_list.replica_groups or proto.replica_groups)
