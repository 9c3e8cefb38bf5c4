"""Framework operation names: what TensorFlow, JAX and tf.data write into event names."""

import re
from dataclasses import dataclass
from enum import IntEnum

DATASET_TYPE = "Dataset"
"""Type of every tf.data iterator."""
PYTHON_FRAME = "$"
"""What the names of Python's functions start with."""


class OpCategory(IntEnum):
    """Who an operation belongs to."""

    UNKNOWN = 0
    TENSORFLOW = 1
    JAX = 2
    TF_DATA = 3
    MEMCPY_HOST_TO_DEVICE = 4
    MEMCPY_DEVICE_TO_HOST = 5
    MEMCPY_DEVICE_TO_DEVICE = 6
    MEMCPY_HOST_TO_HOST = 7


@dataclass(frozen=True, slots=True)
class FrameworkOp:
    """One parsed name.

    Attributes:
        name: Full name of the operation, with its scopes, without its type.
        type: Kind of the operation (``MatMul``); empty when it is unknown.
    """

    category: OpCategory
    name: str
    type: str


# The reference's engine lets neither `.` match a line break nor `$` stop before one: fullmatch.
_TENSORFLOW_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_./>-]*")
_TENSORFLOW_TYPE = re.compile(r"[A-Z_][a-zA-Z0-9_]*")
_JAX_TYPE = re.compile(r"[a-z_][a-z0-9_]*(\[.*\])?")
# What the reference takes for an integer may have a sign and blanks around it.
_NUMBER_AT_END = re.compile(r"_[ \t\n\v\f\r]*([+-]?[0-9]+)[ \t\n\v\f\r]*\Z")
_INT64 = range(-(2**63), 2**63)
_INT64_DIGITS = 19

# Spellings such as MemcpyH2D are not among them: the reference counts those as kernels.
_MEMCPY = (
    ("memcpyhtod", OpCategory.MEMCPY_HOST_TO_DEVICE, "MemcpyHToD"),
    ("memcpydtoh", OpCategory.MEMCPY_DEVICE_TO_HOST, "MemcpyDToH"),
    ("memcpydtod", OpCategory.MEMCPY_DEVICE_TO_DEVICE, "MemcpyDToD"),
    ("memcpyhtoh", OpCategory.MEMCPY_HOST_TO_HOST, "MemcpyHToH"),
)


def parse_op_name(full_name: str) -> FrameworkOp:
    """Category, name and type of an event name such as ``scope/mul:Mul``."""
    first, colon, second = full_name.partition(":")
    if not colon:
        start = full_name[:10].lower()
        for prefix, category, op_type in _MEMCPY:
            if start == prefix:
                return FrameworkOp(category, full_name, op_type)
        return FrameworkOp(OpCategory.UNKNOWN, full_name, "")
    if first == "Iterator":
        return FrameworkOp(OpCategory.TF_DATA, full_name, DATASET_TYPE)
    if _TENSORFLOW_NAME.fullmatch(first) and _TENSORFLOW_TYPE.fullmatch(second):
        return FrameworkOp(OpCategory.TENSORFLOW, first, second)
    op_type = second or _derived_type(first)
    if _JAX_TYPE.fullmatch(op_type):
        return FrameworkOp(OpCategory.JAX, first, op_type.partition("[")[0])
    if not second:
        # Also where no type remains, as of a lone colon: an operation without name and type.
        return FrameworkOp(OpCategory.TENSORFLOW, first, op_type)
    return FrameworkOp(OpCategory.UNKNOWN, full_name, "")


def name_scopes(op_name: str) -> list[str]:
    """The scopes around an operation, outermost first (``a/b/mul`` lies in ``a`` and ``b``)."""
    return op_name.split("/")[:-1]


def display_name(op: FrameworkOp) -> str:
    """What people see for an event: the type of an operation, else its name."""
    if op.category == OpCategory.UNKNOWN:
        return op.name.rstrip()
    if op.category == OpCategory.TF_DATA:
        return f"Iterator::{op.name.rsplit('::', 1)[-1]}"
    return op.type


def is_infeed_enqueue(op: FrameworkOp) -> bool:
    """Whether the operation hands a batch to the device's infeed."""
    return op.category == OpCategory.TENSORFLOW and is_infeed_enqueue_type(op.type)


def is_infeed_enqueue_type(op_type: str) -> bool:
    """Whether a type alone says that a batch is handed to the device's infeed."""
    return op_type.startswith("InfeedEnqueue")


def is_outside_compilation(full_name: str, long_name: str) -> bool:
    """Whether a device operation waits for computation outside the compiled program.

    Args:
        full_name: Framework name, ``name:type``.
        long_name: The instruction's text.
    """
    if full_name.endswith((":XlaSendToHost", ":XlaRecvFromHost")):
        return True
    return "send-done" in long_name and "is_host_transfer=true" in long_name


def _derived_type(op_name: str) -> str:
    """Type by the last component of a name, without the number that makes it unique."""
    last = op_name.rsplit("/", 1)[-1]
    number = _NUMBER_AT_END.search(last)
    # Python refuses to read numbers of thousands of digits.
    if number is None or len(number[1].lstrip("+-0")) > _INT64_DIGITS:
        return last
    if int(number[1]) not in _INT64:
        return last
    return last[: number.start()]


def is_tensorflow_training(op_name: str, op_type: str) -> bool:
    """Whether a TensorFlow operation lies in the scope of a gradient."""
    if not (_TENSORFLOW_NAME.fullmatch(op_name) and _TENSORFLOW_TYPE.fullmatch(op_type)):
        return False
    return any(
        scope == "gradient_tape" or scope.startswith("gradients") for scope in name_scopes(op_name)
    )


def is_jax_training(op_name: str, op_type: str) -> bool:
    """Whether a JAX operation is of a transposed, that is backward, computation."""
    if op_type:
        last = op_name.rsplit("/", 1)[-1]
        if not (_JAX_TYPE.fullmatch(op_type) and op_type in last):
            return False
    return any(part.startswith("transpose(") for part in op_name.split("/"))
