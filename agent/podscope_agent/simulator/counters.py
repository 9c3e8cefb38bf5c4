"""Hardware counters of devices: values whose sums are known.

A TPU v6e counts what its units did too, under the names of its registers.
"""

from typing import Final

from podscope_agent.simulator.encoding import LineWriter, PlaneWriter
from podscope_agent.simulator.pod import Pod, Window

_LINE_ID: Final = 9_000
_SET: Final = "simulated"
_COUNTED: Final = "TPU v6 Lite"
_CORE: Final = "VF_CHIP_TC_TCS_STATS_COUNTERS_UNPRIVILEGED_COUNT_"
_MEMORY: Final = "VF_CHIP_HBM_UNPRIVILEGED_"
_CLOCK_HZ: Final = 1.75e9
_UNITS: Final = 2
_MATMUL_CYCLES: Final = 8
"""Of one instruction on operands in vector registers, in 16 bits."""
_BEAT_BYTES: Final = 32
_SCALARS_PER_OPERATION: Final = 100


def step_counters(pod: Pod) -> dict[str, int]:
    """What each core counts in every step."""
    program = pod.program
    executions = sum(program.executions[op.name] for op in program.ops)
    found = {"sim_operations": executions, "sim_memory_bytes": program.bytes_per_step}
    if pod.kind.type_string != _COUNTED:
        return found
    ops = [(op, program.executions[op.name]) for op in program.ops]
    both = _matrix_instructions(pod) * _MATMUL_CYCLES
    cycles = _cycles(pod)
    units = {
        "CYCLES": cycles,
        "SCALAR_ALU_INSTRUCTION_0": executions * _SCALARS_PER_OPERATION,
        **{f"MATMUL_VREG_BF16_MXU_{unit}": _matrix_instructions(pod) for unit in range(_UNITS)},
        "MXU_BUSY_0": max(0, cycles - both),
        "MXU_BUSY_2": both,
    }
    moved = {
        "RD_RESP": sum(op.bytes_read * runs for op, runs in ops),
        "WR_REQ": sum(op.bytes_written * runs for op, runs in ops),
    }
    found |= {f"{_CORE}{name}": value for name, value in units.items()}
    return found | {f"{_MEMORY}{way}_PS0": size // _BEAT_BYTES for way, size in moved.items()}


def unit_shares(pod: Pod) -> dict[str, float]:
    """How busy the counters say that units of a core are, 0 to 1; of other devices none."""
    if pod.kind.type_string != _COUNTED:
        return {}
    counted, cycles = step_counters(pod), _cycles(pod)
    matrix = _matrix_instructions(pod) * _MATMUL_CYCLES / cycles
    beats = sum(value for name, value in counted.items() if name.startswith(_MEMORY))
    possible = pod.kind.memory_gbps * 1e9 * cycles / _CLOCK_HZ
    scalars = counted[f"{_CORE}SCALAR_ALU_INSTRUCTION_0"]
    return {
        "Scalar Unit": scalars / (2 * cycles),
        "MXU0": matrix,
        "MXU1": matrix,
        "2 MXU Busy": matrix,
        "HBM Rd+Wr - core 0": beats * _BEAT_BYTES / possible,
    }


def _cycles(pod: Pod) -> int:
    """Of a step without what it waits for."""
    return round(pod.program.compute_ps * _CLOCK_HZ / 1e12)


def _matrix_instructions(pod: Pod) -> int:
    """Multiplications of each unit, as many as the step's operations need at the peak."""
    busy = pod.program.flops_per_step * _CLOCK_HZ / (pod.kind.peak_tflops * 1e12)
    return int(busy) // _MATMUL_CYCLES


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
