from podscope_analyzers.diff.keys import ComparedTable
from podscope_analyzers.diff.rows import Divisor, compare_rows
from podscope_analyzers.result import Cell, Column, Table

TIMES = ComparedTable("ops", keys=(("name",),), measure="self_time_us", shown=("name",))


def times(*rows: tuple[str, float | None]) -> Table:
    columns = (Column("name", "Name", "string"), Column("self_time_us", "Time", "number", "us"))
    return Table(columns, rows)


def compared(base: Table, other: Table) -> dict[Cell, tuple[Cell, ...]]:
    """Match, both measures, change and relative change by name."""
    found = compare_rows(TIMES, [base, other], [Divisor(), Divisor()]).table
    ids = [column.id for column in found.columns]
    wanted = ("match", "base_self_time_us", "other_self_time_us", "change_us", "change_ratio")
    return {row[0]: tuple(row[ids.index(name)] for name in wanted) for row in found.rows}


def test_what_is_not_there_counts_as_nothing() -> None:
    assert compared(times(("dot", 4.0), ("old", 2.0)), times(("dot", 5.0), ("new", 3.0))) == {
        "dot": ("both", 4.0, 5.0, 1.0, 0.25),
        "old": ("vanished", 2.0, None, -2.0, -1.0),
        "new": ("appeared", None, 3.0, 3.0, None),
    }


def test_what_one_side_did_not_measure_has_no_change() -> None:
    assert compared(times(("dot", 4.0), ("add", None)), times(("dot", None), ("add", 1.0))) == {
        "dot": ("both", 4.0, None, None, None),
        "add": ("both", None, 1.0, None, None),
    }
