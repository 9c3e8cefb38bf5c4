"""Which tables of which tool are compared, by what their rows are known again, in one place."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from podscope_analyzers.result import Cell
from podscope_analyzers.step_table import PARAMETER as STEP_TIMES


@dataclass(frozen=True)
class ComparedTable:
    """How the rows of a table are matched and measured.

    Attributes:
        name: What the comparison calls it.
        keys: Columns that make a row's key, the most exact first: what one key leaves over on
            both sides, the next one matches. ``column:stem`` is the text without the number at
            its end, ``column:symbol`` that of a kernel, ``column:path`` without the ids of
            programs: all change from one compilation to the next. Rows that lack a ``column:some``,
            or have a ``column:none``, are not matched by this key.
        measure: The column that is compared and sorted by.
        is_sum: Whether ``measure`` grows with the length of the capture; then it is divided.
        place: By what a sum is divided beside steps: cores of devices or hosts. A column of this
            name says which, ``device_or_host`` that of the capture, ``host`` hosts in any case.
        shown: Columns that tell people what the row is.
        where: Only rows with one of these values.
        without: No rows with one of these values.
        sums: More columns, which add up over merged rows.
        of: The table's name in the result, where it is another.
    """

    name: str
    keys: tuple[tuple[str, ...], ...]
    measure: str
    is_sum: bool = True
    place: str = "device_or_host"
    shown: tuple[str, ...] = ()
    where: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)
    without: Mapping[str, tuple[Cell, ...]] = field(default_factory=dict)
    sums: tuple[str, ...] = ()
    of: str = ""

    @property
    def adds_up(self) -> bool:
        """Whether merged rows have the sum of their measures; latencies and shares the mean."""
        return self.is_sum or self.measure.endswith("_bytes")

    @property
    def source(self) -> str:
        """The table's name in the result."""
        return self.of or self.name


@dataclass(frozen=True)
class ComparedSteps:
    """A table with a row per step, whose spread judges changes.

    Attributes:
        by: Columns that tell series apart; of several rows per step and series the mean counts.
        keys: As those of ``ComparedTable``: series of one key are one. Without them ``by`` is.
        of: The table that says more of each series than ``by``, for ``keys``.
        without: Numbers that are not compared.
        parameters: With which the tool lists it.
    """

    name: str
    by: tuple[str, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    of: str = ""
    without: tuple[str, ...] = ("begin_us",)
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedTool:
    """What of a tool's result is compared; all its single numbers are, too."""

    tables: tuple[ComparedTable, ...] = ()
    steps: ComparedSteps | None = None
    # Numbers that say where a list begins or which threshold was asked for.
    not_totals: tuple[str, ...] = ()


def _listed_by(*by: str, keys: tuple[tuple[str, ...], ...], of: str) -> ComparedSteps:
    """The times by step that a tool lists when it is asked."""
    return ComparedSteps(STEP_TIMES, by, keys, of, parameters={STEP_TIMES: "1"})


_OP_TIME: Final = "total_self_time_us"
_FRAMEWORK_KEYS: Final = (
    ("host_or_device", "type", "operation", "framework_name", "program_id"),
    ("host_or_device", "type", "operation", "framework_name"),
    ("host_or_device", "type", "framework_name:some", "operation:stem"),
    ("host_or_device", "type", "operation"),
)
_INSTRUCTION_KEYS: Final = (
    ("place", "program_id", "hlo_op_name", "framework_name", "parent_op_name"),
    ("place", "hlo_op_name", "framework_name", "parent_op_name"),
    ("place", "category", "framework_name:some", "hlo_op_name:stem"),
    ("place", "category", "framework_name:none", "hlo_op_name:stem"),
)
_RECORD_KEYS: Final = (
    ("program_id", "category", "operation", "framework_name"),
    ("category", "operation", "framework_name"),
    ("category", "framework_name:some", "operation:stem"),
    ("category", "framework_name:none", "operation:stem"),
)
_KERNEL_KEYS: Final = (
    ("kernel_name", "op_name", "grid_dim", "block_dim"),
    ("kernel_name", "op_name"),
    ("op_name:some", "kernel_name:symbol"),
    ("kernel_name",),
)
_NODE_KEYS: Final = (
    ("kind", "node", "framework_name"),
    ("kind", "node:path", "framework_name"),
    ("kind", "category", "framework_name:some", "name:stem"),
    ("kind", "category", "framework_name:none", "name:stem"),
)

COMPARED: Final[Mapping[str, ComparedTool]] = {
    "overview_page": ComparedTool(
        tables=(
            ComparedTable(
                "hosts",
                (("host",),),
                "step_time_ms",
                is_sum=False,
                shown=("host", "device_type"),
            ),
            ComparedTable(
                "top_ops",
                (("operation", "category"),),
                "self_time_us",
                shown=("operation", "category"),
                sums=("occurrences",),
            ),
        ),
        steps=ComparedSteps("steps"),
    ),
    "pod_viewer": ComparedTool(
        tables=(
            ComparedTable(
                "hosts",
                (("host",),),
                "own_work_us",
                is_sum=False,
                shown=("host",),
                sums=("step_count",),
            ),
            ComparedTable(
                "channels",
                (("program_id", "channel_id"), ("channel_id",)),
                "send_us",
                shown=("program_id", "channel_id"),
                sums=("send_count", "receive_count", "receive_us"),
            ),
        ),
        steps=ComparedSteps("steps", by=("host",), without=("begin_us", "core_id")),
        not_totals=("first_step", "listed_step_count", "row_count", "next_step"),
    ),
    "input_pipeline_analyzer": ComparedTool(
        tables=(
            ComparedTable(
                "host_ops",
                (("operation", "category"), ("operation",)),
                "self_time_ms",
                place="host",
                shown=("operation", "category"),
                sums=("count", "time_ms"),
            ),
        ),
        steps=ComparedSteps("steps"),
    ),
    "tf_data_bottleneck_analysis": ComparedTool(
        tables=(
            ComparedTable(
                "pipelines",
                (("host", "pipeline"), ("pipeline",)),
                "avg_latency_us",
                is_sum=False,
                shown=("host", "pipeline"),
                sums=("calls", "slow_calls"),
            ),
            ComparedTable(
                "iterators",
                (("host", "pipeline", "long_name"), ("pipeline", "long_name"), ("long_name",)),
                "self_time_us",
                place="host",
                shown=("long_name", "iterator", "host"),
                sums=("calls", "total_time_us"),
            ),
            ComparedTable(
                "loaders",
                (("host", "loader", "thread", "stage"), ("loader", "stage")),
                "self_time_us",
                place="host",
                shown=("host", "loader", "stage"),
                sums=("calls", "slow_calls", "total_time_us"),
            ),
        ),
        not_totals=("slow_call_threshold_us",),
    ),
    "framework_op_stats": ComparedTool(
        tables=(
            ComparedTable(
                "without_idle",
                _FRAMEWORK_KEYS,
                _OP_TIME,
                place="host_or_device",
                shown=("operation", "type", "host_or_device", "framework_name"),
                sums=("occurrences", "total_time_us"),
            ),
            ComparedTable(
                "annotations",
                (("annotation", "origin"),),
                "total_self_time_us",
                place="host",
                shown=("annotation", "origin"),
                sums=("occurrences", "total_time_us"),
            ),
        ),
        steps=_listed_by(
            "operation",
            "type",
            "host_or_device",
            "program_id",
            keys=_FRAMEWORK_KEYS,
            of="without_idle",
        ),
    ),
    "op_profile": ComparedTool(
        tables=(
            ComparedTable(
                "categories",
                (("node",), ("node:path",), ("name",)),
                _OP_TIME,
                shown=("name", "node"),
                where={"kind": ("category",)},
                sums=("occurrences", "flops", "hbm_bytes"),
                of="nodes",
            ),
            ComparedTable(
                "ops",
                _NODE_KEYS,
                _OP_TIME,
                shown=("name", "category", "framework_name", "node"),
                where={"kind": ("op",)},
                sums=("occurrences", "total_time_us", "flops", "hbm_bytes"),
                of="nodes",
            ),
        ),
        steps=_listed_by("name", "kind", "node", keys=_NODE_KEYS, of="nodes"),
    ),
    "hlo_stats": ComparedTool(
        tables=(
            ComparedTable(
                "instructions",
                _INSTRUCTION_KEYS,
                _OP_TIME,
                place="place",
                shown=("hlo_op_name", "category", "framework_name", "place"),
                sums=("occurrences", "total_time_us"),
            ),
        ),
        steps=_listed_by(
            "hlo_op_name",
            "category",
            "place",
            "program_id",
            keys=_INSTRUCTION_KEYS,
            of="instructions",
        ),
    ),
    "roofline_model": ComparedTool(
        tables=(
            ComparedTable(
                "records",
                _RECORD_KEYS,
                _OP_TIME,
                shown=("operation", "category", "framework_name", "bound_by"),
                where={"step": ("total",), "include_infeed_outfeed": (True,)},
                without={"operation": ("Program",)},
                sums=("occurrences", "total_time_us"),
            ),
        ),
        steps=_listed_by("operation", "category", "program_id", keys=_RECORD_KEYS, of="records"),
    ),
    "kernel_stats": ComparedTool(
        tables=(
            ComparedTable(
                "kernels",
                _KERNEL_KEYS,
                "total_duration_us",
                shown=("kernel_name", "op_name"),
                sums=("occurrences",),
            ),
            ComparedTable(
                "operations",
                (("op_name",),),
                "total_duration_us",
                shown=("op_name",),
                sums=("occurrences", "kernel_count"),
            ),
        ),
        steps=_listed_by(
            "kernel_name", "op_name", "block_dim", "grid_dim", keys=_KERNEL_KEYS, of="kernels"
        ),
    ),
    "memory_profile": ComparedTool(
        tables=(
            ComparedTable(
                "allocators",
                (("allocator",),),
                "peak_bytes",
                is_sum=False,
                shown=("allocator",),
                sums=("allocations", "deallocations", "peak_heap_bytes", "peak_stack_bytes"),
            ),
            ComparedTable(
                "peak_allocations",
                (
                    ("allocator", "op_name", "region_type", "data_type", "shape"),
                    ("allocator", "op_name", "region_type"),
                ),
                "total_bytes",
                is_sum=False,
                shown=("op_name", "allocator", "region_type", "data_type", "shape"),
                sums=("occurrences",),
            ),
        ),
    ),
    "memory_viewer": ComparedTool(
        tables=(
            ComparedTable(
                "peak_categories",
                (("category",),),
                "size_bytes",
                is_sum=False,
                shown=("category",),
                sums=("buffers", "unpadded_bytes"),
            ),
            ComparedTable(
                "peak_buffers",
                (
                    ("instruction", "op_name", "shape"),
                    ("opcode", "op_name:some", "shape", "instruction:stem"),
                    ("opcode", "op_name:some", "instruction:stem"),
                    ("opcode", "op_name:none", "shape", "instruction:stem"),
                ),
                "size_bytes",
                is_sum=False,
                shown=("instruction", "opcode", "op_name", "shape", "category"),
                sums=("unpadded_bytes",),
            ),
        ),
        not_totals=("memory_space",),
    ),
    "megascale_stats": ComparedTool(
        tables=(
            ComparedTable(
                "collectives",
                (
                    ("rendezvous", "transfer_type", "send_op", "recv_op"),
                    ("transfer_type", "send_op:stem", "recv_op:stem"),
                ),
                "total_stall_us",
                place="host",
                shown=("rendezvous", "transfer_type", "send_op", "recv_op"),
                sums=("occurrences", "sent_bytes"),
            ),
        ),
    ),
    "perf_counters": ComparedTool(
        tables=(
            ComparedTable(
                "counters",
                (("counter", "set"),),
                "total",
                is_sum=False,
                shown=("counter", "set"),
                sums=("samples",),
            ),
        ),
    ),
    "utilization_viewer": ComparedTool(
        tables=(
            ComparedTable(
                "units",
                (("device", "sample", "kernel", "node", "name"), ("kernel", "node", "name")),
                "utilization_ratio",
                is_sum=False,
                shown=("device", "kernel", "name"),
            ),
        ),
    ),
    "inference_profile": ComparedTool(
        tables=(
            ComparedTable(
                "models",
                (("model",),),
                "avg_latency_us",
                is_sum=False,
                shown=("model",),
                sums=("request_count", "batch_count"),
            ),
            ComparedTable(
                "latency",
                (("model", "percentile"),),
                "latency_us",
                is_sum=False,
                shown=("model", "percentile"),
            ),
            ComparedTable(
                "request_averages",
                (("model", "batch_size"),),
                "latency_us",
                is_sum=False,
                shown=("model", "batch_size"),
                sums=("request_count",),
            ),
            ComparedTable(
                "batch_averages",
                (("model", "batch_size"),),
                "latency_us",
                is_sum=False,
                shown=("model", "batch_size"),
                sums=("batch_count",),
            ),
            ComparedTable(
                "tensors",
                (("model", "tensor_pattern"),),
                "p50_us",
                is_sum=False,
                shown=("model", "tensor_pattern"),
                sums=("occurrences",),
            ),
        ),
    ),
}
"""What is compared, by tool. A drawing has no rows to compare, nor has advice: ``graph_viewer`` and
``smart_suggestion`` are not here."""

_NUMBER: Final = re.compile(r"(?:\.\d+)+$")
_SYMBOL_NUMBER: Final = re.compile(r"(?:[._]\d+)+$")
_PROGRAM_ID: Final = re.compile(r"\(\d+\)")


class LacksPartError(ValueError):
    """A row has no key of this kind."""


def key_part(text: Cell, form: str) -> Cell:
    """A cell in the form that its key asks for.

    Raises:
        LacksPartError: there must be some text and is none, or the other way round.
    """
    if (form == "some" and not text) or (form == "none" and text):
        raise LacksPartError
    if not isinstance(text, str):
        return text
    match form:
        case "stem":
            return _NUMBER.sub("", text)
        case "symbol":
            return _SYMBOL_NUMBER.sub("", text)
        case "path":
            return _PROGRAM_ID.sub("", text)
    return text
