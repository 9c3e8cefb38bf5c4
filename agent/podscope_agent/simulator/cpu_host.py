"""The host threads of a CPU-only host: steps, the XLA executor's thunks, input, memory."""

from podscope_agent.simulator.encoding import PlaneWriter
from podscope_agent.simulator.input_pipeline import InputPipeline
from podscope_agent.simulator.memory import MemoryEvents
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.program import MODULE, Op
from podscope_agent.simulator.slots import after_compute, compute_bounds
from podscope_agent.simulator.threads import US, Threads, record_python_calls
from podscope_agent.simulator.tpu import run_id

_PJRT = 5
_THREADPOOL = 15
_END_MARK_PS = 300_000
_THUNK_SOURCE = "external/xla/xla/backends/cpu/runtime/thunk.cc"


def record_cpu_host(
    plane: PlaneWriter, pod: Pod, host: int, window: Window, *, python_calls: bool = False
) -> None:
    """Write the host events of a capture."""
    _Recorder(plane, pod, host, window, python_calls=python_calls).record()


class _Recorder:
    def __init__(
        self, plane: PlaneWriter, pod: Pod, host: int, window: Window, *, python_calls: bool
    ) -> None:
        self._python_calls = python_calls
        self._plane, self._pod, self._host, self._window = plane, pod, host, window
        self._threads = Threads(plane, pod.seed)
        self._python = self._threads.line("python")
        self._executor = self._threads.line("tf_XLAPjRtCpuClient")
        self._eigen = self._threads.line("tf_XLAEigen")
        producer = self._threads.line("tf_data_iterator_resource")
        self._pipeline = InputPipeline(plane, producer, pod.input_stage)
        self._memory = MemoryEvents(plane, pod, 0)
        self._heads = {op.name: plane.event_head(op.name) for op in pod.program.ops}
        self._end_heads = {op.name: plane.event_head(f"end: {op.name}") for op in pod.program.ops}

    def record(self) -> None:
        to_profile_ps = (self._pod.started_at_ns - self._window.start_ns) * 1000
        for step in self._window.steps:
            self._record_step(step, to_profile_ps + self._pod.timeline.start_ps(step))
        self._threads.finish()

    def _record_step(self, step: int, start_ps: int) -> None:
        plane, timing = self._plane, self._pod.timeline.timing(step)
        waited = timing.input_ps[self._host]
        python = self._python
        python.add(plane.event_head("train"), start_ps, timing.end_ps,
                   plane.event_stats(_r=1, step_num=step))  # fmt: skip
        self._pipeline.produce(step, start_ps - 200 * US, 200 * US + waited - US)
        self._pipeline.get_next(python, step, start_ps, waited)
        launch = start_ps + timing.launch_ps(self._host)
        length = timing.update_end_ps - timing.launch_ps(self._host)
        python.add(plane.event_head("PjitFunction(train_step)"), launch, length)
        python.add(plane.event_head("ParseArguments"), launch + US, 3 * US)
        if self._python_calls:
            record_python_calls(plane, python, launch + 4 * US)
        python.add(
            plane.event_head("CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice"),
            launch + 10 * US, 40 * US, plane.event_stats(_pt=_PJRT, _p=step & 0x7FFFFFFF),
        )  # fmt: skip
        self._memory.allocate(python, launch + 15 * US)
        wait_ps = length - 70 * US
        python.add(plane.event_head("CommonPjRtBuffer::Await"), launch + 60 * US, wait_ps)
        self._executor.add(plane.event_head("ThunkExecutor::Execute"), launch, length,
                           plane.event_stats(_ct=_PJRT, _c=step & 0x7FFFFFFF))  # fmt: skip
        self._record_thunks(step, start_ps)
        self._memory.free(python, start_ps + timing.update_end_ps - 8 * US)
        for i in range(4):
            region = launch + (100 + 200 * i) * US
            consumer = plane.event_stats(_ct=_THREADPOOL, _c=step * 4 + i)
            self._eigen.add(
                plane.event_head("ThreadpoolListener::StartRegion"), region, 0, consumer
            )
            stop = plane.event_head("ThreadpoolListener::StopRegion")
            self._eigen.add(stop, region + 150 * US, 0)

    def _record_thunks(self, step: int, start_ps: int) -> None:
        pod, program = self._pod, self._pod.program
        timing = pod.timeline.timing(step)
        launch = timing.launch_ps(self._host)
        compute = timing.compute_ps[self._host][0]
        variant = step % pod.timeline.period
        bounds = compute_bounds(program, pod.seed, variant, compute)
        first, last = program.loop_slots
        stats = {op.name: self._thunk_stats(op, step) for op in program.ops}
        begin = start_ps + launch
        for i, slot in enumerate(program.compute_slots):
            if i == first:
                self._add(program.loop, begin + bounds[i], bounds[last] - bounds[i], stats)
            if slot.op is not None:
                self._add(slot.op, begin + bounds[i], bounds[i + 1] - bounds[i], stats)
        for execution in after_compute(program, launch + compute, timing.collective_end_ps):
            self._add(execution.op, start_ps + execution.start_ps, execution.duration_ps, stats)

    def _thunk_stats(self, op: Op, step: int) -> bytes:
        return self._plane.event_stats(
            hlo_op=op.name,
            hlo_module=MODULE,
            program_id=self._pod.program.program_id,
            run_id=run_id(step),
            device_ordinal=0,
            _src=_THUNK_SOURCE,
        )

    def _add(self, op: Op, start_ps: int, duration_ps: int, stats: dict[str, bytes]) -> None:
        line = self._executor
        line.add(self._heads[op.name], start_ps, duration_ps, stats[op.name])
        # By weight, not by duration: every capture has the same number of events.
        if op.kind != "while" and op.weight_ps > 4 * _END_MARK_PS:
            end_ps = start_ps + duration_ps - _END_MARK_PS
            line.add(self._end_heads[op.name], end_ps, _END_MARK_PS - 100_000)
