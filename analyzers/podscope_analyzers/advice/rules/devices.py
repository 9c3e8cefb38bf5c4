"""Findings about what the devices do: their units, their memory, their idle time."""

from collections.abc import Callable
from typing import cast

from podscope_analyzers.advice.metrics import DeviceMetrics
from podscope_analyzers.advice.rules.rule import Finding, Rule, by_level
from podscope_analyzers.result import Evidence


def short_kernels(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """Kernels are shorter than the time between them."""
    if devices.kernel_us is None or devices.kernels is None:
        return None
    most_us = rule.limits["kernel_us"]
    if devices.kernel_us > most_us:
        return None
    return by_level(
        rule,
        devices.idle_ratio,
        "device_idle_ratio",
        f"The devices are idle for {{share}} of the time between {devices.kernels:,} kernels of "
        f"{devices.kernel_us:.1f} us on average: launching them takes longer than running them.",
        Evidence("kernel_us", devices.kernel_us, "us", most_us),
        Evidence("kernels", devices.kernels),
    )


def memory_bound(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """Most operations wait for memory, and few FLOPs are reached."""
    used, most = devices.flops_ratio, rule.limits["flops_ratio"]
    if used is None or used >= most:
        return None
    op = f", '{devices.memory_bound_op}' longest of all" if devices.memory_bound_op else ""
    return by_level(
        rule,
        devices.memory_bound_ratio,
        "memory_bound_ratio",
        f"The devices reach {used:.1%} of their peak FLOP rate: {{share}} of the operations' "
        f"time is bound by memory{op}.",
        Evidence("flops_ratio", used, "ratio", most),
    )


def low_flops(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """Few FLOPs are reached, and memory is not the reason."""
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


def padding(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """Matrix operations compute padding."""
    padded = devices.padded
    worst = ""
    if padded is not None:
        worst = (
            f" Most of it is in '{padded.name}': {padded.waste_ratio:.0%} of its padded "
            f"{padded.shape} is filling."
        )
    return by_level(
        rule,
        devices.padding_ratio,
        "padding_ratio",
        "{share} of the matrix operations' time computes padding: their dimensions are no "
        f"multiples of the unit's.{worst}",
    )


def few_16bit(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """Hardly any matrix operation is in 16 bits."""
    share, least = devices.compute_16bit_ratio, rule.levels["medium"]
    if share is None or share >= least:
        return None
    return Finding(
        "medium",
        f"Only {share:.1%} of the devices' matrix computation uses 16 bits or fewer.",
        (Evidence("compute_16bit_ratio", share, "ratio", least),),
    )


def device_ratio(name: str, said: str) -> Callable[[DeviceMetrics, Rule], Finding | None]:
    """A finder for one ratio of the devices."""

    def find(devices: DeviceMetrics, rule: Rule) -> Finding | None:
        return by_level(rule, cast("float | None", getattr(devices, name)), name, said)

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


def matrix_units_busy(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """The hardware's counters say that computation is the limit."""
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


def memory_busy(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """The hardware's counters say that memory bandwidth is the limit."""
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


def idle_cores(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """TensorCores are idle, and use neither matrix units nor memory much."""
    evidence = _is_latency_bound(rule, devices)
    if evidence is None or devices.kind != "TPU":
        return None
    return by_level(
        rule,
        devices.idle_ratio,
        "device_idle_ratio",
        "The TensorCores are idle for {share} of the time, and use neither the matrix units nor "
        "the memory much.",
        *evidence,
    )


def sparse_core(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """SparseCores work while the TensorCores wait."""
    evidence = _is_latency_bound(rule, devices)
    if evidence is None:
        return None
    return by_level(
        rule,
        devices.sparse_core_ratio,
        "sparse_core_ratio",
        "The SparseCores work for {share} of their steps while the TensorCores use neither the "
        "matrix units nor the memory much.",
        *evidence,
    )


def offload(devices: DeviceMetrics, rule: Rule) -> Finding | None:
    """Operations wait for asynchronous ones, with memory to spare."""
    used, most = devices.memory_ratio, rule.limits["peak_memory_ratio"]
    if used is None or used >= most:
        return None
    return by_level(
        rule,
        devices.async_done_ratio,
        "async_done_ratio",
        "{share} of the operations' time waits for asynchronous operations to end, with the "
        f"memory at most {used:.0%} full.",
        Evidence("peak_memory_ratio", used, "ratio", most),
    )
