"""What a program raises whose numbers do not fit together."""

from typing import Final

DAMAGED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Nothing checks a captured program: sizes, places and ids in it may be any. What is made of one
instruction costs that instruction its text or its cost, never the host its analysis."""
