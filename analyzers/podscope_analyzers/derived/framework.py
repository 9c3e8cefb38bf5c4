"""Framework names as levels of derived lines."""

from podscope_analyzers.kernels.levels import MAX_LEVELS
from podscope_analyzers.op_names import OpCategory, parse_op_name


def framework_scopes(full_name: str) -> list[str]:
    """The scopes around an operation of TensorFlow or JAX, outermost first; none for others."""
    op = parse_op_name(full_name)
    if op.category not in (OpCategory.TENSORFLOW, OpCategory.JAX):
        return []
    # Not split further than is looked at: a name may be as long as the file.
    return op.name.split("/", MAX_LEVELS)[:-1]
