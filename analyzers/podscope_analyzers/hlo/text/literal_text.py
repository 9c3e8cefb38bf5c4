"""Constants as text, in the order of their indices whatever their layout."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo.text.shape_text import type_name
from podscope_protos.v1 import hlo_pb2

_TYPE: Final = hlo_pb2.PrimitiveType
ELIDED: Final = "{...}"
_COMMENTS_ABOVE_RANK: Final = 3


@dataclass(frozen=True)
class _SmallFloat:
    """A float of at most eight bits.

    Attributes:
        specials: ``ieee`` has infinities; ``finite`` one NaN of each sign, the highest number;
            ``unsigned_zero`` one NaN in place of -0; ``none`` has neither.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: str
    has_sign: bool = True

    def value(self, raw: int) -> float:
        width = self.exponent_bits + self.mantissa_bits
        raw &= (1 << (width + self.has_sign)) - 1
        is_negative = self.has_sign and bool(raw >> width)
        sign = -1.0 if is_negative else 1.0
        magnitude = raw & ((1 << width) - 1)
        exponent = magnitude >> self.mantissa_bits
        mantissa = magnitude & ((1 << self.mantissa_bits) - 1)
        if self.specials == "unsigned_zero" and is_negative and magnitude == 0:
            return -math.nan
        if self.specials == "finite" and magnitude == (1 << width) - 1:
            return math.copysign(math.nan, sign)
        if self.specials == "ieee" and exponent == (1 << self.exponent_bits) - 1:
            return math.copysign(math.nan if mantissa else math.inf, sign)
        if exponent == 0 and self.mantissa_bits:
            return sign * math.ldexp(mantissa, 1 - self.bias - self.mantissa_bits)
        whole = mantissa | 1 << self.mantissa_bits
        return sign * math.ldexp(whole, exponent - self.bias - self.mantissa_bits)


_SMALL_FLOATS: Final[dict[int, _SmallFloat]] = {
    _TYPE.F8E5M2: _SmallFloat(5, 2, 15, "ieee"),
    _TYPE.F8E4M3: _SmallFloat(4, 3, 7, "ieee"),
    _TYPE.F8E3M4: _SmallFloat(3, 4, 3, "ieee"),
    _TYPE.F8E4M3FN: _SmallFloat(4, 3, 7, "finite"),
    _TYPE.F8E4M3B11FNUZ: _SmallFloat(4, 3, 11, "unsigned_zero"),
    _TYPE.F8E5M2FNUZ: _SmallFloat(5, 2, 16, "unsigned_zero"),
    _TYPE.F8E4M3FNUZ: _SmallFloat(4, 3, 8, "unsigned_zero"),
    _TYPE.F4E2M1FN: _SmallFloat(2, 1, 1, "none"),
    _TYPE.F6E3M2FN: _SmallFloat(3, 2, 3, "none"),
    _TYPE.F6E2M3FN: _SmallFloat(2, 3, 1, "none"),
    _TYPE.F8E8M0FNU: _SmallFloat(8, 0, 127, "finite", has_sign=False),
}
_PACKED: Final[dict[int, str]] = {
    _TYPE.U8: "<u1",
    _TYPE.S8: "<i1",
    _TYPE.U16: "<u2",
    _TYPE.S16: "<i2",
    _TYPE.F16: "<f2",
}
# One element a byte, in its low bits; negative bits are signed.
_SMALL_INTEGERS: Final[dict[int, int]] = {
    _TYPE.S4: -4,
    _TYPE.U4: 4,
    _TYPE.S2: -2,
    _TYPE.U2: 2,
    _TYPE.S1: -1,
    _TYPE.U1: 1,
}
_COMPLEX: Final[dict[int, int]] = {_TYPE.C64: _TYPE.F32, _TYPE.C128: _TYPE.F64}


def _special(value: float) -> str | None:
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isnan(value):
        return f"{sign}nan"
    return f"{sign}inf" if math.isinf(value) else None


def _significant(digits: int) -> Callable[[float], str]:
    return lambda value: _special(value) or f"{value:.{digits}g}"


def _round_trip(short: int, long: int, is_same: Callable[[str, float], bool]) -> Any:
    def text(value: float) -> str:
        special = _special(value)
        if special:
            return special
        shown = f"{value:.{short}g}"
        return shown if is_same(shown, value) else f"{value:.{long}g}"

    return text


_float32 = _round_trip(6, 9, lambda shown, value: np.float32(shown) == np.float32(value))
_float64 = _round_trip(15, 17, lambda shown, value: float(shown) == value)


def _formatter(kind: int) -> Callable[[Any], str]:
    if kind == _TYPE.F32:
        return _as_text(_float32)
    if kind == _TYPE.F64:
        return _as_text(_float64)
    if kind == _TYPE.F16:
        return _significant(5)
    if kind == _TYPE.BF16:
        return _significant(4)
    if kind in _SMALL_FLOATS:
        mantissa_bits = _SMALL_FLOATS[kind].mantissa_bits
        return _significant(3 if mantissa_bits in (3, 4) else 2)
    if kind in _COMPLEX:
        part = _formatter(_COMPLEX[kind])
        return lambda value: f"({part(value.real)}, {part(value.imag)})"
    if kind == _TYPE.PRED:
        return lambda value: "1" if value else "0"
    return str


def _as_text(function: Any) -> Callable[[Any], str]:
    return lambda value: str(function(float(value)))


def _values(literal: hlo_pb2.LiteralProto, kind: int) -> NDArray[Any]:
    """Elements as they are stored, shape (n,)."""
    stored = getattr(literal, f"{type_name(kind)}s", b"")
    if kind in _PACKED:
        return np.frombuffer(stored, _PACKED[kind])
    if kind == _TYPE.BF16:
        return (np.frombuffer(stored, "<u2").astype(np.uint32) << 16).view(np.float32)
    if kind in _SMALL_INTEGERS:
        bits = _SMALL_INTEGERS[kind]
        low = np.frombuffer(stored, np.uint8).astype(np.int64) & ((1 << abs(bits)) - 1)
        return low - ((low >> (-bits - 1)) << -bits) if bits < 0 else low
    if kind in _SMALL_FLOATS:
        form = _SMALL_FLOATS[kind]
        return np.array([form.value(byte) for byte in stored], np.float64)
    if kind in _COMPLEX:
        parts = np.array(stored, np.float64)
        # Not by arithmetic, in which an infinity makes the other part no number.
        return parts[: len(parts) // 2 * 2].view(np.complex128)
    return np.array(list(stored), object)


def literal_text(literal: hlo_pb2.LiteralProto, *, large: bool, max_elements: int = 10) -> str:
    """A constant's value; ``{...}`` for one of many elements unless large ones are wanted.

    Args:
        literal: As serialised.
        large: Whether any size is shown, and tuples.
        max_elements: What is shown anyway.
    """
    shape = literal.shape
    if shape.element_type == _TYPE.TUPLE:
        if not large:
            return ELIDED
        inner = (literal_text(one, large=True) for one in literal.tuple_literals)
        return f"( {', '.join(inner)} )"
    sizes = list(shape.dimensions)
    count = math.prod(sizes)
    if count > max_elements and not large:
        return ELIDED
    try:
        values = _values(literal, shape.element_type)
    except ValueError:
        return ELIDED
    if len(values) != count:
        # Not all of it is stored: a sparse one, or of a type that is not known.
        return ELIDED
    if not sizes:
        if shape.element_type == _TYPE.PRED:
            return "true" if values[0] else "false"
        return _formatter(shape.element_type)(values[0])
    order = list(shape.layout.minor_to_major)
    if sorted(order) == list(range(len(sizes))):
        major_to_minor = order[::-1]
        stored = values.reshape([sizes[axis] for axis in major_to_minor])
        values = stored.transpose(np.argsort(major_to_minor))
    else:
        values = values.reshape(sizes)
    return _nested(values, _formatter(shape.element_type), ())


def _nested(values: NDArray[Any], text: Callable[[Any], str], index: Sequence[int]) -> str:
    rank = values.ndim + len(index)
    if values.ndim == 1:
        inner = ", ".join(text(value) for value in values.tolist())
        return "{" + inner + "}" if rank == 1 or len(values) <= 1 else f"{{ {inner} }}"
    comment = ""
    if rank > _COMMENTS_ABOVE_RANK and index:
        comment = f" /*i{len(index) - 1}={index[-1]}*/"
    inner = ", ".join(_nested(one, text, (*index, at)) for at, one in enumerate(values))
    return f"{{{comment} {inner} }}"
