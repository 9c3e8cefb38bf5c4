"""The rules of the advice, as one table: what each reads, its thresholds, what to do.

A rule finds nothing where the figure it rests on was not measured. Thresholds that XProf's
suggestions or conclusions have are theirs; the page of the documentation says which.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from podscope_analyzers.advice.measure import used_ratio
from podscope_analyzers.advice.metrics import (
    CaptureMetrics,
    DeviceMetrics,
    HostMetrics,
    PodMetrics,
    StepMetrics,
)
from podscope_analyzers.input_pipeline.bottleneck import reaches
from podscope_analyzers.losses import HOST_MISSING, UNKNOWN_COUNT
from podscope_analyzers.result import Evidence, Severity
from podscope_analyzers.stragglers import MIN_LATENESS_RATIO

Group = Literal["steps", "pod", "devices", "hosts", "capture"]


@dataclass(frozen=True)
class Finding:
    """That a rule applies: how severe it is, and why."""

    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Rule:
    """One row of the table.

    Attributes:
        id: Stable; the entry of the documentation has it as its heading.
        title: What to do, in a few words.
        group: The field of ``Metrics`` that it reads.
        levels: From which value of its main figure on it applies, by severity, the highest
            first; of rules that apply to low values, below which.
        find: Whether it applies to a group of metrics.
        action: What to do.
        tools: Tools that show it beside the overview, which shows all.
        limits: Further figures that its condition compares with, by name.
    """

    id: str
    title: str
    group: Group
    levels: Mapping[Severity, float]
    find: Callable[[Any, "Rule"], Finding | None]
    action: str
    tools: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)

    def reached(self, value: float | None) -> tuple[Severity, float] | None:
        """The most severe level that a value reaches, and its threshold."""
        if value is None:
            return None
        for severity, threshold in self.levels.items():
            if value >= threshold:
                return severity, threshold
        return None


def _share_of_step(category: str, said: str) -> Callable[[StepMetrics, Rule], Finding | None]:
    """A finder for the share of the step that one category takes."""

    def find(steps: StepMetrics, rule: Rule) -> Finding | None:
        return _by_level(rule, steps.shares.get(category), f"{category}_ratio", said)

    return find


def _by_level(
    rule: Rule, value: float | None, name: str, said: str, *more: Evidence
) -> Finding | None:
    level = rule.reached(value)
    if value is None or level is None:
        return None
    severity, threshold = level
    return Finding(
        severity,
        said.format(share=f"{value:.1%}"),
        (Evidence(name, value, "ratio", threshold), *more),
    )


def _input_bound(steps: StepMetrics, rule: Rule) -> Finding | None:
    share = steps.shares.get("input", 0.0)
    # The same words and the same judgement as the verdict on input.
    for severity, threshold in rule.levels.items():
        if reaches(100 * share, 100 * threshold, 100 * steps.input_error_ratio):
            return Finding(
                severity,
                f"{share:.1%} of the step time is spent waiting for input.",
                (Evidence("input_ratio", share, "ratio", threshold),),
            )
    return None


def _unobserved_input(steps: StepMetrics, rule: Rule) -> Finding | None:
    if steps.is_input_observed:
        return None
    return _by_level(
        rule,
        steps.shares.get("input"),
        "input_ratio",
        "{share} of the step time waits for input, and nothing on the hosts says what the input "
        "does in that time.",
    )


def _input_stage(name: str, said: str) -> Callable[[StepMetrics, Rule], Finding | None]:
    def find(steps: StepMetrics, rule: Rule) -> Finding | None:
        waiting = steps.shares.get("input", 0.0)
        least = rule.limits["input_ratio"]
        if waiting <= least:
            return None
        more = Evidence("input_ratio", waiting, "ratio", least)
        return _by_level(rule, cast("float | None", getattr(steps, name)), name, said, more)

    return find


def _host_bound(steps: StepMetrics, rule: Rule) -> Finding | None:
    if not steps.has_device:
        return _by_level(
            rule,
            steps.host_work_ratio,
            "host_work_ratio",
            "{share} of the step time is neither compiled operations nor collectives nor input: "
            "it is the host's own work.",
        )
    shares = steps.shares
    idle = sum(shares.get(name, 0.0) for name in ("host_compute", "kernel_launch", "other"))
    return _by_level(
        rule,
        idle,
        "host_bound_ratio",
        "In {share} of the step time the devices run nothing and wait for no input: they wait "
        "for the host."
        if steps.is_tpu
        else "In {share} of the step time the devices run nothing: they wait for the host, or for "
        "input that it has not prepared yet.",
    )


def _unaccounted(steps: StepMetrics, rule: Rule) -> Finding | None:
    # Of accelerators that time is idle time, which another rule is about.
    if steps.has_device:
        return None
    return _by_level(
        rule,
        steps.shares.get("other"),
        "other_ratio",
        "{share} of the step time is in no known category, which may be input, or Python "
        "between operations.",
    )


def _between_steps(steps: StepMetrics, rule: Rule) -> Finding | None:
    if not steps.has_device:
        return None
    return _by_level(
        rule,
        steps.between_ratio,
        "between_steps_ratio",
        "{share} of the time lies between the end of a step and the begin of the next one, with "
        "nothing on the devices.",
        Evidence("step_time_ms", steps.step_ms, "ms"),
    )


def _launches(steps: StepMetrics, rule: Rule) -> Finding | None:
    return _by_level(
        rule,
        steps.shares.get("kernel_launch"),
        "kernel_launch_ratio",
        "{share} of the step time is spent launching kernels.",
    )


def _short_kernels(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    if devices.kernel_us is None or devices.kernels is None:
        return None
    most_us = rule.limits["kernel_us"]
    if devices.kernel_us > most_us:
        return None
    return _by_level(
        rule,
        devices.idle_ratio,
        "device_idle_ratio",
        f"The devices are idle for {{share}} of the time between {devices.kernels:,} kernels of "
        f"{devices.kernel_us:.1f} us on average: launching them takes longer than running them.",
        Evidence("kernel_us", devices.kernel_us, "us", most_us),
        Evidence("kernels", devices.kernels),
    )


def _memory_bound(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    used, most = devices.flops_ratio, rule.limits["flops_ratio"]
    if used is None or used >= most:
        return None
    op = f", '{devices.memory_bound_op}' longest of all" if devices.memory_bound_op else ""
    return _by_level(
        rule,
        devices.memory_bound_ratio,
        "memory_bound_ratio",
        f"The devices reach {used:.1%} of their peak FLOP rate: {{share}} of the operations' "
        f"time is bound by memory{op}.",
        Evidence("flops_ratio", used, "ratio", most),
    )


def _low_flops(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    used, least = devices.flops_ratio, rule.levels["low"]
    memory, most = devices.memory_bound_ratio, rule.limits["memory_bound_ratio"]
    if used is None or memory is None or used >= least or memory >= most:
        return None
    return Finding(
        "low",
        f"The devices reach {used:.1%} of their peak FLOP rate, and memory bounds only "
        f"{memory:.1%} of the operations' time.",
        (
            Evidence("flops_ratio", used, "ratio", least),
            Evidence("memory_bound_ratio", memory, "ratio", most),
        ),
    )


def _padding(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    padded = devices.padded
    worst = ""
    if padded is not None:
        worst = (
            f" Most of it is in '{padded.name}': {padded.waste_ratio:.0%} of its padded "
            f"{padded.shape} is filling."
        )
    return _by_level(
        rule,
        devices.padding_ratio,
        "padding_ratio",
        "{share} of the matrix operations' time computes padding: their dimensions are no "
        f"multiples of the unit's.{worst}",
    )


def _few_16bit(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    share, least = devices.compute_16bit_ratio, rule.levels["medium"]
    if share is None or share >= least:
        return None
    return Finding(
        "medium",
        f"Only {share:.1%} of the devices' matrix computation uses 16 bits or fewer.",
        (Evidence("compute_16bit_ratio", share, "ratio", least),),
    )


def _device_ratio(name: str, said: str) -> Callable[[DeviceMetrics, Rule], Finding | None]:
    def find(devices: DeviceMetrics, rule: Rule) -> Finding | None:
        return _by_level(rule, cast("float | None", getattr(devices, name)), name, said)

    return find


def _counters(
    rule: Rule, devices: DeviceMetrics
) -> tuple[float, float, tuple[Evidence, Evidence]] | None:
    """Use of the matrix units and of the memory, where the TPU counted both."""
    mxu, hbm = devices.mxu_ratio, devices.hbm_ratio
    if mxu is None or hbm is None:
        return None
    return (
        mxu,
        hbm,
        (
            Evidence("mxu_ratio", mxu, "ratio", rule.limits.get("mxu_ratio")),
            Evidence("hbm_ratio", hbm, "ratio", rule.limits.get("hbm_ratio")),
        ),
    )


def _matrix_units_busy(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    counted = _counters(rule, devices)
    if counted is None:
        return None
    mxu, hbm, evidence = counted
    if mxu <= rule.limits["mxu_ratio"] or hbm >= rule.limits["hbm_ratio"]:
        return None
    return Finding(
        "low",
        f"The matrix units are busy for {mxu:.1%} of the time, the memory's bandwidth is used "
        f"to {hbm:.1%}: the program is bound by computation.",
        evidence,
    )


def _memory_busy(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    counted = _counters(rule, devices)
    if counted is None:
        return None
    mxu, hbm, evidence = counted
    if hbm <= rule.limits["hbm_ratio"] or mxu >= rule.limits["mxu_ratio"]:
        return None
    return Finding(
        "medium",
        f"The memory's bandwidth is used to {hbm:.1%}, the matrix units for {mxu:.1%} of the "
        "time: the program is bound by memory.",
        evidence,
    )


def _is_latency_bound(rule: Rule, devices: DeviceMetrics) -> tuple[Evidence, Evidence] | None:
    counted = _counters(rule, devices)
    if counted is None:
        return None
    mxu, hbm, evidence = counted
    if mxu >= rule.limits["mxu_ratio"] or hbm >= rule.limits["hbm_ratio"]:
        return None
    return evidence


def _idle_cores(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    evidence = _is_latency_bound(rule, devices)
    if evidence is None or devices.kind != "TPU":
        return None
    return _by_level(
        rule,
        devices.idle_ratio,
        "device_idle_ratio",
        "The TensorCores are idle for {share} of the time, and use neither the matrix units nor "
        "the memory much.",
        *evidence,
    )


def _sparse_core(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    evidence = _is_latency_bound(rule, devices)
    if evidence is None:
        return None
    return _by_level(
        rule,
        devices.sparse_core_ratio,
        "sparse_core_ratio",
        "The SparseCores work for {share} of their steps while the TensorCores use neither the "
        "matrix units nor the memory much.",
        *evidence,
    )


def _offload(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    used, most = devices.memory_ratio, rule.limits["peak_memory_ratio"]
    if used is None or used >= most:
        return None
    return _by_level(
        rule,
        devices.async_done_ratio,
        "async_done_ratio",
        "{share} of the operations' time waits for asynchronous operations to end, with the "
        f"memory at most {used:.0%} full.",
        Evidence("peak_memory_ratio", used, "ratio", most),
    )


def _debug_print(hosts: HostMetrics, rule: Rule) -> Finding | None:
    return _by_level(
        rule,
        hosts.debug_print_ratio,
        "debug_print_ratio",
        f"Debug prints take {{share}} of the step on {hosts.debug_print_host}.",
    )


def _barriers(hosts: HostMetrics, rule: Rule) -> Finding | None:
    return _by_level(
        rule,
        hosts.barrier_ratio,
        "barrier_ratio",
        "Barriers between cores take {share} of the step.",
    )


def _host_eager(hosts: HostMetrics, rule: Rule) -> Finding | None:
    return _by_level(
        rule,
        hosts.eager_ratio,
        "host_eager_ratio",
        "{share} of the operations' time on the host runs eagerly.",
    )


def _recompiles(hosts: HostMetrics, rule: Rule) -> Finding | None:
    count = hosts.compilations or 0
    return _by_level(
        rule,
        hosts.compile_ratio,
        "compile_ratio",
        f"While the steps ran, {hosts.compiling_host} compiled {count:,} times, in {{share}} of "
        "the time.",
        Evidence("compilations", count),
    )


def _retraces(hosts: HostMetrics, rule: Rule) -> Finding | None:
    function = hosts.function
    if function is None:
        return None
    return _by_level(
        rule,
        function.expensive_ratio,
        "expensive_call_ratio",
        f"'{function.name}' spends {{share}} of its time in tracing or in eager execution, over "
        f"{function.calls:,} calls.",
        Evidence("calls", function.calls),
    )


def _memory_near_limit(hosts: HostMetrics, rule: Rule) -> Finding | None:
    memory = hosts.memory
    if memory is None:
        return None
    return _by_level(
        rule,
        used_ratio(memory),
        "peak_memory_ratio",
        f"{memory.allocator} of {hosts.memory_host} was filled to {{share}}: "
        f"{memory.peak_bytes / 2**30:.2f} of {memory.capacity_bytes / 2**30:.2f} GiB.",
        Evidence("peak_memory_bytes", memory.peak_bytes, "bytes"),
        Evidence("capacity_bytes", memory.capacity_bytes, "bytes"),
    )


def _fragmentation(hosts: HostMetrics, rule: Rule) -> Finding | None:
    memory = hosts.fragmented
    if memory is None:
        return None
    return _by_level(
        rule,
        memory.fragmentation,
        "fragmentation_ratio",
        f"{memory.allocator} of {hosts.fragmented_host} is fragmented to {{share}} where most of "
        "it is in use.",
        Evidence("peak_memory_ratio", used_ratio(memory), "ratio"),
    )


def _throttled(hosts: HostMetrics, rule: Rule) -> Finding | None:
    if hosts.throttled < rule.levels["high"]:
        return None
    return Finding(
        "high",
        f"{hosts.throttled:,} events say that the clock or the power was held back, most of them "
        f"on {hosts.throttled_host}.",
        (Evidence("throttling_events", hosts.throttled, "", rule.levels["high"]),),
    )


def _straggler(pod: PodMetrics, rule: Rule) -> Finding | None:
    if not pod.stragglers:
        return None
    late = pod.stragglers[0]
    others = len(pod.stragglers) - 1
    also = f", and for {others} more" if others else ""
    # Hosts that meet in no recorded collective may not wait, and are slower all the same.
    waits = pod.waiting_ratio >= rule.limits["waiting_ratio"]
    said = f"The other hosts wait for {late.host}" if waits else f"{late.host} is slower"
    return Finding(
        "high",
        f"{said}{also}: it is {late.lateness_ps / 1e9:.2f} ms late "
        f"in a typical step ({late.lateness_ratio:.0%} of it), because of {_CAUSES[late.cause]}; "
        f"{late.evidence[0]}.",
        (
            Evidence("lateness_ratio", late.lateness_ratio, "ratio", rule.levels["high"]),
            Evidence("lateness_us", late.lateness_ps / 1e6, "us"),
            Evidence("persistence_ratio", late.persistence_ratio, "ratio"),
        ),
    )


def _slow_core(pod: PodMetrics, rule: Rule) -> Finding | None:
    if not pod.slow_cores:
        return None
    slow = pod.slow_cores[0]
    others = len(pod.slow_cores) - 1
    also = f", and {others} more cores" if others else ""
    return Finding(
        "high",
        f"Core {slow.core} of {slow.host}{also}: it takes {slow.lateness_ps / 1e9:.2f} ms of a "
        f"step ({slow.lateness_ratio:.0%} of it) longer than the other cores of its host.",
        (
            Evidence("lateness_ratio", slow.lateness_ratio, "ratio", rule.levels["high"]),
            Evidence("lateness_us", slow.lateness_ps / 1e6, "us"),
            Evidence("persistence_ratio", slow.persistence_ratio, "ratio"),
        ),
    )


_CAUSES: Final = {
    "compute": "its computation",
    "input": "its input",
    "host": "work on the host",
    "communication": "its communication",
}


def _events_dropped(capture: CaptureMetrics, rule: Rule) -> Finding | None:
    losses = [loss for loss in capture.losses if loss.kind != HOST_MISSING]
    if len(losses) < rule.levels["medium"]:
        return None
    hosts = sorted({loss.host for loss in losses})
    count = sum(loss.count for loss in losses)
    kinds = ", ".join(sorted({loss.kind.replace("_", " ") for loss in losses}))
    unknown = any(loss.count == UNKNOWN_COUNT for loss in losses)
    how_many = f"at least {count:,}" if unknown else f"{count:,}"
    where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts, {hosts[0]} among them"
    return Finding(
        "medium",
        f"The capture is not whole: {kinds} ({how_many}) on {where}. Times and counts are too low.",
        (
            Evidence("losses", len(losses), "", rule.levels["medium"]),
            Evidence("lost_count", count),
            Evidence("lossy_hosts", len(hosts)),
        ),
    )


def _hosts_missing(capture: CaptureMetrics, rule: Rule) -> Finding | None:
    missing = capture.missing_hosts
    if len(missing) < rule.levels["medium"]:
        return None
    first = missing[0]
    return Finding(
        "medium",
        f"{len(missing)} of {capture.hosts + len(missing)} hosts are not in the result, "
        f"{first.host} among them ({first.reason}): one of them may be what the others wait for.",
        (Evidence("missing_hosts", len(missing), "", rule.levels["medium"]),),
    )


_INPUT_TOOLS: Final = ("input_pipeline_analyzer", "tf_data_bottleneck_analysis")
_OP_TOOLS: Final = ("framework_op_stats", "op_profile", "hlo_stats")

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "hosts_missing",
        "Capture the missing hosts",
        "capture",
        {"medium": 1},
        _hosts_missing,
        "Retry the hosts that failed; what each of them said is in the capture.",
        ("pod_viewer",),
    ),
    Rule(
        "events_dropped",
        "Capture without losses",
        "capture",
        {"medium": 1},
        _events_dropped,
        "Capture for a shorter time, lower the host or Python tracer's level, or raise the "
        "tracer's limit on events.",
        (
            "input_pipeline_analyzer",
            "tf_data_bottleneck_analysis",
            "framework_op_stats",
            "op_profile",
            "hlo_stats",
            "roofline_model",
            "kernel_stats",
            "pod_viewer",
            "memory_profile",
            "inference_profile",
            "megascale_stats",
            "perf_counters",
            "utilization_viewer",
        ),
    ),
    Rule(
        "straggler",
        "Look at the late host",
        "pod",
        {"high": MIN_LATENESS_RATIO},
        _straggler,
        "Repair or replace that host, or move its extra work away, before tuning anything: every "
        "step takes as long as the slowest host.",
        ("pod_viewer",),
        {"waiting_ratio": 0.01},
    ),
    Rule(
        "slow_core",
        "Replace or check the slow core",
        "pod",
        {"high": MIN_LATENESS_RATIO},
        _slow_core,
        "Check that chip's temperature, errors and clock; if its share of the work is as large as "
        "the others', take it out.",
        ("pod_viewer",),
    ),
    Rule(
        "throttling",
        "Find what holds the clock back",
        "hosts",
        {"high": 1},
        _throttled,
        "Check temperatures, power limits and cooling of that host's devices.",
        ("pod_viewer", "roofline_model", "perf_counters", "utilization_viewer"),
    ),
    Rule(
        "slow_clock",
        "Find what holds the clock back",
        "devices",
        {"high": 0.10, "medium": 0.02},
        _device_ratio(
            "slowdown_ratio",
            "The operations took {share} longer than they would at the nominal clock rate.",
        ),
        "Check temperatures and power limits; compare runs by their times at nominal clock.",
        ("roofline_model", *_OP_TOOLS),
    ),
    Rule(
        "input_bound",
        "Make the input faster",
        "steps",
        {"high": 0.20, "medium": 0.05},
        _input_bound,
        "Read ahead and in parallel, prepare data before training or on more threads, and prefetch "
        "to the device while it computes.",
        _INPUT_TOOLS,
    ),
    Rule(
        "input_enqueue",
        "Send fewer, larger pieces to the device",
        "steps",
        {"medium": 0.30},
        _input_stage(
            "enqueue_ratio",
            "{share} of the hosts' input time is spent sending data to the devices.",
        ),
        "Combine small arrays into large ones before they are sent, and send them in the type "
        "that the model computes in.",
        _INPUT_TOOLS,
        {"input_ratio": 0.10},
    ),
    Rule(
        "input_processing",
        "Prepare the data ahead or in parallel",
        "steps",
        {"medium": 0.50},
        _input_stage(
            "other_input_ratio",
            "{share} of the hosts' input time is spent reading and preparing data.",
        ),
        "Raise the parallelism of the maps and readers, cache what every epoch repeats, or move "
        "the preparation offline or to a data service.",
        _INPUT_TOOLS,
        {"input_ratio": 0.10},
    ),
    Rule(
        "input_unobserved",
        "Annotate the input pipeline",
        "steps",
        {"medium": 0.10},
        _unobserved_input,
        "Annotate where batches are made (jax.profiler.TraceAnnotation), or use tf.data, which "
        "annotates itself; then capture again.",
        _INPUT_TOOLS,
    ),
    Rule(
        "output_bound",
        "Write less in the step",
        "steps",
        {"high": 0.20, "medium": 0.05},
        _share_of_step("output", "{share} of the step time is spent on output."),
        "Fetch metrics every few steps, write summaries and checkpoints in the background.",
        ("input_pipeline_analyzer",),
    ),
    Rule(
        "communication_bound",
        "Shorten or hide the collectives",
        "steps",
        {"high": 0.30, "medium": 0.15},
        _share_of_step(
            "collectives",
            "{share} of the step time is spent in collectives, waiting for a late host included.",
        ),
        "Where a host is late, that comes first. Then overlap collectives with computation, "
        "combine small ones, communicate in 16 bits, or change how the model is sharded.",
        ("pod_viewer", "megascale_stats", *_OP_TOOLS),
    ),
    Rule(
        "host_bound",
        "Free the devices from the host",
        "steps",
        {"high": 0.30, "medium": 0.10},
        _host_bound,
        "Run several steps in one program (a loop on the device), dispatch ahead of time, and move "
        "logging, metrics and Python out of the step.",
        ("input_pipeline_analyzer", "framework_op_stats"),
    ),
    Rule(
        "unaccounted_time",
        "Find what the rest of the step does",
        "steps",
        {"medium": 0.15, "low": 0.03},
        _unaccounted,
        "Annotate the parts of the training loop, or turn the Python tracer on.",
        ("input_pipeline_analyzer",),
    ),
    Rule(
        "idle_between_steps",
        "Close the gap between the steps",
        "steps",
        {"high": 0.20, "medium": 0.05},
        _between_steps,
        "Dispatch the next step before the results of the last are read; move checkpoints, "
        "evaluation and logging off the main thread.",
        ("pod_viewer", "input_pipeline_analyzer"),
    ),
    Rule(
        "kernel_launch_bound",
        "Launch fewer, longer kernels",
        "steps",
        {"high": 0.15, "medium": 0.03},
        _launches,
        "Let the compiler fuse operations (XLA, CUDA graphs), raise the batch, and keep tf.data's "
        "threads off the launching ones (TF_GPU_THREAD_MODE=gpu_private).",
        ("kernel_stats",),
    ),
    Rule(
        "short_kernels",
        "Launch fewer, longer kernels",
        "devices",
        {"high": 0.50, "medium": 0.20},
        _short_kernels,
        "Let the compiler fuse operations (XLA, CUDA graphs) or raise the batch, so that each "
        "kernel has more to do.",
        ("kernel_stats",),
        {"kernel_us": 10.0},
    ),
    Rule(
        "recompilation",
        "Stop compiling during the run",
        "hosts",
        {"high": 0.10, "medium": 0.01},
        _recompiles,
        "Keep shapes and static arguments the same from step to step (pad the last batch), warm "
        "up before capturing, and keep a compilation cache.",
        ("framework_op_stats",),
    ),
    Rule(
        "function_retracing",
        "Stop tracing the function again",
        "hosts",
        {"medium": 0.20},
        _retraces,
        "Pass tensors rather than Python numbers, give tf.function an input signature, and call "
        "it in graph mode.",
        ("framework_op_stats",),
    ),
    Rule(
        "memory_near_limit",
        "Make room in memory",
        "hosts",
        {"high": 0.97, "medium": 0.90},
        _memory_near_limit,
        "Recompute activations, shard parameters and optimizer state, lower the batch or the "
        "precision; what the peak is made of is in memory_profile and memory_viewer.",
        ("memory_profile", "memory_viewer"),
    ),
    Rule(
        "memory_fragmentation",
        "Reduce fragmentation",
        "hosts",
        {"medium": 0.20},
        _fragmentation,
        "Allocate large buffers first and keep their shapes, or let the allocator grow "
        "(TF_GPU_ALLOCATOR=cuda_malloc_async).",
        ("memory_profile",),
    ),
    Rule(
        "memory_bound_ops",
        "Move less memory",
        "devices",
        {"medium": 0.50},
        _memory_bound,
        "Fuse element-wise operations, keep activations in 16 bits, raise the batch where it "
        "raises the operations per byte.",
        ("roofline_model", *_OP_TOOLS),
        {"flops_ratio": 0.30},
    ),
    Rule(
        "low_flops",
        "Find what keeps the units from computing",
        "devices",
        {"low": 0.30},
        _low_flops,
        "Look at idle time, collectives, small or padded matrices before the operations "
        "themselves.",
        ("roofline_model",),
        {"memory_bound_ratio": 0.50},
    ),
    Rule(
        "padding",
        "Use dimensions that fill the unit",
        "devices",
        {"high": 0.30, "medium": 0.10},
        _padding,
        "Round the batch and the feature dimensions up to multiples of the tile: 8 by 128 on TPUs, "
        "8 on tensor cores.",
        ("roofline_model", *_OP_TOOLS),
    ),
    Rule(
        "few_16bit",
        "Use 16 bits where the model allows it",
        "devices",
        {"medium": 0.10},
        _few_16bit,
        "Turn on mixed precision (bfloat16, or float16 with loss scaling).",
        ("framework_op_stats", "kernel_stats"),
    ),
    Rule(
        "device_eager",
        "Compile what runs eagerly",
        "devices",
        {"medium": 0.10},
        _device_ratio(
            "eager_ratio", "{share} of the operations' time on the devices runs eagerly."
        ),
        "Put it under tf.function or jax.jit.",
        ("framework_op_stats",),
    ),
    Rule(
        "host_eager",
        "Compile what runs eagerly",
        "hosts",
        {"low": 0.10},
        _host_eager,
        "Put it under tf.function or jax.jit.",
        ("framework_op_stats",),
    ),
    Rule(
        "outside_compilation",
        "Move host operations out of the step",
        "devices",
        {"medium": 0.05},
        _device_ratio(
            "outside_ratio",
            "{share} of the devices' time goes to operations that run on the host, outside the "
            "compiled program.",
        ),
        "Take summaries, prints and operations that the device does not support out of the "
        "compiled step.",
        _OP_TOOLS,
    ),
    Rule(
        "data_shuffling",
        "Move less data about",
        "devices",
        {"medium": 0.30},
        _device_ratio(
            "shuffle_ratio",
            "{share} of the operations' time only moves data about (gathers, slices, transposes, "
            "padding).",
        ),
        "Choose layouts that operations share, replace gathers of single rows by larger ones, and "
        "drop transposes that cancel out.",
        _OP_TOOLS,
    ),
    Rule(
        "barrier_cores",
        "Let the cores wait less for each other",
        "hosts",
        {"medium": 0.10},
        _barriers,
        "Balance the work of the cores, and combine small collectives, each of which has a "
        "barrier.",
        ("pod_viewer",),
    ),
    Rule(
        "debug_print",
        "Take debug prints out of the step",
        "hosts",
        {"medium": 0.05},
        _debug_print,
        "Remove jax.debug.print and similar callbacks, or guard them to run rarely.",
        ("framework_op_stats",),
    ),
    Rule(
        "memory_bandwidth_bound",
        "Move less memory",
        "devices",
        {"medium": 0.70},
        _memory_busy,
        "Fuse element-wise operations, keep activations in 16 bits, raise the operations per byte.",
        ("roofline_model",),
        {"hbm_ratio": 0.70, "mxu_ratio": 0.50},
    ),
    Rule(
        "compute_bound",
        "Compute less, or in fewer bits",
        "devices",
        {"low": 0.70},
        _matrix_units_busy,
        "The units are well used: only fewer operations, lower precision or more devices make the "
        "step shorter.",
        ("roofline_model",),
        {"mxu_ratio": 0.70, "hbm_ratio": 0.50},
    ),
    Rule(
        "tensor_core_idle",
        "Keep the TensorCores busy",
        "devices",
        {"medium": 0.10},
        _idle_cores,
        "Find what the cores wait for in the trace: the host, small programs, asynchronous copies.",
        ("roofline_model",),
        {"mxu_ratio": 0.50, "hbm_ratio": 0.50},
    ),
    Rule(
        "sparse_core_bound",
        "Lighten the SparseCores",
        "devices",
        {"medium": 0.10},
        _sparse_core,
        "Balance the embedding tables over the cores, and let lookups overlap with dense "
        "computation.",
        ("op_profile",),
        {"mxu_ratio": 0.50, "hbm_ratio": 0.50},
    ),
    Rule(
        "async_wait",
        "Start asynchronous work earlier",
        "devices",
        {"medium": 0.10},
        _offload,
        "There is memory to spare: keep what is offloaded or fetched on the device, or let more of "
        "it be in flight.",
        ("op_profile", "hlo_stats"),
        {"peak_memory_ratio": 0.50},
    ),
)
"""Advice about the capture itself first, then by what is usually worth most."""
