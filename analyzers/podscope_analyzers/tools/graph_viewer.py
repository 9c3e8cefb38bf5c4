"""The instructions around one of a compiled program, with what they took, and the HLO text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

import numpy as np

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.hlo.choosing import chosen_program, program_table, required_node
from podscope_analyzers.hlo.custom_calls import custom_call_text
from podscope_analyzers.hlo.generic_analysis import generic_analysis
from podscope_analyzers.hlo.graph.dot import dot_text
from podscope_analyzers.hlo.graph.neighbourhood import (
    Neighbourhood,
    adjacent_names,
    computation_of,
    neighbourhood,
)
from podscope_analyzers.hlo.graph.scene import Scene, scene
from podscope_analyzers.hlo.graph.svg import svg_page
from podscope_analyzers.hlo.instructions import Instruction
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.hlo.text import (
    LONG,
    SHORT,
    ModuleText,
    Printer,
    StackFrames,
    Style,
    module_text,
)
from podscope_analyzers.hlo.text.shape_text import shape_text
from podscope_analyzers.op_metrics.rates import GIBI, Roofline
from podscope_analyzers.options import switch, whole_number
from podscope_analyzers.reasons import NO_PROGRAMS
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_protos.v1 import hlo_pb2

NAME: Final = "graph_viewer"
VERSION: Final = 1
PARAMETERS: Final = {
    "type": "graph (the default), adj_nodes, short_txt or long_txt",
    "module_name": "the program, as module(program id); without it the largest",
    "program_id": "the program by its id alone",
    "node_name": "an instruction or a computation; without it the dearest instruction",
    "graph_width": "how many steps around the instruction are shown; 3 without it",
    "show_metadata": "1 to show what framework and compiler noted",
    "merge_fusion": "1 to draw fusions closed",
    "format": "of a graph: dot, or html with --format xprof",
    "cursor": "where the next part of a graph or text begins, as the part before it says",
    "limit": "instructions of a graph, or lines of a text, in one part",
}
_TYPES: Final = ("graph", "adj_nodes", "short_txt", "long_txt")
_OF_THE_REFERENCE: Final = (*_TYPES, "custom_call", "json", "pb", "pbtxt")
_DEFAULT_WIDTH: Final = 3
_MAX_WIDTH: Final = 100
_LIMITS: Final = {"graph": (200, 1000), "text": (5_000, 200_000)}
_MAX_NEIGHBOURS: Final = 500

_COST_COLUMNS: Final = (
    Column("self_time_ps", "Self time", "integer", "ps"),
    Column("occurrences", "Occurrences", "integer"),
    Column("flops_utilization_ratio", "FLOPS utilization", "number", "ratio"),
    Column("hbm_utilization_ratio", "HBM utilization", "number", "ratio"),
)
_NODE_COLUMNS: Final = (
    Column("name", "Instruction", "string"),
    Column("opcode", "Opcode", "string"),
    Column("category", "Category", "string"),
    Column("shape", "Shape", "string"),
    Column("computation", "Computation", "string"),
    Column("fusion", "In fusion", "string"),
    Column("distance", "Distance", "integer"),
    *_COST_COLUMNS,
    Column("operands_left_out", "Operands not shown", "integer"),
    Column("users_left_out", "Users not shown", "integer"),
    Column("calls", "Calls", "string"),
    Column("op_name", "Operation", "string"),
    Column("source", "Source", "string"),
    Column("is_root", "Root", "boolean"),
    Column("rank", "Layer", "integer"),
    Column("x", "Left edge", "number", "px"),
    Column("y", "Upper edge", "number", "px"),
    Column("width", "Width", "number", "px"),
    Column("height", "Height", "number", "px"),
)
_EDGE_COLUMNS: Final = (
    Column("source", "From", "string"),
    Column("target", "To", "string"),
    Column("operand", "Operand", "integer"),
    Column("points", "Line", "string"),
)
_GROUP_COLUMNS: Final = (
    Column("fusion", "Fusion", "string"),
    Column("kind", "Kind", "string"),
    Column("computation", "Computation", "string"),
    Column("instructions", "Instructions", "integer"),
    Column("distance", "Distance", "integer"),
    *_COST_COLUMNS,
    Column("shape", "Shape", "string"),
    Column("op_name", "Operation", "string"),
    Column("x", "Left edge", "number", "px"),
    Column("y", "Upper edge", "number", "px"),
    Column("width", "Width", "number", "px"),
    Column("height", "Height", "number", "px"),
)
_ADJACENT_COLUMNS: Final = (
    Column("direction", "Direction", "string"),
    Column("name", "Instruction", "string"),
    Column("opcode", "Opcode", "string"),
    Column("shape", "Shape", "string"),
    *_COST_COLUMNS,
)


class _Costs:
    """What instructions of a program took, by their names."""

    def __init__(self, stats: CaptureStats, program: Program) -> None:
        has_devices = stats.device_ops.top_count > 0
        self._database = database = stats.device_ops if has_devices else stats.host_execution
        modules = database.top("module_id").astype(np.uint64)
        rows = np.flatnonzero(modules == np.uint64(program.id)).tolist()
        self._rows = {database.text("name", row): row for row in rows}
        self._roofline = Roofline(
            database, stats.perf_env, stats.run_environment.device_type, own=True
        )
        self._peak_flops = stats.perf_env.peak_tera_flops_per_second * 1000
        self._peak_bandwidth = stats.perf_env.bandwidth(0)

    def of(self, name: str) -> tuple[Cell, Cell, Cell, Cell]:
        """The cells of ``_COST_COLUMNS``; None where nothing was measured."""
        row = self._rows.get(name)
        if row is None:
            return None, None, None, None
        rates = self._roofline[row]
        return (
            int(self._database.column("self_time_ps")[row]),
            int(self._database.column("occurrences")[row]),
            rates.flop_rate / self._peak_flops if self._peak_flops else None,
            rates.hbm_bandwidth * GIBI / self._peak_bandwidth if self._peak_bandwidth else None,
        )

    def dearest(self) -> str | None:
        """Name of the instruction with the most self time."""
        times = self._database.column("self_time_ps")
        return max(self._rows, key=lambda name: int(times[self._rows[name]]), default=None)


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """A program's graph around an instruction, or its text, in our own schema.

    Raises:
        ParameterError: a parameter has no such value, or names what is not there.
    """
    kind = _kind(parameters, _TYPES)
    shape = parameters.get("format", "").strip()
    if shape not in ("", "dot"):
        msg = f"unknown format '{shape[:40]}'; beside the graph there is dot"
        raise ParameterError(msg)
    name = parameters.get("node_name", "").strip()
    program = chosen_program(stats.programs, parameters, name)
    is_text = kind.endswith("_txt")
    least = _LIMITS["text" if is_text else "graph"]
    limit = whole_number(parameters, "limit", *least)
    begin = whole_number(parameters, "cursor", 0, 1 << 40)
    width = whole_number(parameters, "graph_width", _DEFAULT_WIDTH, _MAX_WIDTH)
    metadata, merged = switch(parameters, "show_metadata"), switch(parameters, "merge_fusion")
    reasons: list[Reason] = []
    if stats.programs.left_out:
        message = f"{stats.programs.left_out} programs were too large to be kept."
        reasons.append(Reason("programs_left_out", message, "Analyze the profile with the CLI."))
    tables = {"programs": program_table(stats.programs), **_EMPTY}
    fields: dict[str, Any] = {
        "program": None,
        "program_id": None,
        "node": None,
        "graph_width": width,
        "merge_fusion": merged,
        "graph": None,
        "dot": None,
        "text": None,
    }
    if program is None:
        reasons.append(NO_PROGRAMS)
    else:
        fields["program"], fields["program_id"] = program.title, str(program.id)
        costs = _Costs(stats, program)
        node = _node(program, name or _default_node(program, costs))
        if is_text:
            style = replace(SHORT if kind == "short_txt" else LONG, metadata=metadata)
            fields["text"] = _text(program, style, node if name else None, begin, limit)
        if node is not None:
            fields["node"] = _node_fields(program, node, costs)
            tables["adjacent"] = _adjacent(program, node, costs)
        if kind == "graph" and node is not None:
            around = _around(program, node, width, begin, limit)
            drawn = scene(program, around, opens_fusions=not merged, limit=2 * limit)
            fields["graph"] = _graph(around, drawn)
            tables["nodes"] = _nodes(program, drawn, costs)
            tables["edges"] = _edges(drawn)
            tables["fusions"] = _groups(drawn, costs)
            if shape == "dot":
                fields["dot"] = _dot(program, node, width, metadata=metadata, merged=merged)
            if around.cursor is not None:
                shown = len(around.nodes)
                message = f"{shown} of {around.total} instructions within {width} steps are shown."
                advice = f"Ask for the next with cursor={around.cursor}, or a smaller graph_width."
                reasons.append(Reason("nodes_left_out", message, advice))
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if program is not None else "empty",
        result={**fields, **{name: table.to_json() for name, table in tables.items()}},
        tables=tables,
        reasons=reasons,
    )


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """What the reference answers: text, DOT, bytes, or the names of direct operands and users.

    Raises:
        ParameterError: as the reference refuses it, or a format that it cannot give either.
    """
    kind = _kind(parameters, _OF_THE_REFERENCE, default=None)
    name = parameters.get("node_name", "").strip()
    program = chosen_program(stats.programs, parameters, name)
    if program is None:
        msg = f"{NO_PROGRAMS.message} {NO_PROGRAMS.advice}"
        raise ParameterError(msg)
    metadata, merged = switch(parameters, "show_metadata"), switch(parameters, "merge_fusion")
    if kind in ("short_txt", "long_txt"):
        style = SHORT if kind == "short_txt" else LONG
        return module_text(program, replace(style, metadata=metadata))
    if kind == "pbtxt":
        return str(_as_stored(stats, program))
    if kind == "pb":
        return _as_stored(stats, program).SerializeToString(deterministic=True)
    if kind == "json":
        # The reference refuses it too.
        msg = "type json is not given; pb and pbtxt have the whole program"
        raise ParameterError(msg)
    if not name:
        msg = "node_name should not be empty"
        raise ParameterError(msg)
    node = required_node(program, name, computations_first=True)
    if kind == "custom_call":
        if isinstance(node, hlo_pb2.HloComputationProto):
            msg = f"{node.name} is a computation: only custom calls carry kernels"
            raise ParameterError(msg)
        return custom_call_text(node)
    if kind == "adj_nodes":
        if isinstance(node, hlo_pb2.HloComputationProto):
            msg = f"{node.name} is a computation: only instructions have operands and users"
            raise ParameterError(msg)
        operands, users = adjacent_names(program, node)
        return {"operand_names": operands, "consumer_names": users}
    if parameters.get("format", "") not in ("dot", "html"):
        msg = "a graph is given as dot or html: add format=dot"
        raise ParameterError(msg)
    width = whole_number(parameters, "graph_width", _DEFAULT_WIDTH, _MAX_WIDTH)
    dot = _dot(program, node, width, metadata=metadata, merged=merged)
    if parameters["format"] == "dot":
        return dot
    limit = _LIMITS["graph"][0]
    around = _around(program, node, width, 0, limit)
    return svg_page(node.name, scene(program, around, opens_fusions=not merged, limit=2 * limit))


def _as_stored(stats: CaptureStats, program: Program) -> hlo_pb2.HloProto:
    return hlo_pb2.HloProto.FromString(stats.programs.serialised(program.id))


def _kind(
    parameters: Mapping[str, str], known: Sequence[str], default: str | None = "graph"
) -> str:
    kind = parameters.get("type", "").strip() or default
    if kind is None:
        msg = f"graph_viewer must be given a type: {', '.join(known)}"
        raise ParameterError(msg)
    if kind not in known:
        msg = f"unknown type '{kind[:40]}'; there are {', '.join(known)}"
        raise ParameterError(msg)
    return kind


_EMPTY: Final = {
    "nodes": Table(_NODE_COLUMNS, []),
    "edges": Table(_EDGE_COLUMNS, []),
    "fusions": Table(_GROUP_COLUMNS, []),
    "adjacent": Table(_ADJACENT_COLUMNS, []),
}

_Node = hlo_pb2.HloInstructionProto | hlo_pb2.HloComputationProto


def _default_node(program: Program, costs: _Costs) -> str:
    """The instruction that took most; of a program that did not run, its result."""
    dearest = costs.dearest()
    if dearest is not None and program.instruction(dearest) is not None:
        return dearest
    entry = program.computations.get(program.module.entry_computation_id)
    root = None if entry is None else program.by_id.get(entry.root_id)
    return "" if root is None else root.name


def _node(program: Program, name: str) -> _Node | None:
    return required_node(program, name) if name else None


def _around(program: Program, node: _Node, width: int, begin: int, limit: int) -> Neighbourhood:
    limit = max(1, limit)
    if isinstance(node, hlo_pb2.HloComputationProto):
        return neighbourhood(node, None, width, limit=limit, begin=begin)
    return neighbourhood(computation_of(program, node), node, width, limit=limit, begin=begin)


def _dot(program: Program, node: _Node, width: int, *, metadata: bool, merged: bool) -> str:
    return dot_text(program, node, width, shows_backend=metadata, opens_fusions=not merged)


def _text(
    program: Program, style: Style, wanted: _Node | None, begin: int, limit: int
) -> dict[str, Any]:
    """A part of the module's text, and in which line of all the wanted instruction is."""
    text = ModuleText(program, style)
    line = None
    if isinstance(wanted, hlo_pb2.HloInstructionProto):
        line = text.line_of(wanted)
    end = min(begin + max(1, limit), len(text))
    return {
        "lines": list(text.lines(begin, end)),
        "begin": begin,
        "total": len(text),
        "cursor": str(end) if end < len(text) else None,
        "node_line": line,
    }


def _node_fields(program: Program, node: _Node, costs: _Costs) -> dict[str, Any]:
    if isinstance(node, hlo_pb2.HloComputationProto):
        callers = [
            one.name for one in program.by_id.values() if node.id in one.called_computation_ids
        ]
        return {
            "kind": "computation",
            "name": node.name,
            "computation": node.name,
            "instructions": len(node.instructions),
            "callers": callers[:_MAX_NEIGHBOURS],
        }
    instruction = Instruction(program, node)
    computation = computation_of(program, node)
    frames = StackFrames(program.module)
    time_ps, occurrences, flops, bandwidth = costs.of(node.name)
    return {
        "kind": "instruction",
        "name": node.name,
        "computation": computation.name,
        "opcode": node.opcode,
        "category": instruction.category,
        "shape": shape_text(node.shape),
        "calls": _calls(program, node),
        "callers": [
            one.name
            for one in program.by_id.values()
            if computation.id in one.called_computation_ids
        ][:_MAX_NEIGHBOURS],
        "op_name": node.metadata.op_name,
        "source": _place(instruction),
        "stack": instruction.source.stack.splitlines(),
        "short_text": Printer(program, SHORT).instruction(node),
        "long_text": Printer(program, replace(LONG, metadata=True), frames).instruction(node),
        **_estimate(program, node),
        "self_time_ps": time_ps,
        "occurrences": occurrences,
        "flops_utilization_ratio": flops,
        "hbm_utilization_ratio": bandwidth,
    }


def _estimate(program: Program, proto: hlo_pb2.HloInstructionProto) -> dict[str, int | None]:
    """What XLA's generic analysis says of one run; None where it does not know."""
    totals = generic_analysis(program).totals(proto)
    found = None if totals is None or totals.flops < 0 or totals.bytes < 0 else totals
    return {
        "estimated_flops": None if found is None else int(found.flops),
        "estimated_transcendentals": None if found is None else int(found.transcendentals),
        "estimated_bytes": None if found is None else int(found.bytes),
    }


def _place(instruction: Instruction) -> str:
    """``file:line`` that the instruction is from; of a stack the innermost."""
    source = instruction.source
    if source.file:
        return f"{source.file}:{source.line}"
    return source.stack.partition("\n")[0].rpartition(":")[0]


def _calls(program: Program, proto: hlo_pb2.HloInstructionProto) -> list[str]:
    found = (program.computations.get(one) for one in proto.called_computation_ids)
    return [one.name for one in found if one is not None]


def _adjacent(program: Program, node: _Node, costs: _Costs) -> Table:
    if isinstance(node, hlo_pb2.HloComputationProto):
        return _EMPTY["adjacent"]
    rows: list[list[Cell]] = []
    names = adjacent_names(program, node)
    for direction, found in zip(("operand", "user"), names, strict=True):
        for name in islice(found, _MAX_NEIGHBOURS):
            instruction = program.instruction(name)
            proto = None if instruction is None else instruction.proto
            opcode = "" if proto is None else proto.opcode
            shape = "" if proto is None else shape_text(proto.shape)
            rows.append([direction, name, opcode, shape, *costs.of(name)])
    return Table(_ADJACENT_COLUMNS, rows)


def _graph(around: Neighbourhood, drawn: Scene) -> dict[str, Any]:
    return {
        "instructions": around.total,
        "shown": len(around.nodes),
        "begin": around.begin,
        "left_out": around.total - len(around.nodes),
        "cursor": None if around.cursor is None else str(around.cursor),
        "width_px": round(drawn.width, 1),
        "height_px": round(drawn.height, 1),
    }


def _nodes(program: Program, drawn: Scene, costs: _Costs) -> Table:
    rows: list[list[Cell]] = []
    for one in drawn.nodes:
        proto, box = one.neighbour.proto, one.box
        instruction = Instruction(program, proto)
        rows.append(
            [
                proto.name,
                proto.opcode,
                instruction.category,
                shape_text(proto.shape),
                one.computation,
                one.group,
                one.neighbour.distance,
                *costs.of(proto.name),
                one.neighbour.operands_left_out,
                one.neighbour.users_left_out,
                ", ".join(_calls(program, proto)),
                proto.metadata.op_name,
                _place(instruction),
                one.is_root,
                one.rank,
                *(round(number, 1) for number in (box.x, box.y, box.width, box.height)),
            ]
        )
    return Table(_NODE_COLUMNS, rows)


def _edges(drawn: Scene) -> Table:
    return Table(
        _EDGE_COLUMNS,
        [
            [
                one.source,
                one.target,
                one.operand,
                " ".join(f"{x:.1f},{y:.1f}" for x, y in one.points),
            ]
            for one in drawn.edges
        ],
    )


def _groups(drawn: Scene, costs: _Costs) -> Table:
    rows: list[list[Cell]] = []
    for one in drawn.groups:
        proto, box = one.fusion.proto, one.box
        rows.append(
            [
                proto.name,
                proto.fusion_kind,
                one.computation,
                one.instructions,
                one.fusion.distance,
                *costs.of(proto.name),
                shape_text(proto.shape),
                proto.metadata.op_name,
                *(round(number, 1) for number in (box.x, box.y, box.width, box.height)),
            ]
        )
    return Table(_GROUP_COLUMNS, rows)
