"""What every tool answers: one envelope, typed tables, reasons for what is absent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from podscope_analyzers.clocks import HostClock

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

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Table":
        """The table that ``to_json`` described."""
        return cls([Column(**column) for column in stored["columns"]], stored["rows"])


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
    """Data that the capture lost, with what it touches.

    Attributes:
        host: Whose capture it was.
        plane: The plane that lost it; empty where the tracer does not say.
        kind: What was lost, from a closed list (``events_dropped``, ``host_missing`` …).
        count: How many; 0 where the tracer does not say.
    """

    host: str
    plane: str
    kind: str
    count: int


Severity = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Evidence:
    """A figure that advice rests on.

    Attributes:
        name: What was measured, its unit at the end where it has one.
        unit: ``ratio``, ``us`` …; empty for counts.
        threshold: What it was held against; None where it only says more.
    """

    name: str
    value: float
    unit: str = ""
    threshold: float | None = None


@dataclass(frozen=True)
class Advice:
    """What to do about a capture, and the figures that say so.

    Attributes:
        code: The rule's id, from a closed list; see ``docs/reference/advice.md``.
        title: What to do, in a few words.
        message: What was found, with the numbers.
        action: What to do, in a sentence or two.
        link: The entry of the documentation.
    """

    code: str
    severity: Severity
    title: str
    message: str
    action: str
    link: str
    evidence: Sequence[Evidence] = ()

    def to_json(self) -> dict[str, Any]:
        """The advice as JSON-ready values."""
        return {**vars(self), "evidence": [dict(vars(one)) for one in self.evidence]}


@dataclass(frozen=True)
class MissingHost:
    """A host that was asked for and is not in the result."""

    host: str
    reason: str


@dataclass(frozen=True)
class Scope:
    """What a result covers.

    Attributes:
        clocks: Of its hosts, where the capture measured them.
    """

    hosts: Sequence[str]
    session: str | None = None
    capture: str | None = None
    missing_hosts: Sequence[MissingHost] = ()
    clocks: Mapping[str, HostClock] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolResult:
    """A tool's answer in our own schema.

    Attributes:
        result: The tool's own fields, JSON-ready; see ``docs/reference/tools``.
        tables: The tables among them by name, for CSV.
        losses: What is missing of the capture and touches this result.
        advice: What the rules that concern this tool found, the most severe first.
    """

    tool: str
    version: int
    scope: Scope
    status: Literal["ok", "empty"]
    result: Mapping[str, Any]
    tables: Mapping[str, Table] = field(default_factory=dict)
    reasons: Sequence[Reason] = ()
    losses: Sequence[Loss] = ()
    advice: Sequence[Advice] = ()

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
            "advice": [one.to_json() for one in self.advice],
            "result": dict(self.result),
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any], tables: Mapping[str, Any]) -> "ToolResult":
        """The result that ``to_json`` described, with its tables described apart."""
        scope = body["scope"]
        return cls(
            tool=body["tool"],
            version=body["version"],
            scope=Scope(
                hosts=scope["hosts"],
                session=scope["session"],
                capture=scope["capture"],
                missing_hosts=[MissingHost(**one) for one in scope["missing_hosts"]],
            ),
            status=body["status"],
            result=body["result"],
            tables={name: Table.from_json(table) for name, table in tables.items()},
            reasons=[Reason(**one) for one in body["reasons"]],
            losses=[Loss(**one) for one in body["losses"]],
            advice=[
                Advice(**{**one, "evidence": [Evidence(**given) for given in one["evidence"]]})
                for one in body["advice"]
            ],
        )
