"""Puts the planes of one host together."""

from dataclasses import dataclass

from podscope_agent.simulator.counters import add_counters
from podscope_agent.simulator.cpu_host import record_cpu_host
from podscope_agent.simulator.encoding import PlaneWriter, xspace_bytes
from podscope_agent.simulator.filler import filled
from podscope_agent.simulator.gpu import gpu_plane
from podscope_agent.simulator.gpu_host import record_gpu_host
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.tpu import tensor_core_plane
from podscope_agent.simulator.tpu_host import record_tpu_host


@dataclass(frozen=True)
class TraceOptions:
    """What a capture was asked to record.

    Attributes:
        host_tracer_level: 0: no host events.
        device_tracer_level: 0: no device planes.
        python_tracer_level: 0: no Python functions.
        enable_hlo_proto: Attach the program's HLO.
        encoded: The request's ProfileOptions as they came, kept in the trace.
    """

    host_tracer_level: int = 2
    device_tracer_level: int = 1
    python_tracer_level: int = 0
    enable_hlo_proto: bool = True
    encoded: bytes = b""


@dataclass(frozen=True)
class HostTrace:
    """What one host recorded.

    Attributes:
        xspace: The serialised XSpace.
        event_count: Events of all its lines.
        events_by_plane: Plane name -> events, for planes that have any.
    """

    xspace: bytes
    event_count: int
    events_by_plane: dict[str, int]


def build_xspace(
    pod: Pod, host: int = 0, window: Window | None = None, options: TraceOptions | None = None
) -> bytes:
    """The serialised XSpace of one host; see `record_host`."""
    return record_host(pod, host, window, options).xspace


def record_host(
    pod: Pod, host: int = 0, window: Window | None = None, options: TraceOptions | None = None
) -> HostTrace:
    """Trace one host of the pod.

    Args:
        pod: The pod.
        host: Which of its hosts.
        window: What to cover; without it the pod's first steps.
        options: What to record.

    Returns:
        The trace; the same bytes for the same arguments.
    """
    window = window if window is not None else pod.steps_window()
    options = options if options is not None else TraceOptions()
    planes = []
    if options.device_tracer_level and pod.kind.family != "cpu":
        make = tensor_core_plane if pod.kind.family == "tpu" else gpu_plane
        planes = [make(pod, host, core, window) for core in range(pod.kind.cores_per_host)]
        for core, plane in enumerate(planes if pod.counters else ()):
            add_counters(plane, pod, core, window)
    planes.append(_metadata_plane(pod, with_hlo=options.enable_hlo_proto))
    planes.append(_host_plane(pod, host, window, options))
    planes.append(_environment_plane(window, pod.clock_offset_ns(host), options))
    counts = {plane.name: plane.event_count for plane in planes if plane.event_count}
    xspace = xspace_bytes(planes, pod.hostname(host))
    if pod.host_bytes is not None and counts:
        xspace = filled(xspace, pod.host_bytes)
    return HostTrace(xspace, sum(counts.values()), counts)


def _metadata_plane(pod: Pod, *, with_hlo: bool) -> PlaneWriter:
    plane = PlaneWriter("/host:metadata")
    if with_hlo:
        program = pod.program
        stats = [plane.bytes_stat("Hlo Proto", pod.hlo)]
        if pod.kind.family != "tpu":
            stats.append(plane.int_stat("program_id", program.program_id))
        name = program.module_name
        plane.event_head(name, name, stats, metadata_id=program.program_id)
    return plane


def _host_plane(pod: Pod, host: int, window: Window, options: TraceOptions) -> PlaneWriter:
    plane = PlaneWriter("/host:CPU")
    if options.host_tracer_level:
        record = {"tpu": record_tpu_host, "gpu": record_gpu_host, "cpu": record_cpu_host}
        python_calls = options.python_tracer_level > 0
        record[pod.kind.family](plane, pod, host, window, python_calls=python_calls)
    if pod.kind.family == "tpu":
        plane.add_stat(
            plane.double_stat("matrix_unit_utilization_percent", mxu_utilization_percent(pod))
        )
    return plane


def mxu_utilization_percent(pod: Pod) -> float:
    """Share of the matrix unit's peak that the matmuls reach, averaged over the pod's steps."""
    program = pod.program
    flops = sum(
        op.flops * program.executions[op.name]
        for op in program.ops
        if op.kind in {"matmul", "matmul_add"}
    )
    seconds = sum(step.period_ps for step in pod.timeline.steps) / len(pod.timeline.steps) / 1e12
    return 100 * flops / (seconds * pod.kind.peak_tflops * 1e12)


def _environment_plane(window: Window, clock_offset_ns: int, options: TraceOptions) -> PlaneWriter:
    plane = PlaneWriter("Task Environment")
    # All other times are relative to the start, so that the clock shows here alone.
    start_ns, stop_ns = window.start_ns + clock_offset_ns, window.stop_ns + clock_offset_ns
    plane.add_stat(plane.uint_stat("profile_start_time", start_ns))
    plane.add_stat(plane.uint_stat("profile_stop_time", stop_ns))
    if options.encoded:
        plane.add_stat(plane.bytes_stat("profile_options", options.encoded))
    return plane
