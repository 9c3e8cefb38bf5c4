"""Names of enum values."""

from typing import Any


def enum_name(enum: Any, value: int) -> str:
    """The name of a value; of one that a newer compiler knows, its number."""
    known = enum.DESCRIPTOR.values_by_number
    return str(known[value].name) if value in known else str(value)
