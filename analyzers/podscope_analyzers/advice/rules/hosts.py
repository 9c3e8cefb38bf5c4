"""Findings about the hosts: compilation, tracing, memory and what holds them back."""

from podscope_analyzers.advice.measure import used_ratio
from podscope_analyzers.advice.metrics import HostMetrics
from podscope_analyzers.advice.rules.rule import Finding, Rule, by_level
from podscope_analyzers.result import Evidence


def debug_print(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """Debug prints run in the steps."""
    return by_level(
        rule,
        hosts.debug_print_ratio,
        "debug_print_ratio",
        f"Debug prints take {{share}} of the step on {hosts.debug_print_host}.",
    )


def barriers(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """Cores wait at barriers for each other."""
    named = ""
    if hosts.barrier_outliers:
        host, share = hosts.barrier_outliers[0]
        others = len(hosts.barrier_outliers) - 1
        also = f", and of {others} more" if others else ""
        # Whom the others wait for waits least.
        named = f" That of {host}{also} stands out: {share:.1%}."
    return by_level(
        rule,
        hosts.barrier_ratio,
        "barrier_ratio",
        f"Barriers between cores take {{share}} of the step.{named}",
        Evidence("outlying_hosts", len(hosts.barrier_outliers)),
    )


def host_eager(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """Operations run eagerly on the host."""
    return by_level(
        rule,
        hosts.eager_ratio,
        "host_eager_ratio",
        "{share} of the operations' time on the host runs eagerly.",
    )


def recompiles(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """Programs are compiled while the steps run."""
    count = hosts.compilations or 0
    return by_level(
        rule,
        hosts.compile_ratio,
        "compile_ratio",
        f"While the steps ran, {hosts.compiling_host} compiled {count:,} times, in {{share}} of "
        "the time.",
        Evidence("compilations", count),
    )


def retraces(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """A function spends its calls in tracing or in eager execution."""
    function = hosts.function
    if function is None:
        return None
    return by_level(
        rule,
        function.expensive_ratio,
        "expensive_call_ratio",
        f"'{function.name}' spends {{share}} of its time in tracing or in eager execution, over "
        f"{function.calls:,} calls.",
        Evidence("calls", function.calls),
        *([Evidence("tracing_count", function.tracing_count)] if function.tracing_count else []),
    )


def memory_near_limit(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """An allocator was nearly full."""
    memory = hosts.memory
    if memory is None:
        return None
    return by_level(
        rule,
        used_ratio(memory),
        "peak_memory_ratio",
        f"{memory.allocator} of {hosts.memory_host} was filled to {{share}}: "
        f"{memory.peak_bytes / 2**30:.2f} of {memory.capacity_bytes / 2**30:.2f} GiB.",
        Evidence("peak_memory_bytes", memory.peak_bytes, "bytes"),
        Evidence("capacity_bytes", memory.capacity_bytes, "bytes"),
    )


def fragmentation(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """Free memory is in pieces that are too small."""
    memory = hosts.fragmented
    if memory is None:
        return None
    return by_level(
        rule,
        memory.fragmentation,
        "fragmentation_ratio",
        f"{memory.allocator} of {hosts.fragmented_host} is fragmented to {{share}} where most of "
        "it is in use.",
        Evidence("peak_memory_ratio", used_ratio(memory), "ratio"),
    )


def throttled(hosts: HostMetrics, rule: Rule) -> Finding | None:
    """Devices ran below their clock for temperature or power."""
    if hosts.throttled < rule.levels["high"]:
        return None
    return Finding(
        "high",
        f"{hosts.throttled:,} events say that the clock or the power was held back, most of them "
        f"on {hosts.throttled_host}.",
        (Evidence("throttling_events", hosts.throttled, "", rule.levels["high"]),),
    )
