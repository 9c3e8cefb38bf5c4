"""What the rules judge: figures of a capture, each None where the capture does not tell it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from podscope_analyzers.host_facts import MemoryFact, TracedFunction
from podscope_analyzers.result import Loss, MissingHost
from podscope_analyzers.stragglers import SlowCore, Straggler


@dataclass(frozen=True)
class StepMetrics:
    """Where the step time went; shares are of all cores' step time, 0 to 1.

    Attributes:
        has_device: Whether the steps are of accelerators.
        is_tpu: Whether they are of TPUs, whose operations say what waits for input.
        step_ms: Mean step time.
        steps_per_host: Complete steps.
        shares: By category id, as the overview's breakdown has them.
        communication_ratio: In collectives, and on TPUs in sends, receives and waiting for the
            other core of a chip.
        input_error_ratio: Standard error of the share of input, from step to step.
        between_ratio: Share of the time from step to step that lies between two steps.
        host_work_ratio: On hosts without accelerators: share of the step outside compiled
            operations, collectives and input; None where no compiled operation was recorded.
        enqueue_ratio: Share of the host's input time that was enqueueing; None without any.
        other_input_ratio: The share that was anything else: reading and preprocessing.
        is_input_observed: Whether the hosts say anything of what the input did.
    """

    has_device: bool
    is_tpu: bool
    step_ms: float
    steps_per_host: int
    shares: Mapping[str, float] = field(default_factory=dict)
    communication_ratio: float | None = None
    input_error_ratio: float = 0.0
    between_ratio: float | None = None
    host_work_ratio: float | None = None
    enqueue_ratio: float | None = None
    other_input_ratio: float | None = None
    is_input_observed: bool = False


@dataclass(frozen=True)
class PodMetrics:
    """How the hosts compare.

    Attributes:
        waiting_ratio: Share of all hosts' step time spent waiting in collectives.
        stragglers: The worst first.
        slow_cores: Cores that are late among those of their host, the worst first.
    """

    hosts: int
    waiting_ratio: float = 0.0
    stragglers: tuple[Straggler, ...] = ()
    slow_cores: tuple[SlowCore, ...] = ()


@dataclass(frozen=True)
class PaddedOp:
    """An operation whose result is padded to whole tiles of the matrix unit."""

    name: str
    shape: str
    waste_ratio: float


@dataclass(frozen=True)
class DeviceMetrics:
    """What the accelerators did.

    Attributes:
        kind: ``TPU``, ``GPU``.
        flops_ratio: Achieved FLOP/s of a device over its peak.
        memory_bound_ratio: Share of the operations' self time whose nearest peak is that of a
            memory.
        memory_bound_op: The longest of these.
        mxu_ratio: Use of the matrix units, by the TPU's counter.
        hbm_ratio: Use of the memory's bandwidth, likewise.
        compute_16bit_ratio: Share of the matrix operations' time in 16 bits or fewer; where
            their types are not known, of the kernels by their names.
        outside_ratio: Share of the time waiting for computation outside the program.
        eager_ratio: Share of the self time that was executed eagerly.
        padding_ratio: Share of the matrix operations' time spent on padding.
        padded: The operation that pads most.
        shuffle_ratio: Share of the self time that only moves data about.
        async_done_ratio: Share of the self time waiting for asynchronous operations.
        sparse_core_ratio: Share of the step in which a SparseCore worked.
        idle_ratio: Time without any operation.
        kernels: Kernels that ran.
        kernel_us: Their mean duration.
        slowdown_ratio: How much longer the operations took than at the nominal clock.
        memory_ratio: How full the fullest allocator was at its peak.
    """

    kind: str
    flops_ratio: float | None = None
    memory_bound_ratio: float | None = None
    memory_bound_op: str = ""
    mxu_ratio: float | None = None
    hbm_ratio: float | None = None
    compute_16bit_ratio: float | None = None
    outside_ratio: float | None = None
    eager_ratio: float | None = None
    padding_ratio: float | None = None
    padded: PaddedOp | None = None
    shuffle_ratio: float | None = None
    async_done_ratio: float | None = None
    sparse_core_ratio: float | None = None
    idle_ratio: float | None = None
    kernels: int | None = None
    kernel_us: float | None = None
    slowdown_ratio: float | None = None
    memory_ratio: float | None = None


@dataclass(frozen=True)
class HostMetrics:
    """What the hosts' own facts say; a host is named with the worst figure.

    Attributes:
        eager_ratio: Share of the host operations' self time that was executed eagerly.
        compilations: During the steps, of the host with the longest time in them.
        compile_ratio: Share of that host's steps in which something was compiled.
        compiling_host: That host.
        function: The tf.function with the largest share of tracing or eager execution.
        memory: The allocator nearest to its limit.
        memory_host: Its host.
        fragmented: The most fragmented allocator that is at least half full.
        fragmented_host: Its host.
        barrier_ratio: Mean over hosts of the share of the step in barriers between cores.
        barrier_outliers: Hosts whose share differs from all others', with it, the farthest first.
        debug_print_ratio: Largest over hosts of the share of the step in debug prints.
        debug_print_host: That host.
        throttled: Events that say so, of all hosts.
        throttled_host: The host with the most of them.
    """

    eager_ratio: float | None = None
    compilations: int | None = None
    compile_ratio: float | None = None
    compiling_host: str = ""
    function: TracedFunction | None = None
    memory: MemoryFact | None = None
    memory_host: str = ""
    fragmented: MemoryFact | None = None
    fragmented_host: str = ""
    barrier_ratio: float | None = None
    barrier_outliers: tuple[tuple[str, float], ...] = ()
    debug_print_ratio: float | None = None
    debug_print_host: str = ""
    throttled: int = 0
    throttled_host: str = ""


@dataclass(frozen=True)
class CaptureMetrics:
    """What the capture lacks."""

    losses: tuple[Loss, ...] = ()
    missing_hosts: tuple[MissingHost, ...] = ()
    hosts: int = 0


@dataclass(frozen=True)
class Metrics:
    """The groups of figures; a group is None where the capture has nothing of its kind."""

    steps: StepMetrics | None = None
    pod: PodMetrics | None = None
    devices: DeviceMetrics | None = None
    hosts: HostMetrics | None = None
    capture: CaptureMetrics | None = None
