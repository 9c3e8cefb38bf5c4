"""Input pipeline: how long steps wait for input, and where the host's input time goes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.input_pipeline import InputPipeline, analyze_input_pipeline
from podscope_analyzers.input_pipeline.bottleneck import ELSEWHERE, Bottleneck
from podscope_analyzers.input_pipeline.generic_steps import PARTS, GenericSteps
from podscope_analyzers.input_pipeline.summaries import summarize
from podscope_analyzers.input_pipeline.tpu_steps import TpuStep, TpuSteps
from podscope_analyzers.input_pipeline.xprof import input_pipeline_json
from podscope_analyzers.input_shares import input_shares
from podscope_analyzers.own_input import NOT_RECORDED, input_evidence, own_input_pipeline
from podscope_analyzers.reasons import NO_DEVICE_PLANE, NO_HOST_OPS, reasons_for_steps
from podscope_analyzers.result import Column, Scope, Table, ToolResult

VERSION: Final = 8

# What asks it for data waits for what other threads prepare.
_PREFETCH: Final = "::Prefetch"


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """How much of the steps waits for input, and why.

    Args:
        stats: Of one host or of several.
        scope: What the result covers.
        parameters: None are taken.
    """
    del parameters
    pipeline = own_input_pipeline(stats)
    bound, time = pipeline.bottleneck, pipeline.time
    shares = input_shares(stats)
    evidence = input_evidence(stats)
    tables = {
        "steps": _steps_table(pipeline),
        "series": shares.series,
        "cores": shares.cores_table(),
        "host_ops": _host_ops_table(pipeline),
    }
    reasons = reasons_for_steps(stats.all_steps)
    if bound is NOT_RECORDED:
        reasons = (*reasons, NO_DEVICE_PLANE)
    if not pipeline.ops:
        reasons = (*reasons, NO_HOST_OPS)
    waiting = summarize(shares.step_ratio)
    result: dict[str, Any] = {
        "hardware_type": pipeline.hardware_type,
        "step_time_ms": pipeline.step_time.to_json() if pipeline.step_time.count else None,
        "input_ratio": waiting.to_json() if waiting.count and bound is not NOT_RECORDED else None,
        "classification": bound.input_classification,
        "statement": _statement(bound, uneven=bool(shares.evidence())),
        "output_statement": bound.output_statement,
        "evidence": [*evidence, *_op_evidence(pipeline), *shares.evidence()],
        "core_count": len(shares.cores),
        "next_step": _next_step(pipeline, evidence, uneven=bool(shares.evidence())),
        "host_input_time_us": {
            "enqueue": time.enqueue_us,
            "demanded_file_read": time.demanded_file_read_us,
            "advanced_file_read": time.advanced_file_read_us,
            "preprocessing": time.preprocessing_us,
            "unclassified": time.unclassified_us,
        }
        if pipeline.ops
        else None,
        "warnings": list(pipeline.warnings),
        **{name: table.to_json() for name, table in tables.items()},
    }
    return ToolResult(
        tool="input_pipeline_analyzer",
        version=VERSION,
        scope=scope,
        status="ok" if len(pipeline.steps) or pipeline.ops else "empty",
        result=result,
        tables=tables,
        reasons=reasons,
    )


def _op_evidence(pipeline: InputPipeline) -> tuple[str, ...]:
    """What the hosts spend most of their input time on, where steps wait for it."""
    if pipeline.bottleneck.input_classification not in {"host", "both"} or not pipeline.ops:
        return ()
    # Who asks a prefetching iterator waits there for the others, which is no work.
    working = [op for op in pipeline.ops if not op.name.endswith(_PREFETCH)]
    total = sum(op.self_time_ratio for op in working)
    if total <= 0:
        return ()
    spent: dict[str, float] = {}
    for op in working:
        spent[op.category] = spent.get(op.category, 0.0) + op.self_time_ratio / total
    most = max(spent, key=spent.__getitem__)
    longest = next(op for op in working if op.category == most)
    aside = "" if len(working) == len(pipeline.ops) else ", waiting for prefetched data aside,"
    return (
        f"Of the self time of the hosts' input operations{aside} {spent[most]:.1%} is "
        f"{most.lower()}, most of it in {longest.name} ({longest.self_time_ratio / total:.1%}).",
    )


def _statement(bound: Bottleneck, *, uneven: bool) -> str:
    """The conclusion; of all cores' time, so that one which waits long is hardly in it."""
    if bound.input_classification != "device" or not uneven:
        return bound.input_statement
    return bound.input_statement.replace(ELSEWHERE, "One waits far longer than the others.")


def _next_step(pipeline: InputPipeline, evidence: Sequence[str], *, uneven: bool) -> str:
    bound = pipeline.bottleneck
    if bound is NOT_RECORDED:
        return (
            "Capture with device tracing (device_tracer_level 1), or annotate what loads the "
            "input, under a name such as load_batch."
        )
    if bound.input_classification == "unknown":
        return (
            "Annotate the steps, or capture for longer than one step: only steps tell how long "
            "the input was waited for."
        )
    is_bound = bound.input_classification in {"host", "both"}
    if uneven and not is_bound:
        return "Look at the input of the one that waits longest: the others wait for it."
    if is_bound and evidence and not pipeline.time.uses_tf_data:
        return (
            "Make what the annotations named in the evidence do faster, or do it ahead of the "
            "step, in another thread."
        )
    return pipeline.next_step


def _steps_table(pipeline: InputPipeline) -> Table:
    if isinstance(pipeline.steps, TpuSteps):
        return _tpu_table(pipeline.steps)
    return _generic_table(pipeline.steps)


def _generic_table(steps: GenericSteps) -> Table:
    return Table(
        columns=(
            Column("step", "Step", "integer"),
            Column("step_name", "Step name", "string"),
            Column("duration_ms", "Step time", "number", "ms"),
            *(
                Column(f"{part}_ms", part.replace("_", " ").capitalize(), "number", "ms")
                for part, _ in PARTS
            ),
        ),
        rows=[
            (
                steps.step_numbers[index],
                steps.names[index],
                float(steps.duration_ms[index]),
                *(float(steps.parts_ms[part][index]) for part, _ in PARTS),
            )
            for index in range(len(steps))
        ],
    )


def _tpu_table(steps: TpuSteps) -> Table:
    times = (
        ("tc_compute_ms", "TensorCore compute"),
        ("tc_infeed_ms", "TensorCore input"),
        ("tc_outfeed_ms", "TensorCore output"),
        ("tc_idle_ms", "TensorCore idle"),
        ("host_transfer_ms", "Host transfer"),
        ("all_reduce_compute_ms", "All-reduce"),
        ("all_reduce_sync_ms", "Waiting in all-reduce"),
        ("scv0_compute_ms", "SparseCore V0"),
        ("sc_compute_ms", "SparseCore compute"),
        ("sc_idle_ms", "SparseCore idle"),
    )
    has_v0 = any(step.scv0_compute_ms or step.scv0_infeed_ms for step in steps.steps)

    def is_there(step: TpuStep, name: str) -> bool:
        if name.startswith("scv0_"):
            return has_v0
        return step.sc_step_ms > 0 if name.startswith("sc_") else step.active_ms is not None

    return Table(
        columns=(
            Column("step", "Step", "integer"),
            *(Column(name, label, "number", "ms") for name, label in times),
            Column("input_ratio", "Waiting for input, longest core", "number", "ratio"),
            Column("input_core", "That core", "string"),
        ),
        rows=[
            (
                step.number,
                *(
                    float(getattr(step, name)) if is_there(step, name) else None
                    for name, _ in times
                ),
                step.infeed_percents.maximum / 100 if step.active_ms is not None else None,
                step.infeed_core or None,
            )
            for step in steps.steps
        ],
    )


def _host_ops_table(pipeline: InputPipeline) -> Table:
    return Table(
        columns=(
            Column("operation", "Operation", "string"),
            Column("count", "Count", "integer"),
            Column("time_ms", "Total time", "number", "ms"),
            Column("time_ratio", "Total time, of all input self time", "number", "ratio"),
            Column("self_time_ms", "Self time", "number", "ms"),
            Column("self_time_ratio", "Self time, of all input self time", "number", "ratio"),
            Column("category", "What it does", "string"),
        ),
        rows=[
            (
                op.name,
                op.count,
                op.time_ms,
                op.time_ratio,
                op.self_time_ms,
                op.self_time_ratio,
                op.category,
            )
            for op in pipeline.ops
        ],
    )


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> list[object]:
    """The five tables that XProf's input pipeline analyzer reads."""
    del parameters
    hardware = stats.run_environment.hardware_type
    pipeline = analyze_input_pipeline(stats.steps, stats.host_ops, stats.cores, hardware)
    return input_pipeline_json(pipeline)
