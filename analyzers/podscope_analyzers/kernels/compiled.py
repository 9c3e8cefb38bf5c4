"""Compiles kernels when they are first called, so that importing them costs nothing."""

import logging
import threading
from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, Final, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_log: Final = logging.getLogger("podscope_analyzers")
# Numba's compiler is not safe to enter from several threads, nor is this module's state.
_compiling: Final = threading.RLock()


class _Notices:
    """What was said already: once a process is enough."""

    compiling = False
    uncached = False


class Kernel(Generic[P, R]):
    """A function that numba compiles at its first call, or loads from its cache.

    Numba itself is imported then too: it takes longer than a small capture. The compiled
    code is cached beside the source, or in ``NUMBA_CACHE_DIR``; it runs without the
    interpreter's lock.

    Args:
        function: Plain Python over arrays and scalars; calls other kernels by name.
        signature: Numba's types; no other is ever compiled. None for a kernel that only
            other kernels call: it is compiled into them.
        allocates: Whether it, or a kernel in it, makes arrays.
    """

    def __init__(
        self, function: Callable[P, R], signature: str | None, *, allocates: bool = True
    ) -> None:
        update_wrapper(self, function)
        self._function = function
        self._signature = signature
        self._allocates = allocates
        self._compiled: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the compiled function."""
        if self._compiled is None:
            with _compiling:
                if self._compiled is None:
                    self._compiled = self._compile()
        return self._compiled(*args, **kwargs)

    @property
    def python(self) -> Callable[P, R]:
        """The function as written, for tests."""
        return self._function

    def _compile(self) -> Callable[P, R]:
        if self._signature is None:
            problem = f"{self._function.__qualname__} is only called by other kernels"
            raise TypeError(problem)
        try:
            return self._dispatcher(cache=True)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            if not _Notices.uncached:
                _Notices.uncached = True
                _log.warning(
                    "no folder for compiled kernels is writable, so each start compiles them "
                    "anew; set NUMBA_CACHE_DIR to a writable folder"
                )
            return self._dispatcher(cache=False)

    def _dispatcher(self, *, cache: bool) -> Callable[P, R]:
        import numba

        # Without numba's allocator no array is reference-counted: in a loop that hands
        # arrays to inner kernels that counting costs four times the work itself.
        options = {"nogil": True, "_nrt": self._allocates}
        function = self._resolved(allocates=self._allocates)
        dispatcher = numba.njit(cache=cache, **options)(function)
        # Compiling with the signature asks the cache first.
        dispatcher.compile(self._signature)
        if sum(dispatcher.stats.cache_misses.values()) and not _Notices.compiling:
            _Notices.compiling = True
            _log.warning("compiling kernels; this happens once on a machine and takes some seconds")
        dispatcher.disable_compile()
        compiled: Callable[P, R] = dispatcher
        return compiled

    def _inlined(self, *, allocates: bool) -> Callable[P, R]:
        import numba

        function = self._resolved(allocates=allocates)
        inlined: Callable[P, R] = numba.njit(nogil=True, forceinline=True, _nrt=allocates)(function)
        return inlined

    def _resolved(self, *, allocates: bool) -> Callable[..., Any]:
        """The function with the kernels it calls as numba's own objects.

        Numba knows functions by their globals; it does not know this class.
        """
        function = self._function
        if not isinstance(function, FunctionType):
            problem = "a kernel is a plain function"
            raise TypeError(problem)
        known = dict(function.__globals__)
        for name in function.__code__.co_names:
            callee = known.get(name)
            if isinstance(callee, Kernel):
                known[name] = callee._inlined(allocates=allocates)
        copy = FunctionType(
            function.__code__,
            known,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        copy.__qualname__ = function.__qualname__
        copy.__module__ = function.__module__
        return copy


def kernel(signature: str, *, allocates: bool = True) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Makes a function a kernel of one signature.

    Args:
        signature: Numba's types of the arguments and the result.
        allocates: Whether the kernel, or an inner one that it calls, makes arrays; where
            none does, False makes the calls of inner kernels free.
    """
    return lambda function: Kernel(function, signature, allocates=allocates)


def inner(function: Callable[P, R]) -> Kernel[P, R]:
    """Makes a function one that kernels of the same module call."""
    return Kernel(function, None)
