"""What a compiled program needs of memory: the peak, what makes it up, and where each part is."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError, ProgramError
from podscope_analyzers.hlo.allocation_timeline import block_colors, timeline_page
from podscope_analyzers.hlo.buffers import Allocation, Buffer, BufferSource
from podscope_analyzers.hlo.choosing import chosen_program, program_table
from podscope_analyzers.hlo.memory_usage import HBM, Block, MemoryUsage, PeakBuffer
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.options import switch, whole_number
from podscope_analyzers.reasons import NO_PROGRAMS
from podscope_analyzers.result import Cell, Column, Reason, Scope, Table, ToolResult
from podscope_protos.v1 import hlo_pb2

NAME: Final = "memory_viewer"
VERSION: Final = 2
PARAMETERS: Final = {
    "module_name": "the program, as module(program id); the largest without it",
    "program_id": "the program by its id alone",
    "memory_space": "0 for the main memory, 1 for vector memory, others as XLA numbers them",
    "small_buffer_bytes": "buffers below it are one entry together; 16384 without it",
    "view_memory_allocation_timeline": "1 or true: in xprof format, the timeline's HTML page",
    "timeline_noise": "taken as the reference takes it, without effect",
}

_HOST_MEMORY: Final = 5
_SMALL_BYTES: Final = 16384
_MIB: Final = 1 << 20
_MAX_POSITIONS: Final = 10_000
_MAX_ROWS: Final = 5_000
_SPACE_NAMES: Final = {0: "HBM", 1: "VMEM"}

_SPACE_COLUMNS: Final = (
    Column("memory_space", "Memory space", "integer"),
    Column("name", "Name", "string"),
    Column("allocations", "Allocations", "integer"),
    Column("allocated_bytes", "Allocated", "integer", "bytes"),
)
_HEAP_COLUMNS: Final = (
    Column("position", "Position", "integer"),
    Column("instruction", "Instruction", "string"),
    Column("heap_bytes", "Heap", "integer", "bytes"),
    Column("unpadded_heap_bytes", "Heap without padding", "integer", "bytes"),
)
_PEAK_COLUMNS: Final = (
    Column("order", "Order", "integer"),
    Column("size_rank", "By size", "integer"),
    Column("buffer_id", "Buffer", "integer"),
    Column("instruction", "Instruction", "string"),
    Column("opcode", "Opcode", "string"),
    Column("op_name", "Operation", "string"),
    Column("category", "Category", "string"),
    Column("shape", "Shape", "string"),
    Column("size_bytes", "Size", "integer", "bytes"),
    Column("unpadded_bytes", "Without padding", "integer", "bytes"),
    Column("padding_bytes", "Padding", "integer", "bytes"),
    Column("begin_position", "Allocated at", "integer"),
    Column("end_position", "Freed at", "integer"),
    Column("source", "Source", "string"),
)
_CATEGORY_COLUMNS: Final = (
    Column("category", "Category", "string"),
    Column("buffers", "Buffers", "integer"),
    Column("size_bytes", "Size", "integer", "bytes"),
    Column("unpadded_bytes", "Without padding", "integer", "bytes"),
    Column("peak_ratio", "Share of the peak", "number", "ratio"),
)
_INDEFINITE_COLUMNS: Final = (
    Column("allocation", "Allocation", "integer"),
    Column("size_bytes", "Size", "integer", "bytes"),
    Column("category", "Category", "string"),
    Column("is_parameter", "Parameter", "boolean"),
    Column("is_live_out", "May be an output", "boolean"),
    Column("is_reusable", "Reusable", "boolean"),
    Column("buffers", "Buffers", "integer"),
    Column("instructions", "Instructions", "string"),
    Column("shape", "Common shape", "string"),
)
_BLOCK_COLUMNS: Final = (
    Column("buffer_id", "Buffer", "integer"),
    Column("name", "Name", "string"),
    Column("category", "Category", "string"),
    Column("offset_bytes", "Offset", "integer", "bytes"),
    Column("size_bytes", "Size", "integer", "bytes"),
    Column("unpadded_bytes", "Without padding", "integer", "bytes"),
    Column("begin_position", "Allocated at", "integer"),
    Column("end_position", "Freed at", "integer"),
    Column("op_name", "Operation", "string"),
    Column("shape", "Shape", "string"),
)
_SHOWN_INSTRUCTIONS: Final = 5


def analyze(stats: CaptureStats, scope: Scope, parameters: Mapping[str, str]) -> ToolResult:
    """The program's memory in our own schema, all sizes in bytes."""
    programs = stats.programs
    color = whole_number(parameters, "memory_space", HBM)
    switch(parameters, "view_memory_allocation_timeline")  # Here the blocks are always given.
    program = chosen_program(programs, parameters)
    reasons: list[Reason] = []
    if programs.left_out:
        message = f"{programs.left_out} programs were too large to be kept."
        reasons.append(Reason("programs_left_out", message, "Analyze the profile with the CLI."))
    usage = None
    if program is None:
        reasons.append(NO_PROGRAMS)
    else:
        try:
            usage = _usage(program, parameters)
        except ProgramError as error:
            advice = "Choose another program with module_name; this one was captured damaged."
            reasons.append(Reason("bad_program", str(error), advice))
    tables = {
        "programs": program_table(programs),
        "memory_spaces": _spaces(usage),
        "heap": _heap(usage),
        "peak_buffers": _peak_buffers(usage),
        "peak_categories": _peak_categories(usage),
        "indefinite": _indefinite(usage),
        "blocks": _blocks(usage),
    }
    if usage is not None and not usage.allocations:
        message = f"{usage.program.title} has no buffers in memory space {color}."
        advice = "Choose another of memory_spaces; some compilers keep no buffer assignment."
        reasons.append(Reason("no_buffers", message, advice))
    listed = (len(usage.peak_buffers), len(usage.blocks)) if usage else (0,)
    if max(listed) > _MAX_ROWS:
        message = f"Of buffers and of blocks at most {_MAX_ROWS} are listed, the largest."
        reasons.append(Reason("rows_left_out", message, "All of them are in --format xprof."))
    has_rows = usage is not None and bool(usage.allocations)
    return ToolResult(
        tool=NAME,
        version=VERSION,
        scope=scope,
        status="ok" if has_rows else "empty",
        result={
            "program": None if program is None else program.title,
            "entry_computation": None if program is None else program.module.entry_computation_name,
            "memory_space": color,
            "summary": None if usage is None else _summary(usage),
            **{name: table.to_json() for name, table in tables.items()},
        },
        tables=tables,
        reasons=reasons,
    )


def _usage(program: Program, parameters: Mapping[str, str], *, also: int = HBM) -> MemoryUsage:
    """The program in the memory space that is asked for.

    Args:
        program: Whose.
        parameters: Name the space.
        also: A space that is answered for even where the program has none.

    Raises:
        ParameterError: it is none of this program's; HBM and VMEM are every program's.
        ProgramError: the program contradicts itself.
    """
    color = whole_number(parameters, "memory_space", HBM)
    small = whole_number(parameters, "small_buffer_bytes", _SMALL_BYTES)
    usage = MemoryUsage(program, color, small)
    known = {*_SPACE_NAMES, *usage.assignment.colors}
    if color not in known and color != also:
        named = ", ".join(f"{one} ({_space_name(one)})" for one in sorted(known))
        msg = f"{program.title} has no memory space {color}; there are {named}"
        raise ParameterError(msg)
    return usage


def _space_name(color: int) -> str:
    return _SPACE_NAMES.get(color, f"space {color}")


def _summary(usage: MemoryUsage) -> dict[str, Any]:
    indefinite, total = usage.indefinite_total_bytes(), usage.total_bytes()
    temporary = total - indefinite
    return {
        "peak_bytes": usage.peak_bytes,
        "peak_unpadded_bytes": usage.peak_unpadded_bytes,
        "padding_bytes": usage.peak_bytes - usage.peak_unpadded_bytes,
        "peak_position": usage.walk.peak_position,
        "positions": len(usage.walk.heap_bytes),
        "allocated_bytes": total,
        "indefinite_bytes": indefinite,
        "parameter_bytes": usage.parameter_bytes(),
        "live_out_bytes": usage.live_out_bytes(),
        "non_reusable_bytes": usage.non_reusable_bytes(),
        "temporary_bytes": temporary,
        "temporary_at_peak_bytes": usage.peak_bytes - indefinite,
        "fragmentation_ratio": (total - usage.peak_bytes) / temporary if temporary > 0 else None,
        "scoped_vmem_bytes": usage.scoped_vmem.size_bytes,
        "scoped_vmem_instruction": usage.scoped_vmem.instruction,
        "small_buffer_bytes": usage.small_buffer_bytes,
    }


def _spaces(usage: MemoryUsage | None) -> Table:
    rows: list[list[Cell]] = []
    for color in usage.assignment.colors if usage else ():
        found = usage.assignment.of_color(color) if usage else []
        rows.append([color, _space_name(color), len(found), sum(one.proto.size for one in found)])
    return Table(_SPACE_COLUMNS, rows)


def _heap(usage: MemoryUsage | None) -> Table:
    """The heap by position; of a long walk the highest of every few positions."""
    if usage is None:
        return Table(_HEAP_COLUMNS, [])
    walk, always = usage.walk, usage.indefinite_bytes
    count = len(walk.heap_bytes)
    width = -(-count // _MAX_POSITIONS) or 1
    heap = walk.heap_bytes
    shown = (
        max(range(i, min(i + width, count)), key=heap.__getitem__) for i in range(0, count, width)
    )
    return Table(
        _HEAP_COLUMNS,
        [
            [i, walk.instructions[i], heap[i] + always, walk.unpadded_bytes[i] + always]
            for i in shown
        ],
    )


def _peak_buffers(usage: MemoryUsage | None) -> Table:
    if usage is None:
        return Table(_PEAK_COLUMNS, [])
    rank = {place: number for number, place in enumerate(usage.by_size)}
    rows: list[list[Cell]] = []
    for order, one in enumerate(usage.peak_buffers):
        if rank[order] >= _MAX_ROWS:
            continue
        if one.buffer is None:
            text = f"smaller than {usage.small_buffer_bytes} bytes"
            rows.append(
                [order, rank[order], None, text, "", "", "", "", one.size_bytes, *[None] * 4, ""]
            )
            continue
        buffer = one.buffer
        begin, end = usage.walk.spans.get(buffer.id, (None, None))
        rows.append(
            [
                order,
                rank[order],
                buffer.id,
                buffer.name,
                buffer.instruction.opcode,
                buffer.op_name,
                one.category,
                buffer.shape_text,
                one.size_bytes,
                one.unpadded_bytes,
                one.size_bytes - one.unpadded_bytes,
                begin,
                end,
                _source_text(buffer.source),
            ]
        )
    return Table(_PEAK_COLUMNS, rows)


def _peak_categories(usage: MemoryUsage | None) -> Table:
    """What the peak is made of, the largest first; small buffers have their categories too."""
    sums: dict[str, list[int]] = {}
    for buffer, category in usage.live_at_peak if usage else ():
        found = sums.setdefault(category, [0, 0, 0])
        found[0] += 1
        found[1] += buffer.size_bytes
        found[2] += buffer.unpadded_bytes
    total = sum(one[1] for one in sums.values())
    rows: list[list[Cell]] = [
        [category, *found, found[1] / total if total else None]
        for category, found in sorted(sums.items(), key=lambda item: -item[1][1])
    ]
    return Table(_CATEGORY_COLUMNS, rows)


def _source_text(source: BufferSource | None) -> str:
    return "" if source is None else f"{source.file}:{source.line}"


def _indefinite(usage: MemoryUsage | None) -> Table:
    rows: list[list[Cell]] = []
    for one in usage.indefinite if usage else ():
        names = [buffer.name for buffer, _ in one.assigned]
        more = len(names) - _SHOWN_INSTRUCTIONS
        shown = ", ".join(names[:_SHOWN_INSTRUCTIONS]) + (f" and {more} more" if more > 0 else "")
        proto = one.proto
        rows.append(
            [
                proto.index,
                proto.size,
                one.category,
                proto.is_entry_computation_parameter,
                proto.maybe_live_out,
                one.is_reusable,
                len(names),
                shown,
                _common_shape(one),
            ]
        )
    return Table(_INDEFINITE_COLUMNS, rows)


def _common_shape(allocation: Allocation) -> str:
    shapes = {buffer.shape_text for buffer, _ in allocation.assigned}
    return shapes.pop() if len(shapes) == 1 else ""


def _blocks(usage: MemoryUsage | None) -> Table:
    rows: list[list[Cell]] = []
    blocks = usage.blocks if usage else ()
    # A container before what lies in it: the order stays, the smallest go.
    largest = sorted(range(len(blocks)), key=lambda i: -blocks[i].size_bytes)[:_MAX_ROWS]
    for block in (blocks[i] for i in sorted(largest)):
        buffer = block.buffer
        rows.append(
            [
                None if buffer is None else buffer.id,
                block.category if buffer is None else buffer.name,
                block.category,
                block.offset_bytes,
                block.size_bytes,
                None if buffer is None else buffer.unpadded_bytes,
                block.begin,
                block.end,
                "" if buffer is None else buffer.op_name,
                "" if buffer is None else buffer.shape_text,
            ]
        )
    return Table(_BLOCK_COLUMNS, rows)


def xprof_json(stats: CaptureStats, parameters: Mapping[str, str]) -> object:
    """The reference's JSON, which leaves out what has its default value; or its timeline's page.

    Raises:
        ParameterError: there is no such program, or none at all.
        ProgramError: the program contradicts itself.
    """
    program = chosen_program(stats.programs, parameters)
    if program is None:
        msg = f"{NO_PROGRAMS.message} {NO_PROGRAMS.advice}"
        raise ParameterError(msg)
    # The reference answers for the host's memory of any program: it may be empty.
    usage = _usage(program, parameters, also=_HOST_MEMORY)
    small = usage.small_buffer_bytes
    if switch(parameters, "view_memory_allocation_timeline"):
        return timeline_page(usage)
    walk, always = usage.walk, usage.indefinite_bytes
    heap = [_heap_object(i, one, small) for i, one in enumerate(usage.peak_buffers)]
    by_size = usage.by_size
    to_rank = {place: number for number, place in enumerate(by_size)}
    return _set_only(
        {
            "heapSizes": [_mib(size) + _mib(always) for size in walk.heap_bytes],
            "unpaddedHeapSizes": [_mib(size) + _mib(always) for size in walk.unpadded_bytes],
            "hloInstructionNames": list(walk.instructions),
            "maxHeap": heap,
            "maxHeapBySize": [heap[i] for i in by_size],
            "maxHeapToBySize": [to_rank[i] for i in range(len(heap))],
            "bySizeToMaxHeap": by_size,
            "logicalBufferSpans": {
                str(one): _set_only({"start": begin, "limit": end})
                for one, (begin, end) in walk.spans.items()
            },
            "moduleName": program.module.name,
            "entryComputationName": program.module.entry_computation_name,
            "peakHeapMib": _mib(walk.peak_bytes) + _mib(always),
            "peakUnpaddedHeapMib": _mib(walk.peak_unpadded_bytes) + _mib(always),
            "peakHeapSizePosition": walk.peak_position,
            "entryComputationParametersMib": _mib(usage.parameter_bytes()),
            "nonReusableMib": _mib(usage.non_reusable_bytes()),
            "maybeLiveOutMib": _mib(usage.live_out_bytes()),
            "totalBufferAllocationMib": _mib(usage.total_bytes()),
            "indefiniteBufferAllocationMib": _mib(usage.indefinite_total_bytes()),
            "indefiniteLifetimes": [_lifetime(usage, one) for one in usage.indefinite],
            "maxScopedVmemAllocationMib": _mib(usage.scoped_vmem.size_bytes),
            "maxScopedVmemInstructionName": usage.scoped_vmem.instruction,
            "bufferBlocks": list(_buffer_blocks(usage)),
        }
    )


def _mib(size_bytes: int) -> float:
    return size_bytes / _MIB


def _set_only(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that do not have their default value."""
    return {name: value for name, value in fields.items() if value}


def _heap_object(number: int, one: PeakBuffer, small: int) -> dict[str, Any]:
    buffer = one.buffer
    if buffer is None:
        label = f"small (<{small} bytes)"
        size = _mib(one.size_bytes)
        return {
            "numbered": number,
            "label": label,
            "logicalBufferId": -1,
            "logicalBufferSizeMib": size,
        }
    return {
        "numbered": number,
        **_set_only(
            {
                "label": f"{buffer.instruction.name}: {buffer.shape_text} # {buffer.op_name}",
                "logicalBufferId": buffer.id,
                "logicalBufferSizeMib": _mib(one.size_bytes),
                "unpaddedShapeMib": _mib(one.unpadded_bytes),
                "instructionName": buffer.name,
                "shapeString": buffer.shape_text,
                "tfOpName": buffer.op_name,
                "groupName": one.category,
                "opCode": buffer.instruction.opcode,
                "sourceInfo": _source_json(buffer),
            }
        ),
    }


def _source_json(buffer: Buffer) -> dict[str, Any] | None:
    source = buffer.source
    if source is None:
        return None
    return _set_only(
        {"fileName": source.file, "lineNumber": source.line, "stackFrame": source.stack}
    )


def _lifetime(usage: MemoryUsage, one: Allocation) -> dict[str, Any]:
    proto = one.proto
    # The reference lists buffers that the assignment does not define too, without a shape.
    buffers = [usage.assignment.buffers.get(place.logical_buffer_id) for place in proto.assigned]
    shapes = {"" if buffer is None else buffer.shape_text for buffer in buffers}
    attributes = {
        "entry computation parameter": proto.is_entry_computation_parameter,
        "may-be live out": proto.maybe_live_out,
        "reusable": one.is_reusable,
    }
    return _set_only(
        {
            "id": str(proto.index) if proto.index else "",
            "sizeMib": _mib(proto.size),
            "attributes": [name for name, is_set in attributes.items() if is_set],
            "logicalBuffers": [
                _assigned(place, buffer)
                for place, buffer in zip(proto.assigned, buffers, strict=True)
            ],
            "commonShape": shapes.pop() if len(shapes) == 1 else "",
        }
    )


def _assigned(place: hlo_pb2.BufferAllocationProto.Assigned, buffer: Buffer | None) -> object:
    return _set_only(
        {
            "id": str(place.logical_buffer_id or ""),
            "sizeMib": _mib(place.size),
            "shape": buffer.shape_text if buffer else "",
            "hloName": buffer.instruction.name if buffer else "",
            "shapeIndex": [str(i) for i in buffer.shape_index] if buffer else [],
        }
    )


def _buffer_blocks(usage: MemoryUsage) -> Iterator[dict[str, Any]]:
    for block, color in block_colors(usage):
        yield _set_only({**_block_fields(block), "color": color})


def _block_fields(block: Block) -> dict[str, Any]:
    buffer = block.buffer
    place = {
        "offset": block.offset_bytes,
        "size": block.size_bytes,
        "startStep": block.begin,
        "endStep": block.end,
        "category": block.category,
    }
    if buffer is None:
        return {"logicalBufferId": -1, "name": block.category, **place}
    return {
        "logicalBufferId": buffer.id,
        "name": buffer.name,
        **place,
        "tfOpName": buffer.op_name,
        "shapeString": buffer.shape_text,
        "unpaddedSize": buffer.unpadded_bytes,
        "sourceInfo": _source_json(buffer),
    }
