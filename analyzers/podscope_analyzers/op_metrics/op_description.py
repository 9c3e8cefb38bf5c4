"""What an operation's row says of it beside its numbers."""

from dataclasses import dataclass

from podscope_analyzers.html_text import escape
from podscope_analyzers.op_metrics.database import CoreType, OpDatabase
from podscope_analyzers.op_names import is_outside_compilation

_CORES = {CoreType.TENSOR_CORE: "TensorCore", CoreType.SPARSE_CORE: "SparseCore"}


@dataclass(frozen=True)
class OpDescription:
    """One operation in words.

    Attributes:
        program_id: Its program, as a decimal number.
        name: The instruction's name.
        expression: The instruction's text; its name where the tracer gives no text.
        framework_name: Name in the framework.
        is_rematerialized: Whether it computes again what was thrown away to save memory.
        is_outside_compilation: Whether it waits for what the host computes for the program.
        core: ``TensorCore``, ``SparseCore``, or empty.
        source: ``file:line``; empty when unknown.
        origin: The same, or without a file the innermost frame of the stack.
        source_html: The source with the stack as a tooltip, as the reference's clients show it.
    """

    program_id: str
    name: str
    expression: str
    category: str
    framework_name: str
    is_rematerialized: bool
    is_outside_compilation: bool
    core: str
    source: str
    origin: str
    source_html: str


def describe_op(database: OpDatabase, row: int) -> OpDescription:
    """What is known of the operation of a row."""
    long_name, name = database.text("long_name", row), database.text("name", row)
    expression = long_name or name
    framework_name = database.text("provenance", row)
    file, line = database.text("source_file", row), int(database.column("source_line")[row])
    source = f"{file}:{line}" if file and line != -1 else ""
    html = ""
    if source:
        stack = _escaped(database.text("source_stack", row))
        html = f"<div class='source-info-cell' title='{stack}'>{_escaped(source)}</div>"
    return OpDescription(
        program_id=str(database.module_id(row)),
        name=expression.partition(" = ")[0].removeprefix("%"),
        expression=expression,
        category=database.text("category", row),
        framework_name=framework_name,
        is_rematerialized=".remat" in expression.partition("=")[0]
        or "rematted_computation" in framework_name,
        is_outside_compilation=is_outside_compilation(framework_name, expression),
        core=_CORES.get(CoreType(int(database.column("core_type")[row])), ""),
        source=source,
        # Of a frame, less its column.
        origin=source or database.text("source_stack", row).partition("\n")[0].rpartition(":")[0],
        source_html=html,
    )


def _escaped(text: str) -> str:
    return escape(text).replace("&#x27;", "&#39;")
