"""Dataclasses that cost little to define.

``dataclasses.dataclass`` writes six functions for each frozen class and compiles them one by one:
for the 150 classes that an analysis loads, a seventh of the time of a short one and a megabyte in
every process. Here only ``__init__`` is compiled, and the rest is shared.
"""

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    # For type checkers they are what they behave like.
    from dataclasses import dataclass
else:

    def dataclass(kind=None, /, *, frozen=False, **options):
        """As ``dataclasses.dataclass``: of frozen classes without further options the lean form."""
        if kind is None:
            return lambda kind: dataclass(kind, frozen=frozen, **options)
        if not frozen or options:
            return dataclasses.dataclass(frozen=frozen, **options)(kind)
        return _record(kind)


__all__ = ["dataclass"]

_MISSING: Final = dataclasses.MISSING


def _record(kind: type[Any]) -> type[Any]:
    if kind.__doc__ is None:
        # Else its signature is taken apart for a docstring.
        kind.__doc__ = kind.__name__
    own = set(vars(kind))
    made: type[Any] = dataclasses.dataclass(init=False, repr=False, eq=False)(kind)
    fields = dataclasses.fields(made)
    if not all(field.init and field.compare for field in fields) or hasattr(made, "__post_init__"):
        problem = f"{kind.__name__} asks for more of a dataclass than is done here"
        raise TypeError(problem)
    names = tuple(field.name for field in fields)
    shared: Mapping[str, Callable[..., Any]] = {
        "__init__": _initialiser(made, fields),
        "__repr__": _represent,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        **_comparisons(names),
    }
    for name, function in shared.items():
        if name not in own:
            setattr(made, name, function)
    return made


def _initialiser(
    kind: type[Any], fields: tuple[dataclasses.Field[Any], ...]
) -> Callable[..., None]:
    parameters, lines = ["self"], ["__own__ = self.__dict__"]
    known: dict[str, Any] = {"_missing": _MISSING}
    for field in fields:
        name, value = field.name, field.name
        if field.default is not _MISSING:
            known[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not _MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_make_{name}() if {name} is _missing else {name}"
        else:
            parameters.append(name)
        lines.append(f"__own__[{name!r}] = {value}")
    body = "\n    ".join(lines)
    # Names of fields, which Python has read as such, and nothing else.
    exec(f"def __init__({', '.join(parameters)}):\n    {body}", known)  # noqa: S102
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    return made


def _comparisons(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    # With a name that is not there twice or more it gives a tuple, as two names do.
    values: Callable[[Any], Any] = attrgetter(*names, *names) if names else lambda _: ()

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}


def _represent(self: Any) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]
    told = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({told})"


def _refuse_to_set(self: Any, name: str, value: object) -> NoReturn:
    problem = f"cannot assign to field {name!r}"
    raise dataclasses.FrozenInstanceError(problem)


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    problem = f"cannot delete field {name!r}"
    raise dataclasses.FrozenInstanceError(problem)
