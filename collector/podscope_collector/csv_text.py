"""A table as CSV that a spreadsheet does not take for formulas."""

import csv
import io

from podscope_analyzers.result import Cell, Table

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def csv_text(table: Table) -> str:
    """The table with a heading of column ids; empty cells for what could not be computed."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow([column.id for column in table.columns])
    writer.writerows([_guarded(cell) for cell in row] for row in table.rows)
    return written.getvalue()


def _guarded(cell: Cell) -> Cell:
    if isinstance(cell, str) and cell.startswith(_FORMULA_STARTS) and not _is_number(cell):
        # A leading quote makes spreadsheets show the text as it is.
        return f"'{cell}"
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return "" if cell is None else cell


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
