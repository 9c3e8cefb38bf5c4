"""What every tool answers: one envelope, typed tables, reasons for what is absent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

ColumnType = Literal["string", "number", "integer", "boolean"]
Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        id: snake_case, with the unit at its end (``total_self_time_us``).
        label: What people read.
        type: Type of every cell that is not null.
        unit: ``us``, ``bytes``, ``ratio`` …; empty for counts and text.
    """

    id: str
    label: str
    type: ColumnType
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; a cell that cannot be computed is None, never NaN."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def to_json(self) -> dict[str, Any]:
        """The table as JSON-ready values."""
        return {
            "columns": [
                {"id": c.id, "label": c.label, "type": c.type, "unit": c.unit} for c in self.columns
            ],
            "rows": [list(row) for row in self.rows],
        }


@dataclass(frozen=True)
class Reason:
    """Why a result, or a part of it, is absent, and what to do about it.

    Attributes:
        code: From a closed list (``no_steps``, ``no_device_plane``, ``no_hlo`` …).
    """

    code: str
    message: str
    advice: str


@dataclass(frozen=True)
class Loss:
    """Data that the capture lost, with what it touches."""

    host: str
    plane: str
    kind: str
    count: int


@dataclass(frozen=True)
class MissingHost:
    """A host that was asked for and is not in the result."""

    host: str
    reason: str


@dataclass(frozen=True)
class Scope:
    """What a result covers."""

    hosts: Sequence[str]
    session: str | None = None
    capture: str | None = None
    missing_hosts: Sequence[MissingHost] = ()


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer in our own schema.

    Attributes:
        result: The tool's own fields, JSON-ready; see ``docs/reference/tools``.
        tables: The tables among them by name, for CSV.
    """

    tool: str
    version: int
    scope: Scope
    status: Literal["ok", "empty"]
    result: Mapping[str, Any]
    tables: Mapping[str, Table] = field(default_factory=dict)
    reasons: Sequence[Reason] = ()
    losses: Sequence[Loss] = ()

    def to_json(self) -> dict[str, Any]:
        """The envelope as JSON-ready values."""
        return {
            "tool": self.tool,
            "version": self.version,
            "scope": {
                "capture": self.scope.capture,
                "session": self.scope.session,
                "hosts": list(self.scope.hosts),
                "missing_hosts": [
                    {"host": m.host, "reason": m.reason} for m in self.scope.missing_hosts
                ],
            },
            "status": self.status,
            "reasons": [
                {"code": r.code, "message": r.message, "advice": r.advice} for r in self.reasons
            ],
            "losses": [
                {"host": x.host, "plane": x.plane, "kind": x.kind, "count": x.count}
                for x in self.losses
            ],
            "result": dict(self.result),
        }
