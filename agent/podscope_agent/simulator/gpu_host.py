"""The host threads of a GPU host: Python steps, kernel launches, input, memory."""

from podscope_agent.simulator.encoding import PlaneWriter, event_stat, varint, varint_field
from podscope_agent.simulator.gpu import activities, correlation_id
from podscope_agent.simulator.input_pipeline import InputPipeline
from podscope_agent.simulator.memory import MemoryEvents
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.threads import US, Threads, record_python_calls

_PJRT = 5
_LEAD_PS = 300 * US
"""How far the host runs ahead of the device."""
_LAUNCH_PS = US
_LAUNCH_PERIOD_PS = US + US // 2


def record_gpu_host(
    plane: PlaneWriter, pod: Pod, host: int, window: Window, *, python_calls: bool = False
) -> None:
    """Write the host events of a capture."""
    threads = Threads(plane, pod.seed)
    python = threads.line("python")
    loader = threads.line("tf_data_private_threadpool")
    pipeline = InputPipeline(plane, threads.line("tf_data_iterator_resource"), pod.input_stage)
    cores = range(pod.kind.cores_per_host)
    memory = [MemoryEvents(plane, pod, core) for core in cores]
    to_profile_ps = (pod.started_at_ns - window.start_ns) * 1000
    for step in window.steps:
        timing = pod.timeline.timing(step)
        start = to_profile_ps + pod.timeline.start_ps(step)
        ahead = start - _LEAD_PS
        python.add(plane.event_head("train"), ahead, timing.period_ps - 20 * US,
                   plane.event_stats(_r=1, step_num=step))  # fmt: skip
        if python_calls:
            record_python_calls(plane, python, ahead + 2 * US)
        python.add(plane.event_head("PjitFunction(train_step)"), ahead + 10 * US, 150 * US)
        python.add(plane.event_head("ParseArguments"), ahead + 15 * US, 5 * US)
        for core in cores:
            linked = (step * len(cores) + core) & 0x7FFFFFFF
            python.add(
                plane.event_head("PjRtStreamExecutorLoadedExecutable::Execute"),
                ahead + (22 + 16 * core) * US, 14 * US,
                plane.event_stats(_pt=_PJRT, _p=1 << 32 | linked),
            )  # fmt: skip
            _record_launches(plane, threads, pod, host, core, step, ahead, linked, memory[core])
            worker = threads.line("tf_pjrt_thread_pool", core)
            callback = plane.event_head("ThenExecuteCallback")
            worker.add(callback, start + timing.end_ps + 2 * US, 20 * US)
            memory[core].free(worker, start + timing.end_ps + 4 * US)
        wait_ps = timing.period_ps - 20 * US - 180 * US
        python.add(plane.event_head("CommonPjRtBuffer::Await"), ahead + 170 * US, wait_ps)
        waited = timing.input_ps[host]
        pipeline.produce(step, start - 200 * US, 200 * US + waited - 8 * US)
        pipeline.get_next(loader, step, start, waited - 7 * US)
    threads.finish()


def _record_launches(
    plane: PlaneWriter, threads: Threads, pod: Pod, host: int, core: int, step: int,
    ahead_ps: int, linked: int, memory: MemoryEvents,
) -> None:  # fmt: skip
    execute = threads.line("py_xla_execute", core)
    started = list(activities(pod, host, core, step))
    begin = ahead_ps + 160 * US
    execute.add(
        plane.event_head("PjRtStreamExecutorLoadedExecutable::EnqueueExecution"),
        begin, len(started) * _LAUNCH_PERIOD_PS + 10 * US,
        plane.event_stats(_ct=_PJRT, _c=1 << 32 | linked),
    )  # fmt: skip
    memory.allocate(execute, begin + US)
    on_device = plane.event_stats(device_id=core)
    launched = varint_field(1, plane.stat_id("correlation_id")) + b"\x20"
    for index, activity in enumerate(started):
        copy = activity.op is None
        name = f"cuMemcpy{'HtoD' if activity.name == 'MemcpyH2D' else 'DtoH'}Async_v2"
        number = correlation_id(pod.program, step, pod.kind.cores_per_host, core, index)
        execute.add(
            plane.event_head(name if copy else "cuLaunchKernelEx"),
            begin + 6 * US + index * _LAUNCH_PERIOD_PS, _LAUNCH_PS,
            on_device + event_stat(launched + varint(number)),
        )  # fmt: skip
