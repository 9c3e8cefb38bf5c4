"""Every compiled function of the analyzers, by subject; each compiles at its first call.

Write a kernel as a plain function under ``@kernel(signature)`` in a module of this package,
with a Python function around it that makes the arrays, and its slow obvious reference in the
tests.
"""

from podscope_analyzers.kernels.factorise import factorise
from podscope_analyzers.kernels.groups import GroupSums, sum_groups
from podscope_analyzers.kernels.spans import Nesting, natural_order, nest, union, union_length

__all__ = [
    "GroupSums",
    "Nesting",
    "factorise",
    "natural_order",
    "nest",
    "sum_groups",
    "union",
    "union_length",
]
