"""The two databases of one host: its threads' operations and its devices'."""

from dataclasses import replace

from podscope_analyzers.core_details import core_details
from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.duty_cycle import core_activity, sum_over_chips
from podscope_analyzers.op_metrics.gpu import gpu_plane_ops
from podscope_analyzers.op_metrics.host import host_plane_ops
from podscope_analyzers.op_metrics.sparse_core import sparse_core_ops
from podscope_analyzers.op_metrics.tpu import TENSOR_CORE_PLANE, ModuleKey, tensor_core_ops
from podscope_analyzers.plane_views import (
    GPU_PREFIX,
    HOST_PLANE,
    OpPlane,
    OpSpace,
    device_planes,
)


def host_op_database(space: OpSpace) -> OpDatabase:
    """Operations on a host's threads; empty without a host plane."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    return host_plane_ops(plane) if plane is not None else OpDatabase.empty()


def device_op_database(space: OpSpace, programs: Programs) -> OpDatabase:
    """Operations on a host's devices, summed over them; empty without devices."""
    planes = device_planes(space)
    if planes and planes[0].name.startswith(GPU_PREFIX):
        return OpDatabase.combine(gpu_plane_ops(plane, programs) for plane in planes)
    return _tpu_database(space, planes, programs)


def _tpu_database(space: OpSpace, planes: list[OpPlane], programs: Programs) -> OpDatabase:
    tensor_cores = [plane for plane in planes if TENSOR_CORE_PLANE.fullmatch(plane.name)]
    offloaded: dict[ModuleKey, OpDatabase] = {}
    for plane in planes:
        if plane not in tensor_cores:
            for key, database in sparse_core_ops(plane).items():
                offloaded.setdefault(key, database)
    combined = OpDatabase.combine(
        tensor_core_ops(plane, programs, offloaded) for plane in tensor_cores
    )
    activities = [core_activity(plane) for plane in planes]
    details = core_details(space)
    chips = [details[plane.id].local_chip_id if plane.id in details else None for plane in planes]
    busy, idle = sum_over_chips(zip(chips, (a.all for a in activities), strict=True))
    sure, unsure = sum_over_chips(zip(chips, (a.high_confidence for a in activities), strict=True))
    return replace(
        combined,
        busy_time_ps=busy,
        idle_time_ps=idle,
        busy_high_confidence_ps=sure,
        idle_high_confidence_ps=unsure,
    )
