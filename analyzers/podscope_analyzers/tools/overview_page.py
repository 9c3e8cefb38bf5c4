"""Overview: step times, what bounds them, the operations that take most, what to do next."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.host_work import compare_hosts
from podscope_analyzers.inference.latency import latency
from podscope_analyzers.input_pipeline.tpu_steps import TpuSteps
from podscope_analyzers.input_pipeline.xprof import diagnostics_table, steps_table
from podscope_analyzers.matrix_ops import narrow_ratio
from podscope_analyzers.op_metrics.efficiency import (
    memory_bandwidth_ratio,
    program_efficiency_ratio,
)
from podscope_analyzers.overview import Overview, overview, top_ops
from podscope_analyzers.overview_steps import (
    complete_steps,
    longest_rows,
    overview_steps_table,
    step_shares,
)
from podscope_analyzers.own_input import input_evidence, own_input_pipeline
from podscope_analyzers.reasons import NO_DEVICE_PLANE, reasons_for_steps
from podscope_analyzers.result import Column, Scope, Table, ToolResult
from podscope_analyzers.stragglers import StragglerReport
from podscope_analyzers.summary import device_busy_ratio, flops_per_second
from podscope_analyzers.xprof_table import (
    XprofCell,
    XprofColumn,
    XprofTable,
    fixed,
    general,
    percent,
)

VERSION: Final = 9


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The figures that head a capture, in our own schema.

    Args:
        stats: Of all hosts.
        scope: What the result covers.
        parameters: None are taken.
    """
    del parameters
    shown = overview(stats, complete_steps(stats))
    top_ops_place = "device"
    if not shown.top_ops and len(stats.host_execution):
        # Programs for the CPU have operations too, which the reference does not show.
        shown = replace(shown, top_ops=top_ops(stats, stats.host_execution, own=True))
        top_ops_place = "host_execution"
    environment = stats.run_environment
    decode_ps = environment.mean_decode_step_ps
    report = compare_hosts(stats, scope.clocks)
    tables = {
        "steps": overview_steps_table(stats),
        "top_ops": _top_ops_table(shown),
        "inference": _latency_table(shown),
        "hosts": _hosts_table(stats),
    }
    reasons = reasons_for_steps(stats.all_steps)
    if environment.hardware_type == "CPU_ONLY":
        reasons = (*reasons, NO_DEVICE_PLANE)
    pipeline = own_input_pipeline(stats)
    bound, input_seen_in = pipeline.bottleneck, input_evidence(stats)
    result: dict[str, Any] = {
        "run_environment": {
            "device_type": environment.device_type,
            "hardware_type": environment.hardware_type,
            "hostnames": list(environment.hostnames),
            "host_count": len(stats.hosts),
            "task_count": environment.task_count,
            "device_core_count": environment.device_core_count,
            "is_training": environment.is_training,
            "profile_duration_ms": environment.profile_duration_ps / 1e9 or None,
            "decode_step_count": environment.decode_step_count,
            "decode_step_mean_us": None if decode_ps is None else decode_ps / 1e6,
        },
        "top_ops_place": top_ops_place,
        "step_count": len(stats.all_steps),
        "complete_step_count": shown.pipeline.step_time.count,
        "step_time_ms": shown.pipeline.step_time.to_json()
        if shown.pipeline.step_time.count
        else None,
        "breakdown": step_shares(stats),
        "bottleneck": {
            "classification": bound.input_classification,
            "statement": bound.input_statement,
            "evidence": list(input_seen_in),
            "output_statement": bound.output_statement,
            "kernel_launch": bound.kernel_launch,
            "kernel_launch_statement": bound.kernel_launch_statement,
            "all_other": bound.all_other,
            "all_other_statement": bound.all_other_statement,
            "collectives": bound.collectives,
            "collectives_statement": bound.collectives_statement,
        },
        "straggler": _straggler(report),
        "utilization": _utilization(stats, shown),
        "op_placement": _op_placement(stats, shown),
        "errors": list(shown.errors),
        "warnings": list(shown.warnings),
        "sessions_per_second": shown.latency.sessions_per_second if shown.latency.rows else None,
        **{name: table.to_json() for name, table in tables.items()},
    }
    has_content = len(stats.all_steps) or shown.top_ops or len(stats.host_ops) or shown.latency.rows
    return ToolResult(
        tool="overview_page",
        version=VERSION,
        scope=scope,
        status="ok" if has_content else "empty",
        result=result,
        tables=tables,
        reasons=reasons,
    )


def _utilization(stats: CaptureStats, shown: Overview) -> dict[str, float | None]:
    environment = stats.run_environment
    is_tpu = environment.hardware_type == "TPU"
    has_device = environment.hardware_type in {"TPU", "GPU"}
    peak = stats.perf_env.peak_tera_flops_per_second * 1e12
    achieved = flops_per_second(stats.device_ops)
    busy = device_busy_ratio(stats)
    is_gpu = environment.hardware_type == "GPU"
    narrow = narrow_ratio(stats.device_ops, stats.all_steps) if is_gpu else None
    return {
        "duty_cycle_ratio": busy,
        "duty_cycle_high_confidence_ratio": shown.duty_cycle_high_confidence_ratio
        if is_tpu and busy is not None
        else None,
        # Where no operation was recorded nobody knows what was idle.
        "device_idle_ratio": stats.device_ops.idle_ratio
        if has_device and stats.device_ops.total_op_time_ps
        else None,
        "host_idle_ratio": stats.host_ops.idle_ratio if stats.host_ops.total_op_time_ps else None,
        "mxu_utilization_ratio": environment.mxu_utilization_ratio,
        "hbm_utilization_ratio": environment.hbm_utilization_ratio,
        "flops_per_second": achieved,
        "peak_flops_per_second": peak or None,
        "flops_utilization_ratio": achieved / peak if achieved is not None and peak else None,
        "memory_bandwidth_ratio": memory_bandwidth_ratio(stats.device_ops, stats.perf_env),
        "program_efficiency_ratio": program_efficiency_ratio(stats.device_ops, stats.perf_env),
        "compute_16bit_ratio": narrow,
        "compute_32bit_ratio": None if narrow is None else 1.0 - narrow,
    }


def _op_placement(stats: CaptureStats, shown: Overview) -> dict[str, float | None]:
    """Where operations were executed; of what was not recorded there is no share."""
    on_host = stats.host_ops.total_op_time_ps > 0
    on_device = stats.device_ops.total_op_time_ps > 0
    return {
        "host_ratio": shown.host_op_ratio if on_host or on_device else None,
        "device_ratio": shown.device_op_ratio if on_host or on_device else None,
        "host_eager_ratio": shown.host_eager_ratio if on_host else None,
        "device_eager_ratio": shown.device_eager_ratio if on_device else None,
        "outside_compilation_ratio": shown.outside_compilation_ratio if on_device else None,
    }


def _straggler(report: StragglerReport) -> dict[str, Any]:
    worst = report.stragglers[0] if report.stragglers else None
    return {
        "verdict": report.verdict,
        "host": worst.host if worst else None,
        "lateness_us": worst.lateness_ps / 1e6 if worst else None,
        "cause": worst.cause if worst else None,
        "waiting_ratio": report.waiting_ratio,
        "evidence": list(worst.evidence) if worst else [],
    }


def _top_ops_table(shown: Overview) -> Table:
    return Table(
        columns=(
            Column("operation", "Operation", "string"),
            Column("category", "Category", "string"),
            Column("occurrences", "Occurrences", "integer"),
            Column("self_time_us", "Self time", "number", "us"),
            Column("self_time_ratio", "Share of the operations' time", "number", "ratio"),
            Column("cumulative_ratio", "Cumulative share", "number", "ratio"),
            Column("flops_per_second", "FLOP rate", "number", "flops/s"),
            Column("is_tensor_core_eligible", "Could use tensor cores", "boolean"),
            Column("uses_tensor_core", "Uses tensor cores", "boolean"),
        ),
        rows=[
            (
                op.name,
                op.category,
                op.occurrences,
                op.self_time_ps / 1e6,
                op.self_time_ratio,
                op.cumulative_ratio,
                None if op.giga_flops_per_second is None else op.giga_flops_per_second * 1e9,
                op.is_tensor_core_eligible,
                op.uses_tensor_core,
            )
            for op in shown.top_ops
        ],
    )


def _hosts_table(stats: CaptureStats) -> Table:
    """Where each host ran, and what it recorded."""
    rows = []
    for host in stats.hosts:
        complete = host.steps.without_incomplete_steps()
        longest = longest_rows(complete)
        durations = complete.duration_ps[longest[longest >= 0]]
        rows.append(
            (
                host.host,
                host.hostname,
                host.device_type or None,
                host.device_core_count,
                len(host.steps),
                float(durations.mean()) / 1e9 if len(durations) else None,
                host.mxu_utilization_ratio,
                host.hbm_utilization_ratio,
            )
        )
    return Table(
        columns=(
            Column("host", "Host", "string"),
            Column("hostname", "Host name", "string"),
            Column("device_type", "Device", "string"),
            Column("device_core_count", "Devices or cores", "integer"),
            Column("step_count", "Steps", "integer"),
            Column("step_time_ms", "Step time, mean", "number", "ms"),
            Column("mxu_utilization_ratio", "Matrix unit utilization", "number", "ratio"),
            Column("hbm_utilization_ratio", "HBM utilization", "number", "ratio"),
        ),
        rows=rows,
    )


def _latency_table(shown: Overview) -> Table:
    return Table(
        columns=(
            Column("percentile", "Percentile", "string"),
            Column("host_us", "Host", "number", "us"),
            Column("device_us", "Device", "number", "us"),
            Column("communication_us", "Copies between host and device", "number", "us"),
            Column("total_us", "Total latency", "number", "us"),
        ),
        rows=[
            (
                "average" if row.percentile is None else f"{row.percentile:.1f}",
                row.host_us,
                row.device_us,
                row.communication_us,
                row.total_us,
            )
            for row in shown.latency.rows
        ],
    )


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> list[object]:
    """The seven tables that XProf's overview reads."""
    del parameters
    shown = overview(stats, stats.steps, own=False)
    if shown.latency.rows:
        shown = replace(shown, latency=latency(stats.inference.as_reference()))
    return [
        _analysis_table(stats, shown).to_json(),
        steps_table(shown.pipeline).to_json(),
        _environment_table(stats).to_json(),
        _recommendation_table(stats, shown).to_json(),
        _reference_latency_table(shown).to_json(),
        {},
        diagnostics_table(errors=shown.errors, warnings=shown.warnings).to_json(),
    ]


def _analysis_table(stats: CaptureStats, shown: Overview) -> XprofTable:
    environment = stats.run_environment
    is_gpu = "GPU" in environment.device_type
    columns = [
        XprofColumn("selfTimePercent", "Time (%)"),
        XprofColumn("cumulativeTimePercent", "Cumulative time (%)"),
        XprofColumn("category", "Category", "string"),
        XprofColumn("operation", "Operation", "string"),
        XprofColumn(
            "flopRate", "GFLOPs/Sec" if is_gpu else "Bf16 Normalized Flop Rate(GFLOPs/Sec)"
        ),
    ]
    if is_gpu:
        columns += [
            XprofColumn("tcEligibility", "TensorCore eligibility", "boolean"),
            XprofColumn("tcUtilization", "Op is using TensorCore", "boolean"),
        ]
    rows: list[list[XprofCell]] = []
    for op in shown.top_ops:
        row: list[XprofCell] = [
            op.self_time_ratio,
            op.cumulative_ratio,
            op.category,
            op.name,
            op.giga_flops_per_second or 0.0,
        ]
        tensor_core = [bool(op.is_tensor_core_eligible), bool(op.uses_tensor_core)]
        rows.append([*row, *tensor_core] if is_gpu else row)
    properties = {
        "host_trace_level": "0",
        "host_tf_op_percent": percent(100 * shown.host_op_ratio),
        "device_tf_op_percent": percent(100 * shown.device_op_ratio),
        "host_op_time_eager_percent": percent(100 * shown.host_eager_ratio),
        "device_op_time_eager_percent": percent(100 * shown.device_eager_ratio),
        "remark_text": "",
        "remark_color": "",
        "mxu_utilization_percent": percent(environment.reference_mxu_percent),
        "hbm_utilization_percent": percent(environment.reference_hbm_percent),
        **(_gpu_properties(shown) if is_gpu else _tpu_properties(stats, shown)),
    }
    return XprofTable(columns, rows, properties)


def _gpu_properties(shown: Overview) -> dict[str, str]:
    return {
        "device_compute_16bit_percent": percent(100 * shown.compute_16bit_ratio),
        "device_compute_32bit_percent": percent(100 * shown.compute_32bit_ratio),
    }


def _tpu_properties(stats: CaptureStats, shown: Overview) -> dict[str, str]:
    """Properties of TPUs, and of CPUs, where the reference prints zeros."""
    properties = {
        # Both need limits from outside that nobody supplies.
        "flop_rate_utilization_relative_to_roofline": percent(0.0),
        "memory_bw_utilization_relative_to_hw_limit": percent(0.0),
        "device_idle_time_percent": percent(100 * shown.device_idle_ratio),
        "device_duty_cycle_percent": percent(100 * shown.duty_cycle_ratio),
        "device_duty_cycle_high_confidence_percent": percent(
            100 * shown.duty_cycle_high_confidence_ratio
        ),
        "host_idle_time_percent": percent(100 * shown.host_idle_ratio),
    }
    idle_ps = stats.device_ops.idle_high_confidence_ps
    if idle_ps:
        properties["idle_time_high_confidence_ps"] = general(float(idle_ps))
    steps = shown.pipeline.steps
    if isinstance(steps, TpuSteps):
        for name, active in (
            ("active_steptime_ms_average", steps.active_step_ms),
            ("tc_active_ms_average", steps.tc_active_ms),
        ):
            if active:
                properties[name] = fixed(active, 2)
        sc_step = steps.summary("sc_step_ms")
        if sc_step.minimum > 0:
            properties |= {
                "sc_steptime_average": fixed(sc_step.average, 1),
                "sc_infeed_time_avg": fixed(0.0, 1),
                "sc_outfeed_time_avg": fixed(0.0, 1),
                "sc_idle_time_avg": fixed(steps.summary("sc_idle_ms").average, 1),
                "sc_active_ms_average": fixed(steps.summary("sc_active_ms").average, 2),
            }
    return properties


def _environment_table(stats: CaptureStats) -> XprofTable:
    environment = stats.run_environment
    names = ("host_id", "command_line", "start_time", "bns_address")
    return XprofTable(
        [XprofColumn(name, name, "string") for name in names],
        properties={
            "host_count": str(environment.host_count),
            "task_count": environment.task_text,
            "device_type": environment.device_type,
            "device_core_count": str(environment.device_core_count),
            "is_training": "true" if environment.is_training else "false",
        },
    )


def _recommendation_table(stats: CaptureStats, shown: Overview) -> XprofTable:
    hardware = stats.run_environment.hardware_type
    bound = shown.pipeline.reference_bottleneck
    classification = bound.input_classification if bound else ""
    others = {"host": "device", "device": "host"}.get(classification, "")
    device_tool = "op_profile" if hardware == "TPU" else "framework_op_stats"
    host, device = (
        "Next steps for reducing the Host time",
        "Next steps for reducing the Device time",
    )
    rows: list[list[XprofCell]] = [
        ["faq", "Read the profiler's answers to frequent questions", "Tool troubleshooting / FAQ"],
        ["host", "input_pipeline_analyzer (the host's operations by what they do)", host],
        ["host", "trace_viewer (look at the rows of the host's threads)", host],
        ["device", f"{device_tool} (find the operations that take most of the {hardware})", device],
        ["device", f"trace_viewer (look at the rows of each {hardware} in the trace)", device],
        ["doc", "Analyze the performance of tf.data with a profiler", "Other useful resources"],
        ["doc", "Get better performance from the tf.data API", "Other useful resources"],
    ]
    properties = {
        "bottleneck": classification,
        "statement": bound.input_statement if bound else "",
        "kernel_launch_bottleneck": bound.kernel_launch if bound else "",
        "kernel_launch_statement": bound.kernel_launch_statement if bound else "",
        "all_other_bottleneck": bound.all_other if bound else "",
        "all_other_statement": bound.all_other_statement if bound else "",
        "device_collectives_bottleneck": bound.collectives if bound else "",
        "device_collectives_statement": bound.collectives_statement if bound else "",
        "precision_statement": shown.precision_advice,
        "non_bottleneck_tip_types": others,
    }
    names = ("tip_type", "link", "description")
    return XprofTable([XprofColumn(name, name, "string") for name in names], rows, properties)


def _reference_latency_table(shown: Overview) -> XprofTable:
    columns = (
        XprofColumn("percentile", "percentile", "string"),
        XprofColumn("hostTimeMs", "Host time (in ms)"),
        XprofColumn("deviceTimeMs", "Device time (in ms)"),
        XprofColumn("communicationTimeMs", "Host-device communication time (in ms)"),
        XprofColumn("totalTimeMs", "Total latency (in ms)"),
    )
    # The average, kept last, is shown first.
    ordered = [*shown.latency.rows[-1:], *shown.latency.rows[:-1]]
    rows: list[list[XprofCell]] = [
        [
            "Avg" if row.percentile is None else f"{row.percentile:.1f}%",
            row.host_us / 1e3,
            row.device_us / 1e3,
            row.communication_us / 1e3,
            row.total_us / 1e3,
        ]
        for row in ordered
    ]
    return XprofTable(columns, rows)
