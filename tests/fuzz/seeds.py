"""The valid files that mutation starts from: small ones, of every kind of host.

A file's cost is that of what is computed for it, whatever its size; in a short one a mutation also
more often hits what matters.
"""

import gzip
from typing import Final

from podscope_agent.simulator import Pod, build_xspace
from podscope_protos.v1 import xplane_pb2

_EVENTS: Final = 16
_LINES: Final = 5
_FEW_EVENTS: Final = 5
_FEW_LINES: Final = 3
_SHORT_TO_WHOLE: Final = 3
_DEVICES: Final = ("tpu-v5e", "gpu-h100", "cpu")
_TF_NAMES: Final = (
    "TraceContext", "SessionRun", "ExecutorState::Process", "IteratorGetNextOp::DoCompute",
    "Iterator::Prefetch::Generator", "Iterator::Map::FromTensor", "PrefetchProduce",
    "PrefetchConsume", "ThreadpoolListener::StartRegion", "ThreadpoolListener::StopRegion",
    "ThreadpoolListener::Record", "EagerExecute", "BatchingSessionRun", "ProcessBatch",
    "MemoryAllocation", "MemoryDeallocation", "MatMul:MatMul", "train 1", "DoEnqueueProgram",
    "InfeedEnqueue:InfeedEnqueueTuple", "ModelServerRequest_x", "ReadHbm", "EnqueueRequestLocked",
)  # fmt: skip
_TF_STATS: Final = (
    "_r", "_pt", "_p", "_ct", "_c", "_pid", "_a", "id", "iter_num", "step_num", "is_func",
    "correlation_id", "request_id", "queue_addr", "device_ordinal", "queue_id", "run_id",
    "core_type", "parent_id", "element_id", "tf_op", "hlo_op", "program_id", "graph_type",
    "model_id", "group_id", "is_eager", "step_name", "_ipl_stage_id", "_ipl_stage_name",
    "_ipl_stage_cat", "bytes_allocated", "allocation_bytes", "peak_bytes_in_use", "addr",
    "requested_bytes", "fragmentation", "allocator_name", "bytes_reserved", "data_type",
    "tensor_shapes", "region_type", "kernel_details", "memcpy_details", "shape", "equation",
)  # fmt: skip


def _simulated(device: str) -> bytes:
    """A simulated host, its lines and programs cut to a few kilobytes."""
    pod = Pod(device=device, steps=3, events=60)
    space = xplane_pb2.XSpace.FromString(build_xspace(pod, 0, pod.steps_window()))
    for plane in space.planes:
        for line in plane.lines:
            del line.events[_EVENTS:]
        del plane.lines[_LINES:]
        if plane.name == "/host:metadata":
            largest_first = sorted(
                plane.event_metadata, key=lambda key: -plane.event_metadata[key].ByteSize()
            )
            for key in largest_first[:-1]:
                del plane.event_metadata[key]
    devices = [plane for plane in space.planes if plane.name.startswith("/device:")]
    for plane in devices[1:]:
        space.planes.remove(plane)
    return space.SerializeToString()


def _tensorflow() -> bytes:
    """A host's threads with every name and stat that an analysis looks for."""
    space = xplane_pb2.XSpace(hostnames=["host"], errors=["dropped"])
    plane = space.planes.add(name="/host:CPU", id=1)
    for key, name in enumerate(_TF_NAMES, start=1):
        plane.event_metadata[key].id, plane.event_metadata[key].name = key, name
    for key, name in enumerate(_TF_STATS, start=1):
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    plane.stats.add(metadata_id=1, gzip_value=gzip.compress(b"packed" * 9, mtime=0))
    for thread in range(3):
        line = plane.lines.add(id=thread - 1, name=f"thread {thread}", timestamp_ns=5)
        for at in range(60):
            row = 1 + (7 * at + thread) % len(_TF_NAMES)
            event = line.events.add(
                metadata_id=row, offset_ps=900 * at, duration_ps=2000 * (row % 3)
            )
            for nth in range(5):
                stat = event.stats.add(metadata_id=1 + (11 * at + 5 * nth) % len(_TF_STATS))
                match (at + nth) % 6:
                    case 0:
                        stat.str_value = f"a/b:{'MatMul' if at % 2 else 'Dot'}"
                    case 1:
                        stat.uint64_value = at % 4
                    case 2:
                        stat.ref_value = 1 + at % len(_TF_STATS)
                    case 3:
                        stat.double_value = at / 2
                    case 4:
                        stat.gzip_value = gzip.compress(f"text {at % 3}".encode(), mtime=0)
                    case _:
                        stat.int64_value = at % 4
    return space.SerializeToString()


def _shortened(raw: bytes) -> bytes:
    """A few events of a few lines, what these are called, and no program."""
    space = xplane_pb2.XSpace.FromString(raw)
    for plane in [plane for plane in space.planes if plane.name == "/host:metadata"]:
        space.planes.remove(plane)
    for plane in space.planes:
        del plane.lines[_FEW_LINES:]
        for line in plane.lines:
            del line.events[_FEW_EVENTS:]
        used = {event.metadata_id for line in plane.lines for event in line.events}
        for key in set(plane.event_metadata) - used:
            del plane.event_metadata[key]
    return space.SerializeToString()


def make_seeds() -> list[bytes]:
    """The valid files, of some ten kilobytes; most often the short ones, of a few."""
    whole = [_tensorflow(), *(_simulated(device) for device in _DEVICES)]
    return [*whole, *map(_shortened, whole * _SHORT_TO_WHOLE)]
