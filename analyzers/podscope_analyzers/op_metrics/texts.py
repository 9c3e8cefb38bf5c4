"""Texts as codes into one table, so that operations are compared by number."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.int32]


class TextTable:
    """Distinct texts numbered in order of appearance; 0 is the empty text."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        distinct = dict.fromkeys(("", *texts))
        self._codes: dict[str, int] = dict(zip(distinct, range(len(distinct)), strict=True))
        self._texts: tuple[str, ...] = ("",)

    def __len__(self) -> int:
        return len(self._codes)

    def code(self, text: str) -> int:
        """The number of a text, a new one if it is new."""
        return self._codes.setdefault(text, len(self._codes))

    def codes(self, texts: Sequence[str]) -> Codes:
        """The numbers of some texts, shape (n,)."""
        return np.fromiter((self.code(text) for text in texts), np.int32, len(texts))

    def texts(self) -> tuple[str, ...]:
        """All texts by number."""
        # Texts are only ever added: the same tuple serves until one is.
        if len(self._texts) != len(self._codes):
            self._texts = tuple(self._codes)
        return self._texts
