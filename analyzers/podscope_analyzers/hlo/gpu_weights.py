"""Flops that the profiler counts for one element of an elementwise operation on a GPU."""

from typing import Final

from podscope_protos.v1 import hlo_pb2

DEFAULT: Final = 3.0

_TYPES: Final = "S8 U8 S16 U16 S32 U32 S64 U64 F16 F32 F64 C64 C128"
# One row per operation, 3 where nothing is measured.
_ROWS: Final = {
    "add": "3 3 3 3 3 3 3 3 3 3 97 3 97",
    "subtract": "3 3 3 3 3 3 3 3 3 3 97 3 97",
    "multiply": "3 3 3 3 3 3 3 3 3 3 97 3 270",
    "divide": "370 306 367 302 306 115 918 838 3 3 2016 687 7941",
    "power": "392 388 396 399 3 3 601 604 975 925 5511 3351 18205",
    "atan2": "3 3 3 3 3 3 3 3 482 486 3747 5353 39027",
    "cbrt": "3 3 3 3 3 3 3 3 925 867 6339 3 3",
    "cosine": "3 3 3 3 3 3 3 3 691 662 1717 3 6613",
    "sine": "3 3 3 3 3 3 3 3 3 662 1789 3 5878",
    "exponential": "3 3 3 3 3 3 3 3 108 86 1652 1360 4028",
    "exponential-minus-one": "3 3 3 3 3 3 3 3 396 381 1900 1400 4161",
    "log": "3 3 3 3 3 3 3 3 266 244 608 950 7599",
    "log-plus-one": "3 3 3 3 3 3 3 3 284 262 2073 842 6962",
    "logistic": "3 3 3 3 3 3 3 3 226 176 2412 3 3",
    "rsqrt": "3 3 3 3 3 3 3 3 97 75 698 2383 11318",
    "sqrt": "3 3 3 3 3 3 3 3 97 75 986 3193 15606",
    "tanh": "3 3 3 3 3 3 3 3 212 190 1609 3 9939",
}
_WEIGHTS: Final = {
    (opcode, hlo_pb2.PrimitiveType.Value(column)): float(weight)
    for opcode, row in _ROWS.items()
    for column, weight in zip(_TYPES.split(), row.split(), strict=True)
}


def flops_per_element(opcode: str, element_type: int) -> float:
    """Flops for one element of the result."""
    return _WEIGHTS.get((opcode, element_type), DEFAULT)
