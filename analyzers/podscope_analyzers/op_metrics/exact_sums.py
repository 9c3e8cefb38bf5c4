"""Sums of floats that are the same in whatever order and grouping they are added.

Floating-point addition is not associative: hosts that arrive in another order would change the
last bits of a capture's figures. A sum is kept as an integer here, in limbs of 32 bits, and
rounded once, when it is read; the way of Shewchuk's and of Kulisch's exact accumulators.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

_LIMB_BITS: Final = 32
_MASK: Final = np.uint64((1 << _LIMB_BITS) - 1)
_MANTISSA_BITS: Final = 53


@dataclass(frozen=True)
class ExactSums:
    """One sum per row.

    Attributes:
        first_limb: What the first column of the limbs counts in: ``2 ** (32 * first_limb)``.
        limbs: Signed, shape (n, w). Limbs of more than 2**20 summands could exceed what a float
            holds exactly.
        special: Sum of what is not finite, 0 where all is; shape (n,).
    """

    first_limb: int
    limbs: Int64s
    special: Float64s

    @classmethod
    def of(cls, values: Float64s) -> Self:
        """One summand per row, shape (n,)."""
        is_finite = np.isfinite(values)
        special = np.where(is_finite, 0.0, values)
        mantissa, exponent = np.frexp(np.where(is_finite, values, 0.0))
        whole = (mantissa * 2.0**_MANTISSA_BITS).astype(np.int64)
        rows = np.flatnonzero(whole)
        if not len(rows):
            return cls(0, np.zeros((len(values), 0), np.int64), special)
        whole, power = whole[rows], exponent[rows].astype(np.int64) - _MANTISSA_BITS
        limb, shift = power >> 5, (power & 31).astype(np.uint64)
        size = np.abs(whole).astype(np.uint64)
        low = (size & _MASK) << shift
        high = ((size >> np.uint64(_LIMB_BITS)) << shift) + (low >> np.uint64(_LIMB_BITS))
        first = int(limb.min())
        limbs = np.zeros((len(values), int(limb.max()) - first + 3), np.int64)
        sign = np.sign(whole)
        parts = (low & _MASK, high & _MASK, high >> np.uint64(_LIMB_BITS))
        for place, part in enumerate(parts):
            limbs[rows, limb - first + place] = sign * part.astype(np.int64)
        return cls(first, limbs, special)

    @classmethod
    def concatenate(cls, parts: Sequence["ExactSums"]) -> "ExactSums":
        """The rows of all parts, in order."""
        used = [part for part in parts if part.limbs.shape[1]]
        first = min((part.first_limb for part in used), default=0)
        end = max((part.first_limb + part.limbs.shape[1] for part in used), default=0)
        limbs = np.zeros((sum(len(part.special) for part in parts), end - first), np.int64)
        at = 0
        for part in parts:
            count, width = part.limbs.shape
            if width:
                column = part.first_limb - first
                limbs[at : at + count, column : column + width] = part.limbs
            at += count
        special = np.concatenate([np.zeros(0), *(part.special for part in parts)])
        return cls(first, limbs, special)

    def grouped(self, group: NDArray[np.intp], count: int) -> "ExactSums":
        """The rows of every group added up, shape (count,)."""
        limbs = np.zeros((count, self.limbs.shape[1]), np.int64)
        np.add.at(limbs, group, self.limbs)
        special = np.zeros(count)
        odd = np.flatnonzero(self.special)
        # Infinities of both signs make no number; that is said by the result.
        with np.errstate(invalid="ignore"):
            np.add.at(special, group[odd], self.special[odd])
        return ExactSums(self.first_limb, limbs, special)

    def take(self, rows: NDArray[Any]) -> "ExactSums":
        """Some of the rows."""
        return ExactSums(self.first_limb, self.limbs[rows], self.special[rows])

    def rounded(self) -> Float64s:
        """The floats nearest to the sums, shape (n,)."""
        result = self.special.copy()
        scales = range(
            _LIMB_BITS * self.first_limb,
            _LIMB_BITS * (self.first_limb + self.limbs.shape[1]),
            _LIMB_BITS,
        )
        rows = np.flatnonzero(self.limbs.any(axis=1) & (result == 0))
        for row, limbs in zip(rows.tolist(), self.limbs[rows].tolist(), strict=True):
            result[row] = _nearest(limbs, scales)
        return result

    def to_state(self) -> dict[str, Any]:
        """The sums as arrays."""
        return dict(vars(self))

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The sums that ``to_state`` wrote."""
        return cls(int(state["first_limb"]), state["limbs"], state["special"])


def _nearest(limbs: Sequence[int], scales: Sequence[int]) -> float:
    try:
        return math.fsum(
            math.ldexp(limb, scale) for limb, scale in zip(limbs, scales, strict=True) if limb
        )
    except OverflowError:
        # A summand, or the sum, is beyond the largest float.
        base = scales[0]
        total = sum(limb << (scale - base) for limb, scale in zip(limbs, scales, strict=True))
        try:
            return float(total << base) if base >= 0 else float(total >> -base)
        except OverflowError:
            return math.copysign(math.inf, total)
