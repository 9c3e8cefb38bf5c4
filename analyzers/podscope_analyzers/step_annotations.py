"""Annotations of the training loop: which name getting data, which lie right below others."""

import re

import numpy as np
import numpy.typing as npt

from podscope_analyzers.intervals import Int64s

_INPUT = re.compile(
    r"input|infeed|batch|dataset|dataloader|(?:^|[^a-z])data(?:[^a-z]|$)|(?:^|_)load|prefetch"
    r"|(?:^|[^a-z])fetch|(?:^|[^a-z])read",
    re.IGNORECASE,
)
# Names of work on a batch, rather than of getting one.
_NOT_INPUT = re.compile(r"train|forward|backward|eval|norm|on_batch|compute|pjit", re.IGNORECASE)


def names_input(name: str) -> bool:
    """Whether an annotation of this name is getting data, rather than working on it."""
    return bool(_INPUT.search(name)) and not _NOT_INPUT.search(name)


def outermost(start: Int64s, end: Int64s) -> npt.NDArray[np.bool_]:
    """Which spans, in the order of their starts, lie in none before them."""
    if not len(start):
        return np.zeros(0, dtype=np.bool_)
    latest = np.maximum.accumulate(end)
    is_outer: npt.NDArray[np.bool_] = np.concatenate([[True], start[1:] >= latest[:-1]])
    return is_outer
