"""Memory events of a host trace: what the allocators of its devices do in each step."""

from dataclasses import dataclass

from podscope_agent.simulator.encoding import LineWriter, PlaneWriter
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.program import Program

LEAKING = "jit(train_step)/metrics/append"
"""What allocates the memory that is never freed."""

_BASE_ADDRESS = 0x7F00_0000_0000
_LEAK_ADDRESS = 0x5F00_0000_0000


@dataclass(frozen=True)
class Allocation:
    """One allocation of a step.

    Attributes:
        framework_name: What allocates.
        size_bytes: How much.
        shape: The tensor's shape.
    """

    framework_name: str
    size_bytes: int
    shape: str


def step_allocations(program: Program) -> list[Allocation]:
    """What each core allocates at the start of a step and frees at its end."""
    activation = program.activation
    size = activation.elements * program.element_bytes
    text = f"[{activation.dims[0]},{activation.dims[1]}]"
    layers = [
        Allocation(f"jit(train_step)/layer_{i}/activations", 4 * size, text)
        for i in range(program.size.layers)
    ]
    return [Allocation("jit(train_step)/batch", size, text), *layers]


def resident_bytes(program: Program) -> int:
    """Parameters and gradient sums, which stay allocated."""
    return 2 * sum(w.elements for w in program.weights) * program.element_bytes


def peak_bytes(program: Program, leaked_bytes: int = 0) -> int:
    """Most memory in use on one core, with what leaked since the capture began."""
    in_step = sum(a.size_bytes for a in step_allocations(program))
    return resident_bytes(program) + in_step + leaked_bytes


class MemoryEvents:
    """Writes the allocations of one core.

    Args:
        plane: The host's plane.
        pod: What runs where.
        core: Which core.
    """

    def __init__(self, plane: PlaneWriter, pod: Pod, core: int) -> None:
        self._plane, self._core = plane, core
        self._program, self._device = pod.program, pod.kind
        self._leak_bytes, self._leaks = pod.leak_bytes, 0
        self._used = resident_bytes(pod.program)
        # Every step allocates the same, so its events differ only in time: unless memory leaks.
        self._encoded: dict[tuple[str, int, int], bytes] = {}

    def allocate(self, line: LineWriter, start_ps: int) -> None:
        """The allocations at the start of a step, 100 ns apart."""
        for i, allocation in enumerate(step_allocations(self._program)):
            self._used += allocation.size_bytes
            self._event(line, "MemoryAllocation", start_ps + i * 100_000, i, allocation)
        if self._leak_bytes:
            self._leaks += 1
            self._used += self._leak_bytes
            leaked = Allocation(LEAKING, self._leak_bytes, f"[{self._leak_bytes}]")
            # Right after the last: a step's allocations are one burst.
            at = start_ps + len(step_allocations(self._program)) * 100_000
            self._event(line, "MemoryAllocation", at, -1, leaked)

    def free(self, line: LineWriter, start_ps: int) -> None:
        """The same memory freed at the end of a step."""
        for i, allocation in enumerate(step_allocations(self._program)):
            self._used -= allocation.size_bytes
            self._event(line, "MemoryDeallocation", start_ps + i * 100_000, i, allocation)

    def _event(
        self, line: LineWriter, name: str, start_ps: int, index: int, allocation: Allocation
    ) -> None:
        key = (name, index, self._leaks)
        if key not in self._encoded:
            self._encoded[key] = self._stats(name, index, allocation)
        line.add(self._plane.event_head(name), start_ps, 0, self._encoded[key])

    def _stats(self, name: str, index: int, allocation: Allocation) -> bytes:
        device = self._device
        values: dict[str, int | float | str] = {}
        if device.family == "tpu":
            values["index_on_host"] = self._core
        else:
            values["allocator_name"] = (
                f"GPU_{self._core}_bfc" if device.family == "gpu" else "xla_cpu"
            )
        values |= {
            "bytes_reserved": 0,
            "bytes_allocated": self._used,
            "bytes_available": device.memory_bytes - self._used,
            "fragmentation": 0.03125,
            "peak_bytes_in_use": peak_bytes(self._program, self._leaks * self._leak_bytes),
            "requested_bytes": allocation.size_bytes,
            "allocation_bytes": allocation.size_bytes,
            "addr": _BASE_ADDRESS + (self._core << 36) + (index << 30)
            if index >= 0
            else _LEAK_ADDRESS + (self._core << 36) + self._leaks * self._leak_bytes,
        }
        if name == "MemoryAllocation":
            values |= {
                "tf_op": allocation.framework_name,
                "id": 0,
                "region_type": "temp",
                "data_type": 1 if self._program.element_bytes == 4 else 14,
                "shape": allocation.shape,
            }
        return self._plane.event_stats(**values)
