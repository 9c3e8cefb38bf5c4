"""Compares two results of one tool: of two captures, two hosts, or two ranges of steps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from podscope_analyzers.diff.keys import COMPARED, ComparedTool
from podscope_analyzers.diff.rows import ComparedRows, Divisor, compare_rows
from podscope_analyzers.diff.significance import SIGNIFICANT
from podscope_analyzers.diff.steps import (
    DURATION,
    StepRange,
    compare_steps,
    step_bounds,
    step_count,
)
from podscope_analyzers.result import Cell, Column, Reason, Table, ToolResult

VERSION: Final = 1

_MAX_DEPTH: Final = 8


@dataclass(frozen=True)
class Side:
    """One of the two results.

    Attributes:
        result: The tool's.
        overview: ``overview_page`` of the same hosts, which knows the device and the steps.
        steps: First and last number of the steps to compare; None for all. Only tools that list
            steps can tell them apart.
    """

    result: ToolResult
    overview: ToolResult
    steps: StepRange | None = None

    @property
    def environment(self) -> Mapping[str, Any]:
        """What it ran on."""
        found: Mapping[str, Any] = self.overview.result["run_environment"]
        return found

    @property
    def step_count(self) -> int:
        """All steps recorded, incomplete ones too: sums are over them."""
        found: int = self.overview.result["step_count"]
        return found

    def to_json(self) -> dict[str, Any]:
        """What was compared, JSON-ready."""
        return {
            "scope": self.result.to_json()["scope"],
            "device_type": self.environment["device_type"],
            "hosts": len(self.result.scope.hosts),
            "device_core_count": self.environment["device_core_count"],
            "step_count": self.step_count,
            "steps": None if self.steps is None else list(self.steps),
        }


@dataclass(frozen=True)
class Comparison:
    """What changed from the base to the other.

    Attributes:
        reasons: Why there is nothing to compare; empty where there is.
        notes: What else differs, so that changes may have another cause.
        basis: ``step`` where sums are those of a step of one core or host, else ``capture``.
        summary: The step's change and how the rows of each table matched.
        tables: ``steps`` (where the tool lists them), ``totals``, and the tool's own by name.
    """

    tool: str
    base: Side
    other: Side
    status: Literal["ok", "not_comparable"]
    reasons: Sequence[Reason] = ()
    notes: Sequence[Reason] = ()
    basis: Literal["step", "capture"] = "capture"
    summary: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON-ready values."""
        return {
            "tool": self.tool,
            "version": VERSION,
            "status": self.status,
            "reasons": [vars(one) for one in self.reasons],
            "notes": [vars(one) for one in self.notes],
            "base": self.base.to_json(),
            "other": self.other.to_json(),
            "basis": self.basis,
            "summary": dict(self.summary),
            "tables": {name: table.to_json() for name, table in self.tables.items()},
        }


def compare(base: Side, other: Side) -> Comparison:
    """What changed from one result to the other; the tables' largest changes first."""
    tool = base.result.tool
    reasons = _why_not(base, other)
    if reasons:
        return Comparison(tool, base, other, "not_comparable", reasons)
    compared = COMPARED[tool]
    divisors, basis = _divisors(base, other)
    tables: dict[str, Table] = {}
    # The base knows whether the step got slower, whatever the tool: it is asked once for all.
    steps = COMPARED["overview_page"].steps
    if steps is None:
        problem = "the overview lists steps"
        raise ValueError(problem)
    ranges = [side.steps for side in (base, other)]
    whole = compare_steps(steps, [side.overview.tables["steps"] for side in (base, other)], ranges)
    if compared.steps is not None and _lists(base, other, compared.steps.name):
        listed = _tables(base, other, compared.steps.name)
        described = [side.result.tables.get(compared.steps.of) for side in (base, other)]
        tables["steps"] = compare_steps(compared.steps, listed, ranges, described)
    tables["totals"] = _totals(compared, base, other)
    counts: dict[str, Any] = {}
    for one in compared.tables:
        if any(ranges):
            # These are of all steps together.
            continue
        found = compare_rows(one, _tables(base, other, one.source), divisors)
        if found.table.rows:
            tables[one.name] = found.table
            counts[one.name] = _counts(found)
    return Comparison(
        tool,
        base,
        other,
        "ok",
        notes=[*_notes_of_steps(compared, base, other), *_notes(compared, base, other, basis)],
        basis=basis,
        summary={"step_time": _step_time(whole), "tables": counts},
        tables=tables,
    )


def parameters_for(tool: str, steps: StepRange | None) -> Mapping[str, str]:
    """What to ask a tool so that its result lists the steps of a range."""
    compared = COMPARED.get(tool)
    if steps is None or compared is None or compared.steps is None:
        return {}
    return compared.steps.parameters


def _lists(base: Side, other: Side, name: str) -> bool:
    return any(name in side.result.tables for side in (base, other))


def _why_not(base: Side, other: Side) -> list[Reason]:
    one, two = base.result, other.result
    if one.tool != two.tool:
        return [
            Reason(
                "different_tool",
                f"One is a result of {one.tool}, the other of {two.tool}",
                "Compare results of the same tool",
            )
        ]
    if one.tool not in COMPARED:
        return [
            Reason(
                "tool_without_rows",
                f"{one.tool} has no table whose rows could be matched",
                f"Compare one of {', '.join(COMPARED)}",
            )
        ]
    found = []
    if one.version != two.version:
        found.append(
            Reason(
                "different_version",
                f"The meaning of {one.tool} changed: version {one.version} and {two.version}",
                "Analyze the older capture again",
            )
        )
    devices = [side.environment["device_type"] or "none" for side in (base, other)]
    if devices[0] != devices[1]:
        found.append(
            Reason(
                "different_device",
                f"The base ran on {devices[0]}, the other on {devices[1]}",
                "Compare captures of the same kind of device",
            )
        )
    if any(side.steps for side in (base, other)) and COMPARED[one.tool].steps is None:
        with_steps = [tool for tool, compared in COMPARED.items() if compared.steps is not None]
        found.append(
            Reason(
                "tool_without_steps",
                f"{one.tool} does not tell steps apart",
                f"Compare whole captures, or ranges of steps with {', '.join(with_steps)}",
            )
        )
    for name, side in (("base", base), ("other", other)):
        if side.result.status == "empty":
            why = "; ".join(reason.message.rstrip(".") for reason in side.result.reasons)
            found.append(
                Reason(
                    f"no_data_in_{name}",
                    f"The {name} has nothing to show in {one.tool}{f': {why}' if why else ''}",
                    next((reason.advice for reason in side.result.reasons), "Capture again"),
                )
            )
        elif side.steps is not None:
            found += _without_steps(side, name)
    return found


def _without_steps(side: Side, name: str) -> list[Reason]:
    compared = COMPARED[side.result.tool].steps
    if compared is None:
        return []
    table = side.result.tables.get(compared.name)
    if table is not None and step_count(table, side.steps):
        return []
    first, last = side.steps or (0, 0)
    return [
        Reason(
            f"no_steps_in_{name}",
            f"The {name} lists no step from {first} to {last}",
            _which_steps(side, table),
        )
    ]


def _which_steps(side: Side, table: Table | None) -> str:
    listed = None if table is None else step_bounds(table)
    if listed is not None:
        return f"It lists steps {listed[0]} to {listed[1]}: ask for some of these"
    if not side.step_count:
        return "It has no steps: annotate them in the program, or compare whole captures"
    return f"{side.result.tool} knows no times by step of it: compare whole captures"


def _divisors(base: Side, other: Side) -> tuple[list[Divisor], Literal["step", "capture"]]:
    per_step = base.step_count > 0 and other.step_count > 0
    found = []
    for side in (base, other):
        hosts = max(1, len(side.result.scope.hosts))
        table = side.overview.tables["hosts"]
        ids = [column.id for column in table.columns]
        at, name = ids.index("device_core_count"), ids.index("host")
        taken = set(side.result.scope.hosts)
        counts = [row[at] for row in table.rows if row[name] in taken]
        cores = sum(count for count in counts if isinstance(count, int))
        found.append(
            Divisor(
                steps=side.step_count if per_step else 1,
                hosts=hosts,
                cores=max(1, cores or hosts),
                has_devices=side.environment["hardware_type"] in {"TPU", "GPU"},
            )
        )
    return found, "step" if per_step else "capture"


def _tables(base: Side, other: Side, name: str) -> list[Table]:
    """The table of both sides; of two single hosts as if they were one."""
    empty = Table((), [])
    found = [side.result.tables.get(name, empty) for side in (base, other)]
    hosts = [side.result.scope.hosts for side in (base, other)]
    if len(hosts[0]) == len(hosts[1]) == 1:
        found[1] = _renamed(found[1], hosts[1][0], hosts[0][0])
    return found


def _renamed(table: Table, name: str, new: str) -> Table:
    at = next((i for i, column in enumerate(table.columns) if column.id == "host"), None)
    if at is None or name == new:
        return table
    rows = [[*row[:at], new if row[at] == name else row[at], *row[at + 1 :]] for row in table.rows]
    return replace(table, rows=rows)


def _counts(found: ComparedRows) -> dict[str, Any]:
    return {
        "matched": found.matched,
        "appeared": found.appeared,
        "vanished": found.vanished,
        "base_total": found.base_total,
        "other_total": found.other_total,
    }


def _step_time(steps: Table) -> dict[str, Any] | None:
    """The change of the whole step."""
    ids = [column.id for column in steps.columns]
    for row in steps.rows:
        found = dict(zip(ids, row, strict=True))
        if found["measure"] in DURATION and found["match"] == "both":
            return {**found, "is_significant": found["significance"] == SIGNIFICANT}
    return None


def _notes_of_steps(compared: ComparedTool, base: Side, other: Side) -> list[Reason]:
    if not (base.steps or other.steps) or compared.steps is None or not compared.steps.parameters:
        return []
    return [
        Reason(
            "times_alone",
            "Of a range of steps only self times are known; the totals are of all steps",
            "Compare whole captures for rates, bytes and occurrences",
        )
    ]


def _notes(
    compared: ComparedTool, base: Side, other: Side, basis: Literal["step", "capture"]
) -> list[Reason]:
    notes = []
    counts = [len(side.result.scope.hosts) for side in (base, other)]
    if counts[0] != counts[1]:
        notes.append(
            Reason(
                "different_host_count",
                f"The base has {counts[0]} hosts, the other {counts[1]}",
                "Sums are those of one core or host; rows of single hosts appear or vanish",
            )
        )
    if basis == "capture" and any(table.is_sum for table in compared.tables):
        notes.append(
            Reason(
                "no_steps",
                "One of them has no steps, so sums are those of the whole captures",
                "Annotate steps; a longer capture has larger sums",
            )
        )
    programs = [_programs(side) for side in (base, other)]
    if all(programs) and programs[0].isdisjoint(programs[1]):
        notes.append(
            Reason(
                "different_programs",
                "They ran no program of the same id: it was compiled anew",
                "Rows are matched by name and where the operation is from",
            )
        )
    if any(_has_more(side) for side in (base, other)):
        notes.append(
            Reason(
                "not_all_listed",
                "Not all operations are listed in both, so some appear or vanish that do not",
                "Compare hlo_stats, which lists all",
            )
        )
    notes += [
        Reason(
            "data_lost",
            f"The {name} lost data of {loss.host}: {loss.kind.replace('_', ' ')}",
            "Capture again, shorter or with less detail",
        )
        for name, side in (("base", base), ("other", other))
        for loss in list(side.result.losses)[:3]
    ]
    return notes


def _programs(side: Side) -> set[Cell]:
    for table in side.result.tables.values():
        for at, column in enumerate(table.columns):
            if column.id == "program_id":
                return {row[at] for row in table.rows if row[at] is not None}
    return set()


def _has_more(side: Side) -> bool:
    table = side.result.tables.get("nodes")
    if table is None:
        return False
    ids = [column.id for column in table.columns]
    if "next_cursor" not in ids:
        return False
    at, kind = ids.index("next_cursor"), ids.index("kind")
    return any(row[at] and row[kind] != "op" for row in table.rows)


def _totals(compared: ComparedTool, base: Side, other: Side) -> Table:
    """Every single number of the results, in the order in which they have them."""
    left, right = (dict(_numbers(side.result.result)) for side in (base, other))
    rows: list[Sequence[Cell]] = []
    for name in dict.fromkeys((*left, *right)):
        if name in compared.not_totals:
            continue
        one, two = left.get(name), right.get(name)
        change = None if one is None or two is None else two - one
        ratio = change / abs(one) if one and change is not None else None
        rows.append((name, one, two, change, ratio))
    return Table(
        (
            Column("name", "Name", "string"),
            Column("base", "Base", "number"),
            Column("other", "Other", "number"),
            Column("change", "Change", "number"),
            Column("change_ratio", "Relative change", "number", "ratio"),
        ),
        rows,
    )


def _numbers(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in fields.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            is_table = set(value) == {"columns", "rows"}
            if not is_table and path.count(".") < _MAX_DEPTH:
                yield from _numbers(value, f"{path}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield path, float(value)
