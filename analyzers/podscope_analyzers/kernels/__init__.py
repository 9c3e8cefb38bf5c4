"""Every compiled function of the analyzers, by subject; each compiles at its first call.

Write a kernel as a plain function under ``@kernel(signature)`` in a module of this package,
with a Python function around it that makes the arrays, and its slow obvious reference in the
tests.
"""

from podscope_analyzers.kernels.factorise import factorise
from podscope_analyzers.kernels.groups import (
    Cells,
    GroupSums,
    count_codes,
    sum_groups,
    sum_nested,
)
from podscope_analyzers.kernels.spans import (
    Nesting,
    extent,
    natural_order,
    nest,
    own_time_of_rows,
    union,
    union_length,
)

__all__ = [
    "Cells",
    "GroupSums",
    "Nesting",
    "count_codes",
    "extent",
    "factorise",
    "natural_order",
    "nest",
    "own_time_of_rows",
    "sum_groups",
    "sum_nested",
    "union",
    "union_length",
]
