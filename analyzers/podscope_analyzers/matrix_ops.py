"""Operations for the matrix units: what they compute, and in how many bits."""

import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.steps import StepDatabase

_MATRIX: Final = re.compile(r"\b(?:convolution|dot|gemm|matmul|einsum)", re.IGNORECASE)
# `bf16[256,1000]{1,0:T(8,128)}`: the element type, the dimensions, their order in memory.
_SHAPE: Final = re.compile(r"= \(?([a-z][a-z0-9]*)\[([0-9,]+)\](?:\{([0-9,]+))?")
_NARROW: Final = re.compile(r"bf16|f16|f8|f4|[su](?:2|4|8|16)\b")
_WIDE: Final = re.compile(r"f32|f64|tf32|c64|c128")


def narrow_ratio(ops: OpDatabase, steps: StepDatabase) -> float | None:
    """Share of the computation in 16 bits or fewer.

    Of the matrix operations where their types are known: names and shapes of kernels, which the
    reference goes by, say `half` for float16 alone, and nothing of most compiled kernels.
    """
    narrow = wide = 0
    self_ps = ops.top("self_time_ps")
    for row, element_type, _, _ in matrix_results(ops):
        if _NARROW.match(element_type):
            narrow += int(self_ps[row])
        elif _WIDE.match(element_type):
            wide += int(self_ps[row])
    if narrow + wide:
        return narrow / (narrow + wide)
    measured = steps.precision_16bit_ps + steps.precision_32bit_ps
    # Without a single name that tells, the kernels' names are not the kind that do.
    return steps.precision_16bit_ps / measured if steps.precision_16bit_ps else None


def matrix_results(ops: OpDatabase) -> Iterator[tuple[int, str, list[int], list[int]]]:
    """Row, element type, dimensions and their order of every matrix operation's result."""
    for row in np.flatnonzero(~ops.is_idle[: ops.top_count]).tolist():
        if not (_MATRIX.search(ops.text("name", row)) or _MATRIX.search(ops.text("category", row))):
            continue
        shape = _SHAPE.search(ops.text("long_name", row))
        if shape is not None:
            dims = [int(dim) for dim in shape[2].split(",") if dim]
            yield (
                row,
                shape[1],
                dims,
                [int(place) for place in (shape[3] or "").split(",") if place],
            )
