"""Compiles kernels when they are first called, so that importing them costs nothing."""

import importlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, update_wrapper
from types import FunctionType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

from podscope_analyzers.kernels import image
from podscope_analyzers.kernels.linking import Linked, LinkError
from podscope_analyzers.kernels.native import NativeKernel
from podscope_analyzers.kernels.signatures import Signature, parse_signature

P = ParamSpec("P")
R = TypeVar("R")

_log: Final = logging.getLogger("podscope_analyzers")
# Numba's compiler is not safe to enter from several threads, nor is this module's state.
_compiling: Final = threading.RLock()
# Arrays that a kernel makes would be reference-counted, and in a loop that hands arrays to inner
# kernels that counting costs four times the work itself: kernels are given all they need.
_OPTIONS: Final = {"nogil": True, "_nrt": False}
# Without what numba puts around a function to call it from Python.
_BARE: Final = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


MODULES: Final = (
    "activities",
    "events",
    "factorise",
    "forest",
    "groups",
    "iterators",
    "levels",
    "offloads",
    "sieve",
    "spans",
    "steps",
    "survey",
    "wire",
)
"""The modules of this package that have kernels."""


class _State:
    """What this process has done already."""

    is_announced = False
    # Where the machine code of all kernels is; None before the first call, empty where kernels
    # are not compiled together.
    entries: Mapping[str, int] | None = None


class Kernel(Generic[P, R]):
    """A function that runs as machine code, loaded or compiled at the first call of any kernel.

    All kernels are compiled together and kept in a file, which later processes load without
    numba: importing that takes longer than a small capture. The code runs without the
    interpreter's lock. Where the platform or numba's settings (such as checks of bounds) ask
    for it, numba compiles, caches and calls each kernel itself.

    Args:
        function: Plain Python over arrays and scalars; calls other kernels by name. It neither
            makes arrays nor raises.
        signature: Numba's types; no other is ever compiled. None for a kernel that only
            other kernels call: it is compiled into them.
    """

    def __init__(self, function: Callable[P, R], signature: str | None) -> None:
        update_wrapper(self, function)
        self._function = function
        self._text = signature
        self._compiled: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs the compiled function."""
        if self._compiled is None:
            with _compiling:
                if self._compiled is None:
                    self._compiled = self._compile()
        return self._compiled(*args, **kwargs)

    @property
    def is_compiled(self) -> bool:
        """Whether it was called before."""
        return self._compiled is not None

    @property
    def python(self) -> Callable[P, R]:
        """The function as written, for tests."""
        return self._function

    @property
    def name(self) -> str:
        """Module and name, of all kernels of the package."""
        return f"{self.module}.{self._function.__name__}"

    @property
    def module(self) -> str:
        """The module of this package that it is written in."""
        return self._function.__module__.rpartition(".")[2]

    @property
    def is_inner(self) -> bool:
        """Whether only other kernels call it."""
        return self._text is None

    @cached_property
    def size(self) -> int:
        """Bytes of Python's code, with those of the kernels it calls: the work of compiling it."""
        code = self._function.__code__
        known = self._function.__globals__
        callees = {known.get(name) for name in code.co_names}
        return len(code.co_code) + sum(
            callee.size for callee in callees if isinstance(callee, Kernel)
        )

    @cached_property
    def signature(self) -> Signature:
        """What it takes and gives."""
        if self._text is None:
            problem = f"{self._function.__qualname__} is only called by other kernels"
            raise TypeError(problem)
        return parse_signature(self._text)

    def assembly(self) -> tuple[str, str]:
        """LLVM's text of the function compiled by numba, and its symbol in there."""
        import numba

        dispatcher = numba.njit(**_BARE)(self._resolved())
        dispatcher.compile(self._text)
        (compiled,) = dispatcher.overloads.values()
        return compiled.library.get_llvm_str(), compiled.fndesc.llvm_func_name

    def _compile(self) -> Callable[P, R]:
        signature = self.signature
        address = _entries().get(self.name)
        if address is not None:
            return cast("Callable[P, R]", NativeKernel(self.name, address, signature))
        try:
            return self._dispatcher(cache=True)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            image.warn_uncached()
            return self._dispatcher(cache=False)

    def _dispatcher(self, *, cache: bool) -> Callable[P, R]:
        import numba

        dispatcher = numba.njit(cache=cache, **_OPTIONS)(self._resolved())
        # Compiling with the signature asks the cache first.
        dispatcher.compile(self._text)
        if sum(dispatcher.stats.cache_misses.values()):
            _announce()
        dispatcher.disable_compile()
        return cast("Callable[P, R]", dispatcher)

    @cached_property
    def _inlined(self) -> Callable[P, R]:
        import numba

        inlined = numba.njit(forceinline=True, **_BARE)(self._resolved())
        template = inlined.get_call_template

        def call_template(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
            # Else it is compiled anew for every constant that a caller passes.
            return template(tuple(map(numba.types.unliteral, args)), kws)

        inlined.get_call_template = call_template
        return cast("Callable[P, R]", inlined)

    def _resolved(self) -> Callable[..., Any]:
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
                known[name] = callee._inlined
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


def all_kernels() -> dict[str, Kernel[Any, Any]]:
    """Every kernel with a signature, by module and name."""
    found: dict[str, Kernel[Any, Any]] = {}
    for name in MODULES:
        module = importlib.import_module(f"podscope_analyzers.kernels.{name}")
        for value in vars(module).values():
            if isinstance(value, Kernel) and not value.is_inner and value.module == name:
                found[value.name] = value
    return found


def _announce() -> None:
    if not _State.is_announced:
        _State.is_announced = True
        _log.warning("compiling kernels; this happens once on a machine and takes some seconds")


def are_at_hand(kernels: Iterable[Kernel[Any, Any]]) -> bool:
    """Whether these can be called now without being compiled; loads those that are kept on disk."""
    if _State.entries or all(kernel.is_compiled for kernel in kernels):
        return True
    if not _compiling.acquire(blocking=False):
        # Another thread compiles them.
        return False
    try:
        if _State.entries is None and _are_together():
            name = image.key()
            _State.entries = None if name is None else image.load(name)
        return bool(_State.entries)
    finally:
        _compiling.release()


def _are_together() -> bool:
    """Whether all kernels are compiled at once, and kept in one file."""
    # Code that checks bounds fails by raising, which takes numba to carry out.
    return image.is_supported() and os.environ.get("NUMBA_BOUNDSCHECK", "0") == "0"


def _entries() -> Mapping[str, int]:
    """Where the machine code of each kernel is; nowhere, where numba is to call them itself."""
    if _State.entries is None:
        _State.entries = {}
        if _are_together():
            try:
                _State.entries = image.entries(_build)
            except (LinkError, OSError) as error:
                _log.debug("kernels are compiled one by one: %s", error)
    return _State.entries


def _build() -> Linked:
    from podscope_analyzers.kernels import shares

    kernels = all_kernels()
    _announce()
    try:
        return shares.build(kernels)
    except LinkError as error:
        _log.debug("kernels are compiled in this process: %s", error)
    from podscope_analyzers.kernels.building import build

    return build(kernels)


def kernel(signature: str) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Makes a function a kernel of one signature, in numba's notation (see ``signatures``)."""
    return lambda function: Kernel(function, signature)


def inner(function: Callable[P, R]) -> Kernel[P, R]:
    """Makes a function one that kernels of the same module call."""
    return Kernel(function, None)
