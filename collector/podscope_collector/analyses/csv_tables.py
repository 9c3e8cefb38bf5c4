"""Tables of a result as CSV."""

import csv
import io
import re
import zipfile
from collections.abc import Mapping
from typing import Any

from podscope_collector.errors import InputNotFoundError

# What a spreadsheet would run; a plain negative number is none.
_FORMULA = re.compile(r"^[=+\-@\t\r]")
_NUMBER = re.compile(r"^[+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?$")


def csv_answer(tables: Mapping[str, Any], name: str | None) -> tuple[str, bytes]:
    """Content type and bytes: one table as CSV, several as a zip of CSV files.

    Raises:
        InputNotFoundError: there is no such table, or none at all.
    """
    if name is not None:
        if name not in tables:
            message = f"no table '{name[:80]}' in the result; it has: {', '.join(tables) or 'none'}"
            raise InputNotFoundError(message)
        return "text/csv; charset=utf-8", table_csv(tables[name]).encode()
    if not tables:
        message = "the result has no tables; ask for format=json"
        raise InputNotFoundError(message)
    if len(tables) == 1:
        return "text/csv; charset=utf-8", table_csv(next(iter(tables.values()))).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for table, content in tables.items():
            archive.writestr(f"{table}.csv", table_csv(content))
    return "application/zip", packed.getvalue()


def table_csv(table: Mapping[str, Any]) -> str:
    """One table; cells that a spreadsheet would run as a formula are quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column["id"] for column in table["columns"])
    for row in table["rows"]:
        writer.writerow(_cell(cell) for cell in row)
    return text.getvalue()


def data_table_csv(answer: object) -> str | None:
    """XProf's DataTable as CSV with its labels, of several the first; None of what is no table."""
    if isinstance(answer, list) and answer:
        answer = answer[0]
    if not isinstance(answer, dict) or "cols" not in answer:
        return None
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(column.get("label", column.get("id", "")) for column in answer["cols"])
    for row in answer.get("rows", []):
        writer.writerow(_cell((cell or {}).get("v")) for cell in row["c"])
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.match(value):
        return f"'{value}"
    return value
