"""Objects whose fields are computed when they are first asked for."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar

T = TypeVar("T")

_MAKERS: Final = "_makers"
_lazy_kinds: Final[dict[type[Any], Any]] = {}


def lazily(kind: type[T], makers: Mapping[str, Callable[[], Any]]) -> T:
    """A dataclass whose fields are made at their first use, each once.

    A tool reads few of a capture's stats; what it does not read costs nothing, and modules that
    only serve it are not loaded. What made a field is let go of with it: of a host's partial whose
    fields are all made, nothing refers to the decoded profile any more.

    Args:
        kind: A dataclass; the result is an instance of it.
        makers: What makes each of its fields.
    """
    if kind not in _lazy_kinds:
        fields = {name: _field(name) for name in kind.__dict__["__dataclass_fields__"]}
        _lazy_kinds[kind] = type(kind.__name__, (kind,), {**fields, "__module__": kind.__module__})
    made = object.__new__(_lazy_kinds[kind])
    # The dataclass is frozen, and without its own constructor nothing is set yet.
    made.__dict__[_MAKERS] = dict(makers)
    return made  # type: ignore[no-any-return]  # of a subclass made at run time


def _field(name: str) -> "cached_property[Any]":
    def make(self: Any) -> Any:
        makers = self.__dict__[_MAKERS]
        value = makers[name]()
        makers.pop(name, None)
        return value

    return cached_property(make)
