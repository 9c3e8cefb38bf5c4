"""The host threads of a TPU host: Python steps, the runtime's queues, infeed, memory."""

from podscope_agent.simulator.encoding import PlaneWriter
from podscope_agent.simulator.input_pipeline import InputPipeline
from podscope_agent.simulator.memory import MemoryEvents
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.threads import US, Threads, record_python_calls
from podscope_agent.simulator.tpu import run_id

_PJRT, _RUNTIME = 5, 7
"""Context types that link a producer on one thread to a consumer on another."""
_LEAD_PS = 300 * US
"""How far the host runs ahead of the device."""
_ENQUEUE_PS = 15 * US


def record_tpu_host(
    plane: PlaneWriter, pod: Pod, host: int, window: Window, *, python_calls: bool = False
) -> None:
    """Write the host events of a capture."""
    threads = Threads(plane, pod.seed)
    python = threads.line("python")
    infeed = threads.line("tf_infeed")
    pipeline = InputPipeline(plane, threads.line("tf_data_iterator_resource"), pod.input_stage)
    cores = range(pod.kind.cores_per_host)
    megascale = threads.line("megascale") if pod.slices > 1 else None
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
        python.add(plane.event_head("TfrtTpuLoadedExecutable::Execute"), ahead + 30 * US, 125 * US)
        for core in cores:
            linked = (step * len(cores) + core) & 0x7FFFFFFF
            python.add(
                plane.event_head("TfrtTpuLoadedExecutable::ExecuteHelperOnSingleDevice"),
                ahead + (32 + 28 * core) * US, 25 * US,
                plane.event_stats(_pt=_PJRT, _p=1 << 32 | linked),
            )  # fmt: skip
            _record_launch(plane, threads, core, step, ahead, linked, memory[core])
            _record_completion(plane, threads, core, step, start + timing.end_ps, memory[core])
        wait_ps = timing.period_ps - 20 * US - 180 * US
        python.add(plane.event_head("CommonPjRtBuffer::Await"), ahead + 170 * US, wait_ps)
        if megascale is not None:
            begin, end = timing.collective_end_ps[-1], timing.update_end_ps
            megascale.add(plane.event_head("MegaScale: exchange"), start + begin, end - begin)
        waited = timing.input_ps[host]
        pipeline.produce(step, start - 200 * US, 200 * US + waited - _ENQUEUE_PS - US)
        pipeline.get_next(infeed, step, start, waited - _ENQUEUE_PS - US)
        infeed.add(plane.event_head("infeed_queue/enqueue:InfeedEnqueueTuple"),
                   start + waited - _ENQUEUE_PS, _ENQUEUE_PS)  # fmt: skip
    threads.finish()


def _record_launch(
    plane: PlaneWriter, threads: Threads, core: int, step: int, ahead_ps: int, linked: int,
    memory: MemoryEvents,
) -> None:  # fmt: skip
    execute = threads.line("py_xla_execute", core)
    execute.add(
        plane.event_head("Scheduled TfrtTpuLoadedExecutable::Execute"),
        ahead_ps + 65 * US, 130 * US, plane.event_stats(_ct=_PJRT, _c=1 << 32 | linked),
    )  # fmt: skip
    prepare = plane.event_head("TfrtTpuLoadedExecutable::ExecutePrepare")
    execute.add(prepare, ahead_ps + 67 * US, 60 * US)
    memory.allocate(execute, ahead_ps + 70 * US)
    execute.add(plane.event_head("tpu::System::Execute"), ahead_ps + 130 * US, 50 * US,
                plane.event_stats(_pt=_RUNTIME, _p=2 << 32 | linked))  # fmt: skip
    queue = threads.line("tfrt-non-blocking-queue", core)
    queue.add(plane.event_head("tpu::System::Execute=>IssueSequencedEvent"),
              ahead_ps + 200 * US, 48 * US,
              plane.event_stats(_ct=_RUNTIME, _c=2 << 32 | linked))  # fmt: skip
    queue.add(plane.event_head("DoEnqueueProgram"), ahead_ps + 210 * US, 18 * US,
              _launch_stats(plane, core, step))  # fmt: skip


def _record_completion(
    plane: PlaneWriter, threads: Threads, core: int, step: int, end_ps: int, memory: MemoryEvents
) -> None:
    line = threads.line("EventFDAsyncWorker", core)
    line.add(plane.event_head("CompleteCallbacks"), end_ps + 2 * US, 20 * US,
             _launch_stats(plane, core, step))  # fmt: skip
    line.add(plane.event_head("tpu::System::Execute=>Done"), end_ps + 3 * US, 15 * US)
    memory.free(line, end_ps + 5 * US)


def _launch_stats(plane: PlaneWriter, core: int, step: int) -> bytes:
    return plane.event_stats(run_id=run_id(step), queue_id=0, device_ordinal=core, core_type=0)
