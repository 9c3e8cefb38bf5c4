"""A typed way to say that a function is a Celery task."""

from collections.abc import Callable
from typing import ParamSpec, cast

from celery import shared_task

P = ParamSpec("P")


def task(name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Register the function as the task of this name, in every podscope app."""
    return cast("Callable[[Callable[P, None]], Callable[P, None]]", shared_task(name=name))
