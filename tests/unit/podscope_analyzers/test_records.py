import copy
import dataclasses
import pickle
import typing
from dataclasses import field

import pytest

from podscope_analyzers import records


@records.dataclass(frozen=True)
class Span:
    start: int
    stop: int = 7
    tags: list[str] = field(default_factory=list)
    secret: str = field(default="s", repr=False)

    @property
    def length(self) -> int:
        return self.stop - self.start


@dataclasses.dataclass(frozen=True)
class Expected:
    start: int
    stop: int = 7
    tags: list[str] = field(default_factory=list)
    secret: str = field(default="s", repr=False)


@records.dataclass(frozen=True)
class Named(Span):
    name: str = ""


@records.dataclass(frozen=True)
class Single:
    value: int


@records.dataclass(frozen=True)
class Nothing:
    pass


@records.dataclass
class Loose:
    value: int = 1


def test_it_is_made_as_a_dataclass_is() -> None:
    one = Span(3)
    assert (one.start, one.stop, one.tags, one.secret, one.length) == (3, 7, [], "s", 4)
    assert one.tags is not Span(3).tags
    assert Span(1, stop=2, tags=["a"]) == Span(1, 2, ["a"])
    assert repr(one) == repr(Expected(3)).replace("Expected", "Span")
    assert dataclasses.asdict(one) == dataclasses.asdict(Expected(3))
    assert [one.name for one in dataclasses.fields(Span)] == ["start", "stop", "tags", "secret"]
    assert dataclasses.replace(one, stop=9).length == 6
    assert dataclasses.replace(one, stop=9).start == 3


@pytest.mark.parametrize(("args", "names"), [((), {}), ((1, 2, [], "s", 5), {}), ((1,), {"x": 2})])
def test_wrong_arguments_are_refused(args: tuple[object, ...], names: dict[str, object]) -> None:
    make = typing.cast("typing.Callable[..., Span]", Span)
    with pytest.raises(TypeError):
        make(*args, **names)


def test_it_does_not_change() -> None:
    one = Span(3)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'start'"):
        one.start = 4  # type: ignore[misc]  # that is what is tested
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'start'"):
        del one.start
    assert one.start == 3


def test_equal_ones_are_of_one_kind_and_have_one_hash() -> None:
    assert Single(1) == Single(1)
    assert Single(1) != Single(2)
    other: object = (1,)
    assert Single(1) != other
    assert len({Single(1), Single(1), Single(2)}) == 2
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1
    assert Span(1) != Named(1)


def test_a_kind_of_it_has_its_fields_first() -> None:
    one = Named(1, 2, ["a"], "t", "n")
    assert (one.length, one.name, one.secret) == (1, "n", "t")
    assert Named(1).name == ""


def test_it_is_copied_and_pickled() -> None:
    one = Named(1, 2, ["a"], name="n")
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one


def test_one_that_may_change_is_an_ordinary_dataclass() -> None:
    one = Loose()
    one.value = 5
    assert one == Loose(5)


def test_what_is_not_done_here_is_refused() -> None:
    class Private:
        value: int = field(default=1, init=False)

    with pytest.raises(TypeError, match="Private asks for more of a dataclass"):
        records.dataclass(frozen=True)(Private)
