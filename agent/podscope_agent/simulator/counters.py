"""Hardware counters of devices: values whose sums are known."""

from podscope_agent.simulator.encoding import LineWriter, PlaneWriter
from podscope_agent.simulator.pod import Pod, Window

_LINE_ID = 9_000
_SET = "simulated"


def step_counters(pod: Pod) -> dict[str, int]:
    """What each core counts in every step."""
    program = pod.program
    executions = sum(program.executions[op.name] for op in program.ops)
    return {"sim_operations": executions, "sim_memory_bytes": program.bytes_per_step}


def add_counters(plane: PlaneWriter, pod: Pod, core: int, window: Window) -> None:
    """Adds a core's counters, read at the end of every step."""
    line = LineWriter(_LINE_ID, "Counters")
    to_profile_ps = (pod.started_at_ns - window.start_ns) * 1000
    for step in window.steps:
        end_ps = to_profile_ps + pod.timeline.start_ps(step) + pod.timeline.timing(step).end_ps
        for name, value in step_counters(pod).items():
            stats = plane.event_stats(counter_value=value, performance_counter_sets=_SET)
            line.add(plane.event_head(name), end_ps, 0, stats)
    plane.add_line(line)
    plane.add_stat(plane.int_stat("device_id", core))
