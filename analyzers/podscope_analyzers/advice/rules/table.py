"""The rules of the advice, as one table: what each reads, its thresholds, what to do.

A rule finds nothing where the figure it rests on was not measured. Thresholds that XProf's
suggestions or conclusions have are theirs; the page of the documentation says which.
"""

from dataclasses import replace
from typing import Final

from podscope_analyzers.advice.rules import capture, devices, hosts, pod, steps
from podscope_analyzers.advice.rules.rule import Rule
from podscope_analyzers.advice.rules.suggestions import SUGGESTIONS
from podscope_analyzers.stragglers import MIN_LATENESS_RATIO, MIN_WAITING_RATIO

_INPUT_TOOLS: Final = ("input_pipeline_analyzer", "tf_data_bottleneck_analysis")
_OP_TOOLS: Final = ("framework_op_stats", "op_profile", "hlo_stats")

_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "hosts_missing",
        "Capture the missing hosts",
        "capture",
        {"medium": 1},
        capture.hosts_missing,
        "Retry the hosts that failed; what each of them said is in the capture.",
        ("pod_viewer",),
    ),
    Rule(
        "events_dropped",
        "Capture without losses",
        "capture",
        {"medium": 1},
        capture.events_dropped,
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
        pod.straggler,
        "Repair or replace that host, or move its extra work away, before tuning anything: where "
        "hosts wait for each other, every step takes as long as the slowest.",
        ("pod_viewer",),
        {"waiting_ratio": MIN_WAITING_RATIO},
    ),
    Rule(
        "slow_core",
        "Replace or check the slow core",
        "pod",
        {"high": MIN_LATENESS_RATIO},
        pod.slow_core,
        "Check that chip's temperature, errors and clock; if its share of the work is as large as "
        "the others', take it out.",
        ("pod_viewer",),
    ),
    Rule(
        "throttling",
        "Find what holds the clock back",
        "hosts",
        {"high": 1},
        hosts.throttled,
        "Check temperatures, power limits and cooling of that host's devices.",
        ("pod_viewer", "roofline_model", "perf_counters", "utilization_viewer"),
    ),
    Rule(
        "slow_clock",
        "Find what holds the clock back",
        "devices",
        {"high": 0.10, "medium": 0.02},
        devices.device_ratio(
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
        steps.input_bound,
        "Read ahead and in parallel, prepare data before training or on more threads, and prefetch "
        "to the device while it computes.",
        _INPUT_TOOLS,
    ),
    Rule(
        "input_enqueue",
        "Send fewer, larger pieces to the device",
        "steps",
        {"medium": 0.30},
        steps.input_stage(
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
        steps.input_stage(
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
        steps.unobserved_input,
        "Annotate where batches are made (jax.profiler.TraceAnnotation), or use tf.data, which "
        "annotates itself; then capture again.",
        _INPUT_TOOLS,
    ),
    Rule(
        "output_bound",
        "Write less in the step",
        "steps",
        {"high": 0.20, "medium": 0.05},
        steps.share_of_step("output", "{share} of the step time is spent on output."),
        "Fetch metrics every few steps, write summaries and checkpoints in the background.",
        ("input_pipeline_analyzer",),
    ),
    Rule(
        "communication_bound",
        "Shorten or hide the collectives",
        "steps",
        {"high": 0.30, "medium": 0.15},
        steps.communication_bound,
        "Where a host is late, that comes first. Then overlap collectives with computation, "
        "combine small ones, communicate in 16 bits, or change how the model is sharded.",
        ("pod_viewer", "megascale_stats", *_OP_TOOLS),
    ),
    Rule(
        "host_bound",
        "Free the devices from the host",
        "steps",
        {"high": 0.30, "medium": 0.10},
        steps.host_bound,
        "Run several steps in one program (a loop on the device), dispatch ahead of time, and move "
        "logging, metrics and Python out of the step.",
        ("input_pipeline_analyzer", "framework_op_stats"),
    ),
    Rule(
        "unaccounted_time",
        "Find what the rest of the step does",
        "steps",
        {"medium": 0.15, "low": 0.03},
        steps.unaccounted,
        "Annotate the parts of the training loop, or turn the Python tracer on.",
        ("input_pipeline_analyzer",),
    ),
    Rule(
        "idle_between_steps",
        "Close the gap between the steps",
        "steps",
        {"high": 0.20, "medium": 0.05},
        steps.between_steps,
        "Dispatch the next step before the results of the last are read; move checkpoints, "
        "evaluation and logging off the main thread.",
        ("pod_viewer", "input_pipeline_analyzer"),
    ),
    Rule(
        "kernel_launch_bound",
        "Launch fewer, longer kernels",
        "steps",
        {"high": 0.15, "medium": 0.03},
        steps.launches,
        "Let the compiler fuse operations (XLA, CUDA graphs), raise the batch, and keep tf.data's "
        "threads off the launching ones (TF_GPU_THREAD_MODE=gpu_private).",
        ("kernel_stats",),
    ),
    Rule(
        "short_kernels",
        "Launch fewer, longer kernels",
        "devices",
        {"high": 0.50, "medium": 0.20},
        devices.short_kernels,
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
        hosts.recompiles,
        "Keep shapes and static arguments the same from step to step (pad the last batch), warm "
        "up before capturing, and keep a compilation cache.",
        ("framework_op_stats",),
    ),
    Rule(
        "function_retracing",
        "Stop tracing the function again",
        "hosts",
        {"medium": 0.20},
        hosts.retraces,
        "Pass tensors rather than Python numbers, give tf.function an input signature, and call "
        "it in graph mode.",
        ("framework_op_stats",),
    ),
    Rule(
        "memory_near_limit",
        "Make room in memory",
        "hosts",
        {"high": 0.97, "medium": 0.90},
        hosts.memory_near_limit,
        "Recompute activations, shard parameters and optimizer state, lower the batch or the "
        "precision; what the peak is made of is in memory_profile and memory_viewer.",
        ("memory_profile", "memory_viewer"),
    ),
    Rule(
        "memory_fragmentation",
        "Reduce fragmentation",
        "hosts",
        {"medium": 0.20},
        hosts.fragmentation,
        "Allocate large buffers first and keep their shapes, or let the allocator grow "
        "(TF_GPU_ALLOCATOR=cuda_malloc_async).",
        ("memory_profile",),
    ),
    Rule(
        "memory_bound_ops",
        "Move less memory",
        "devices",
        {"medium": 0.50},
        devices.memory_bound,
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
        devices.low_flops,
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
        devices.padding,
        "Round the batch and the feature dimensions up to multiples of the tile: 8 by 128 on TPUs, "
        "8 on tensor cores.",
        ("roofline_model", *_OP_TOOLS),
    ),
    Rule(
        "few_16bit",
        "Use 16 bits where the model allows it",
        "devices",
        {"medium": 0.10},
        devices.few_16bit,
        "Turn on mixed precision (bfloat16, or float16 with loss scaling).",
        ("framework_op_stats", "kernel_stats"),
    ),
    Rule(
        "device_eager",
        "Compile what runs eagerly",
        "devices",
        {"medium": 0.10},
        devices.device_ratio(
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
        hosts.host_eager,
        "Put it under tf.function or jax.jit.",
        ("framework_op_stats",),
    ),
    Rule(
        "outside_compilation",
        "Move host operations out of the step",
        "devices",
        {"medium": 0.05},
        devices.device_ratio(
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
        devices.device_ratio(
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
        hosts.barriers,
        "Balance the work of the cores, and combine small collectives, each of which has a "
        "barrier.",
        ("pod_viewer",),
    ),
    Rule(
        "debug_print",
        "Take debug prints out of the step",
        "hosts",
        {"medium": 0.05},
        hosts.debug_print,
        "Remove jax.debug.print and similar callbacks, or guard them to run rarely.",
        ("framework_op_stats",),
    ),
    Rule(
        "memory_bandwidth_bound",
        "Move less memory",
        "devices",
        {"medium": 0.70},
        devices.memory_busy,
        "Fuse element-wise operations, keep activations in 16 bits, raise the operations per byte.",
        ("roofline_model",),
        {"hbm_ratio": 0.70, "mxu_ratio": 0.50},
    ),
    Rule(
        "compute_bound",
        "Compute less, or in fewer bits",
        "devices",
        {"low": 0.70},
        devices.matrix_units_busy,
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
        devices.idle_cores,
        "Find what the cores wait for in the trace: the host, small programs, asynchronous copies.",
        ("roofline_model",),
        {"mxu_ratio": 0.50, "hbm_ratio": 0.50},
    ),
    Rule(
        "sparse_core_bound",
        "Lighten the SparseCores",
        "devices",
        {"medium": 0.10},
        devices.sparse_core,
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
        devices.offload,
        "There is memory to spare: keep what is offloaded or fetched on the device, or let more of "
        "it be in flight.",
        ("op_profile", "hlo_stats"),
        {"peak_memory_ratio": 0.50},
    ),
)
RULES: Final = tuple(
    replace(rule, tools=(*rule.tools, "smart_suggestion")) if rule.id in SUGGESTIONS else rule
    for rule in _RULES
)
"""Advice about the capture itself first, then by what is usually worth most."""
