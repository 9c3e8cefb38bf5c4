"""Calls of compiled code at an address, with every argument checked before it becomes a number."""

import ctypes
from operator import index
from typing import Any, Final

import numpy as np

from podscope_analyzers.kernels.signatures import Argument, Signature

# Calls through ctypes run without the interpreter's lock.
_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class NativeKernel:
    """A kernel's machine code as a function of arrays and numbers.

    The code takes one row of 64-bit numbers: of every array its address and lengths, of every
    number itself, and room for the result at the end.

    Args:
        name: For messages.
        address: Of the code, which must stay where it is.
        signature: What the code takes.
    """

    def __init__(self, name: str, address: int, signature: Signature) -> None:
        self._name = name
        self._entry = _ENTRY(address)
        self._signature = signature
        self._row: Any = ctypes.c_int64 * signature.slots

    def __call__(self, *args: Any) -> Any:
        """Runs the code.

        Raises:
            TypeError: there are more or fewer arguments, or one is of another type, in another
                order of memory, or may not be written to.
            OverflowError: a number does not fit.
        """
        kinds = self._signature.arguments
        if len(args) != len(kinds):
            problem = f"{self._name} takes {len(kinds)} arguments, not {len(args)}"
            raise TypeError(problem)
        numbers: list[int] = []
        for kind, given in zip(kinds, args, strict=True):
            if kind.ndim:
                self._check(kind, given)
                numbers.append(given.__array_interface__["data"][0])
                numbers.extend(given.shape)
            else:
                number = int(given) if kind.kind == "b1" else index(given)
                if number not in kind.bounds:
                    problem = f"{self._name}: {number} is not of type {kind.kind}"
                    raise OverflowError(problem)
                numbers.append(number)
        row = self._row(*numbers)
        # No kernel fails: what can go wrong, it writes into an array.
        if self._entry(ctypes.addressof(row)):
            problem = f"{self._name} did not come to its end"
            raise RuntimeError(problem)
        result = self._signature.result
        return None if result is None else np.int64(row[-1]).astype(result.dtype).item()

    def _check(self, kind: Argument, given: Any) -> None:
        """Code that trusts its arguments would read and write anywhere."""
        if not isinstance(given, np.ndarray):
            problem = f"{self._name} takes an array, not {type(given).__name__}"
            raise TypeError(problem)
        flags = given.flags
        if (
            given.dtype != kind.dtype
            or given.ndim != kind.ndim
            or not (flags.c_contiguous and flags.aligned)
            or (kind.is_written and not flags.writeable)
        ):
            problem = (
                f"{self._name} takes an array of {kind.dtype}, {kind.ndim} dimensions, in one piece"
                f"{', writable' if kind.is_written else ''}; not {given.dtype}, {given.ndim}"
            )
            raise TypeError(problem)
