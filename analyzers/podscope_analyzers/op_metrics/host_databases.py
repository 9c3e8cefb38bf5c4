"""The two databases of one host: its threads' operations and its devices'."""

from collections.abc import Callable
from dataclasses import replace

from podscope_analyzers.core_details import core_details
from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.op_metrics.duty_cycle import core_activity, sum_over_chips
from podscope_analyzers.op_metrics.host import host_plane_ops
from podscope_analyzers.op_metrics.tpu.lines import ModuleKey
from podscope_analyzers.op_metrics.tpu.sparse_core import sparse_core_ops
from podscope_analyzers.op_metrics.tpu.tensor_core import tensor_core_ops
from podscope_analyzers.plane_views import (
    OpPlane,
    OpSpace,
    device_planes,
)
from podscope_analyzers.planes import GPU_PREFIX, HOST_PLANE, is_tensor_core
from podscope_analyzers.step_times import StepTimes


def host_op_database(space: OpSpace) -> OpDatabase:
    """Operations on a host's threads; empty without a host plane."""
    plane = next((plane for plane in space.planes if plane.name == HOST_PLANE), None)
    return host_plane_ops(plane) if plane is not None else OpDatabase.empty()


def _nothing_more(plane: OpPlane) -> StepTimes:
    """What is done with a plane besides when nothing is asked for."""
    return StepTimes()


def device_op_database(
    space: OpSpace,
    programs: Programs,
    also: Callable[[OpPlane], StepTimes] = _nothing_more,
    *,
    with_children: bool = True,
) -> OpDatabase:
    """Operations on a host's devices, summed over them; empty without devices.

    Args:
        space: One host's.
        programs: Describe the operations.
        also: Called with every plane while its events are decoded: a host's devices may have
            more events than fit into memory together. Of a TensorCore it gives self times by
            step, of the rows of the plane's event metadata.
        with_children: Whether the database has what a TPU's operations are made of.
    """
    planes = device_planes(space)
    if planes and planes[0].name.startswith(GPU_PREFIX):
        # Costs of GPUs are much code, which hosts with TPUs do without.
        from podscope_analyzers.op_metrics.gpu import gpu_plane_ops

        parts = []
        for plane in planes:
            parts.append(gpu_plane_ops(plane, programs))
            also(plane)
        return _bounded(OpDatabase.combine(parts))
    return _tpu_database(space, planes, programs, also, with_children=with_children)


def _tpu_database(
    space: OpSpace,
    planes: list[OpPlane],
    programs: Programs,
    also: Callable[[OpPlane], StepTimes],
    *,
    with_children: bool,
) -> OpDatabase:
    tensor_cores = [plane for plane in planes if is_tensor_core(plane.name)]
    offloaded: dict[ModuleKey, OpDatabase] = {}
    activity = {}
    for plane in planes:
        if plane not in tensor_cores:
            for key, database in sparse_core_ops(plane).items():
                offloaded.setdefault(key, database)
            activity[id(plane)] = core_activity(plane)
            also(plane)
    parts = []
    for plane in tensor_cores:
        ops, op_of_row = tensor_core_ops(plane, programs, offloaded, with_children=with_children)
        activity[id(plane)] = core_activity(plane)
        by_step = StepTimes.combine([also(plane)], [op_of_row])
        parts.append(_bounded(replace(ops, step_times=by_step)))
    combined = _bounded(OpDatabase.combine(parts))
    activities = [activity[id(plane)] for plane in planes]
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


def _bounded(database: OpDatabase) -> OpDatabase:
    return replace(database, step_times=database.step_times.bounded())
