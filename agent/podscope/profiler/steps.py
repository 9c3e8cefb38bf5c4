"""Marks the steps of a plain training loop."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TypeVar

from podscope.profiler import recording, step_times
from podscope.profiler.annotation import StepTrace

Batch = TypeVar("Batch")


def steps(batches: Iterable[Batch], name: str = "train", first: int = 0) -> Iterator[Batch]:
    """Yield the batches; each with the body of the loop is one step, its loading included.

    Captures that JAX makes itself, through its own server, show the steps too.

    Args:
        batches: What the loop goes over.
        name: What steps are called.
        first: Number of the first step.
    """
    iterator = iter(batches)
    number = first
    while True:
        with contextlib.ExitStack() as stack:
            step = stack.enter_context(_Step(name, number))
            try:
                batch = next(iterator)
            except StopIteration:
                step.drop()
                return
            yield batch
        number += 1


class _Step:
    """A step on the library's record, and on JAX's when the library does not record."""

    def __init__(self, name: str, number: int) -> None:
        self._own: StepTrace | None = StepTrace(name, number)
        self._jax = None
        jax = sys.modules.get("jax")
        if jax is not None and recording.active is None and hasattr(jax, "profiler"):
            self._jax = jax.profiler.StepTraceAnnotation(name, step_num=number)

    def __enter__(self) -> "_Step":
        if self._jax is not None:
            self._jax.__enter__()
        if self._own is not None:
            self._own.__enter__()
        return self

    def drop(self) -> None:
        """Forget the step: there was no batch for it."""
        self._own = None
        step_times.of_process.take_back()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._own is not None:
            self._own.__exit__(kind, error, traceback)
        if self._jax is not None:
            self._jax.__exit__(None, None, None)
