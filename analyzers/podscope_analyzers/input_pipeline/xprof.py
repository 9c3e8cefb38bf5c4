"""The tables of the input pipeline as XProf's data route gives them."""

from podscope_analyzers.input_pipeline.analysis import InputPipeline
from podscope_analyzers.input_pipeline.generic_steps import GenericSteps
from podscope_analyzers.input_pipeline.summaries import StepSummary, summarize
from podscope_analyzers.input_pipeline.tpu_steps import TpuSteps
from podscope_analyzers.xprof_table import XprofCell, XprofColumn, XprofTable, fixed

_TOOLTIP = XprofColumn("tooltip", "tooltip", "string", {"role": "tooltip"})
_GENERIC_COLUMNS = (
    XprofColumn("stepnum", "Step number", "string"),
    XprofColumn("deviceComputeTimeMs", "Device compute"),
    XprofColumn("deviceToDeviceTimeMs", "Device to device"),
    XprofColumn("deviceCollectivesTimeMs", "Device collective communication"),
    XprofColumn("hostComputeTimeMs", "Host compute"),
    XprofColumn("kernelLaunchTimeMs", "Kernel launch"),
    XprofColumn("infeedTimeMs", "Input"),
    XprofColumn("outfeedTimeMs", "Output"),
    XprofColumn("compileTimeMs", "Compilation"),
    XprofColumn("otherTimeMs", "All others"),
    _TOOLTIP,
    XprofColumn("stepTimeMs", "Step time"),
)
# Parts in the order of the table's columns, and how the tooltip calls them.
_GENERIC_PARTS = (
    ("device_compute", "Device compute"),
    ("device_to_device", "Device to device"),
    ("device_collectives", "Device collectives"),
    ("host_compute", "Host compute"),
    ("kernel_launch", "Kernel launch"),
    ("infeed", "Input"),
    ("outfeed", "Output"),
    ("compile", "Compilation"),
    ("other", "All others"),
)
_RECOMMENDATIONS = (
    "Enqueuing data: combine small chunks of input into fewer, larger ones.",
    "Preprocessing: raise num_parallel_calls of the map stage, or preprocess the data offline.",
    "Reading ahead: tune the prefetch size, the interleave cycle length and the readers' buffers.",
    "Reading on demand: read the files in advance, by prefetch, interleave or a reader's buffer.",
    "Other reading or processing: move the input to tf.data, if it does not use it yet.",
)


def steps_table(pipeline: InputPipeline) -> XprofTable:
    """The table of steps, which the overview shows too."""
    if isinstance(pipeline.steps, TpuSteps):
        return _tpu_table(pipeline, pipeline.steps)
    return _generic_table(pipeline, pipeline.steps)


def input_pipeline_json(pipeline: InputPipeline) -> list[object]:
    """All five tables of the tool."""
    tables = (
        _infeed_cores_table(pipeline),
        steps_table(pipeline),
        _host_table(pipeline),
        XprofTable((XprofColumn("link", "link", "string"),), [[text] for text in _RECOMMENDATIONS]),
        diagnostics_table(warnings=pipeline.warnings),
    )
    return [table.to_json() for table in tables]


def diagnostics_table(
    *, errors: tuple[str, ...] = (), warnings: tuple[str, ...] = ()
) -> XprofTable:
    """Warnings and errors as rows."""
    rows = [["WARNING", text] for text in warnings] + [["ERROR", text] for text in errors]
    columns = (
        XprofColumn("severity", "Severity", "string"),
        XprofColumn("message", "Message", "string"),
    )
    return XprofTable(columns, rows)


def _generic_table(pipeline: InputPipeline, steps: GenericSteps) -> XprofTable:
    rows: list[list[XprofCell]] = []
    # In the reference only host events carry a step's name, and they are in the steps of hosts
    # without an accelerator alone.
    has_names = pipeline.hardware_type == "CPU_ONLY"
    names = steps.names if has_names else [str(number) for number in steps.step_numbers]
    for index, name in enumerate(names):
        duration = float(steps.duration_ms[index])
        parts = {part: float(steps.parts_ms[part][index]) for part, _ in _GENERIC_PARTS}
        lines = [f"-{label}: {fixed(parts[part], 2)} ms" for part, label in _GENERIC_PARTS[::-1]]
        tooltip = "\n".join([f"Step {name}, duration: {fixed(duration, 2)} ms", *lines])
        rows.append([name, *(parts[part] for part, _ in _GENERIC_PARTS), tooltip, duration])
    bound = pipeline.bottleneck
    ids = [column.id for column in _GENERIC_COLUMNS[:10]]
    properties = {
        "hardware_type": pipeline.hardware_type,
        "step_time_graph_column_ids": ",".join(ids) + ", tooltip",
        **_spread("steptime_ms", pipeline.step_time, 1),
        "input_conclusion": bound.input_statement,
        "summary_nextstep": pipeline.next_step,
        # The reference puts the statements in both places.
        "device_collectives_bottleneck": bound.collectives_statement,
        "device_collectives_statement": bound.collectives_statement,
        "kernel_launch_bottleneck": bound.kernel_launch_statement,
        "kernel_launch_statement": bound.kernel_launch_statement,
        "all_other_bottleneck": bound.all_other_statement,
        "all_other_statement": bound.all_other_statement,
    }
    for part, _ in _GENERIC_PARTS:
        summary = steps.summary(part)
        properties[f"{part}_time_ms_avg"] = fixed(summary.average, 1)
        properties[f"{part}_time_ms_sdv"] = fixed(summary.reference_deviation, 1)
    return XprofTable(_GENERIC_COLUMNS, rows, properties)


def _spread(prefix: str, summary: StepSummary, digits: int) -> dict[str, str]:
    return {
        f"{prefix}_average": fixed(summary.average, digits),
        f"{prefix}_standard_deviation": fixed(summary.reference_deviation, digits),
        f"{prefix}_minimum": fixed(summary.minimum, digits),
        f"{prefix}_maximum": fixed(summary.maximum, digits),
    }


def _tpu_table(pipeline: InputPipeline, steps: TpuSteps) -> XprofTable:
    has_scv0 = not steps.has_sparse_core
    scv0_columns = (
        XprofColumn("scv0ComputeTimeMs", "SparseCoreV0 compute (in ms)"),
        XprofColumn("scv0InfeedTimeMs", "SparseCoreV0 input (in ms)"),
    )
    shown = (
        XprofColumn("stepnum", "stepnum", "string"),
        XprofColumn("tcComputeTimeMs", "TensorCore compute (in ms)"),
        *(scv0_columns if has_scv0 else ()),
        XprofColumn("tcInfeedTimeMs", "TensorCore input (in ms)"),
        XprofColumn("tcOutfeedTimeMs", "TensorCore output (in ms)"),
        XprofColumn("tcIdleTimeMs", "TensorCore idle (in ms)"),
        XprofColumn("hostTransferTimeMs", "Host transfer (in ms)"),
        _TOOLTIP,
    )
    columns = (
        *shown,
        XprofColumn("infeedPercentAverage", "% step time waiting for input data"),
        XprofColumn("infeedPercentMin", "Infeed percent min", properties={"role": "interval"}),
        XprofColumn("infeedPercentMax", "Infeed percent max", properties={"role": "interval"}),
    )
    rows: list[list[XprofCell]] = []
    for step in steps.steps:
        tooltip = (
            f"step {step.number}:\n"
            f"Time waiting for input data = {fixed(step.infeed_ms, 3)} ms, "
            f"Step time = {fixed(step.step_ms - step.all_reduce_ms, 3)} ms"
        )
        rows.append(
            [
                str(step.number),
                step.tc_compute_ms,
                *((step.scv0_compute_ms, step.scv0_infeed_ms) if has_scv0 else ()),
                step.tc_infeed_ms,
                step.tc_outfeed_ms,
                step.tc_idle_ms,
                step.host_transfer_ms,
                tooltip,
                step.infeed_percents.average,
                step.infeed_percents.minimum,
                step.infeed_percents.reference_maximum,
            ]
        )
    properties = {
        "hardware_type": pipeline.hardware_type,
        "step_time_graph_column_ids": ",".join(column.id for column in shown),
        **_spread("steptime_ms", pipeline.step_time, 2),
        # Of the maxima as the reference has them, of which none is 0.
        **_spread(
            "infeed_percent",
            summarize([step.infeed_percents.reference_maximum for step in steps.steps]),
            1,
        ),
        "tc_active_ms_average": fixed(steps.tc_active_ms, 2),
        "active_steptime_ms_average": fixed(steps.active_step_ms, 2),
        "host_transfer_ms_average": _average(steps, "host_transfer_ms"),
        "input_conclusion": pipeline.bottleneck.input_statement,
        "output_conclusion": pipeline.bottleneck.output_statement,
        "summary_nextstep": pipeline.next_step,
        **{
            f"tc_{part}_ms_average": _average(steps, f"tc_{part}_ms")
            for part in ("compute", "infeed", "outfeed", "idle")
        },
    }
    if has_scv0:
        for part in ("compute", "infeed"):
            properties[f"scv0_{part}_ms_average"] = _average(steps, f"scv0_{part}_ms")
    sc_step = steps.summary("sc_step_ms")
    if sc_step.minimum > 0:
        properties |= {
            "sc_compute_ms_average": _average(steps, "sc_compute_ms"),
            "sc_active_ms_average": _average(steps, "sc_active_ms"),
            "sc_idle_ms_average": _average(steps, "sc_idle_ms"),
            "sc_infeed_ms_average": fixed(0.0, 2),
            "sc_outfeed_ms_average": fixed(0.0, 2),
            "sc_step_time_ms_average": fixed(sc_step.average, 1),
        }
    return XprofTable(columns, rows, properties)


def _average(steps: TpuSteps, name: str) -> str:
    return fixed(steps.summary(name).average, 2)


def _infeed_cores_table(pipeline: InputPipeline) -> XprofTable:
    if not isinstance(pipeline.steps, TpuSteps):
        return XprofTable()
    steps = pipeline.steps.steps
    names = [XprofColumn(str(i), str(i), "string") for i in range(len(steps))]
    return XprofTable(
        (XprofColumn("index", "Index", "string"), *names),
        [
            ["Step number", *(str(step.number) for step in steps)],
            ["Core name", *(step.infeed_core or "unknown" for step in steps)],
        ],
    )


def _host_table(pipeline: InputPipeline) -> XprofTable:
    time = pipeline.time
    columns = (
        XprofColumn("opName", "Input Op", "string"),
        XprofColumn("count", "Count"),
        XprofColumn("timeInMs", "Total Time (in ms)"),
        XprofColumn("timeInPercent", "Total Time (as % of total input-processing time)"),
        XprofColumn("selfTimeInMs", "Total Self Time (in ms)"),
        XprofColumn("selfTimeInPercent", "Total Self Time (as % of total input-processing time)"),
        XprofColumn("category", "Category", "string"),
    )
    rows: list[list[XprofCell]] = [
        [
            op.name,
            op.count,
            op.time_ms,
            op.time_ratio,
            op.self_time_ms,
            op.self_time_ratio,
            op.category,
        ]
        for op in pipeline.ops
    ]
    properties = {
        "enqueue_us": fixed(time.enqueue_us, 3),
        "demanded_file_read_us": fixed(time.demanded_file_read_us, 3),
        "advanced_file_read_us": fixed(time.advanced_file_read_us, 3),
        "preprocessing_us": fixed(time.preprocessing_us, 3),
        # The reference's spelling.
        "unclassified_nonequeue_us": fixed(time.unclassified_us, 3),
    }
    return XprofTable(columns, rows, properties)
