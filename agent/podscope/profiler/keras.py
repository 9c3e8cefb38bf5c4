"""A Keras callback that profiles some batches of a training."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from podscope.profiler import local
from podscope.profiler.annotation import StepTrace
from podscope.profiler.errors import ProfilerError
from podscope.profiler.options import ProfilerOptions

_LOG = logging.getLogger(__name__)
_RANGE_LENGTH = 2


def keras_callback(
    logdir: str | Path,
    profile_batch: int | str | Sequence[int],
    options: ProfilerOptions | None = None,
) -> Any:
    """Return a callback for ``fit(callbacks=[...])`` that profiles batches into a log folder.

    The profiled batches are steps. What goes wrong with the profile is logged; the training goes
    on.

    Args:
        logdir: Log folder; the profile goes to ``<logdir>/plugins/profile/<session>/``.
        profile_batch: Batches counted from 1 over all epochs: a number is that batch, ``(10, 20)``
            or ``"10,20"`` all from the tenth to the twentieth, 0 none.
        options: What to record.

    Raises:
        ProfilerError: Keras is not imported.
        ValueError: `profile_batch` is none of these.
    """
    first, last = batch_range(profile_batch)
    return type("PodscopeCallback", (_ProfiledBatches, _callback_class()), {})(
        Path(logdir), first, last, options
    )


def batch_range(profile_batch: int | str | Sequence[int]) -> tuple[int, int]:
    """The first and the last batch to profile; (0, 0) for none.

    Raises:
        ValueError: it is no number, pair of numbers or such a pair as text.
    """
    given: Sequence[Any]
    if isinstance(profile_batch, int):
        given = (profile_batch, profile_batch)
    elif isinstance(profile_batch, str):
        given = profile_batch.split(",")
    else:
        given = profile_batch
    msg = (
        "profile_batch must be a number of batches, a pair (first, last) or a text 'first,last'"
        f" with 0 <= first <= last, not {profile_batch!r}"
    )
    try:
        if len(given) != _RANGE_LENGTH:
            raise ValueError(msg)
        first, last = int(given[0]), int(given[1])
    except (TypeError, ValueError) as error:
        raise ValueError(msg) from error
    if not 0 <= first <= last:
        raise ValueError(msg)
    # A range that begins at none begins at the first, except for nothing at all.
    return (max(first, 1), last) if last else (0, 0)


def _callback_class() -> type:
    for name in ("keras", "tf_keras"):
        module = sys.modules.get(name)
        found = getattr(getattr(module, "callbacks", None), "Callback", None)
        if isinstance(found, type):
            return found
    msg = "import keras before podscope.profiler.keras_callback: the callback is one of its class"
    raise ProfilerError(msg)


class _ProfiledBatches:
    """What the callback does, whichever Keras it is for."""

    def __init__(self, logdir: Path, first: int, last: int, options: ProfilerOptions | None):
        super().__init__()
        self._logdir = logdir
        self._first = first
        self._last = last
        self._options = options
        self._batch = 0
        self._step: StepTrace | None = None
        self._is_running = False

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self._batch += 1
        if self._batch == self._first:
            try:
                local.start(self._logdir, self._options)
            except ProfilerError as error:
                _LOG.warning("batch %d is not profiled: %s", self._batch, error)
            else:
                self._is_running = True
        if self._is_running:
            self._step = StepTrace("Profiled batch", self._batch)
            self._step.__enter__()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None
        if self._is_running and self._batch >= self._last:
            self._stop()

    def on_train_end(self, logs: object = None) -> None:
        if self._is_running:
            self._stop()

    def _stop(self) -> None:
        self._is_running = False
        try:
            local.stop()
        except ProfilerError as error:
            _LOG.warning("the profile is lost: %s", error)
