"""Names as XLA makes them when it loads a program."""

import re
from typing import Final

from podscope_analyzers.hlo.text.shape_text import TYPE_NAMES

_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_KEPT: Final = re.compile(r"[A-Za-z_]")
# Names of types are words of the text's language; ``tuple`` is not.
_WORDS: Final = TYPE_NAMES - {"tuple", "invalid"}


def sanitised(name: str) -> str:
    """The name with underscores for whatever its texts could not hold; mostly it stays."""
    if name in _WORDS:
        return f"{name}_"
    if not _FORBIDDEN.search(name) and _KEPT.match(name) and not name.startswith("__"):
        return name
    # Bytes count: a letter outside ASCII becomes several underscores.
    whole = _FORBIDDEN.sub("_", name.encode("utf-8", "surrogateescape").decode("latin-1"))
    if not whole:
        return ""
    first = whole[0] if _KEPT.match(whole) else "_"
    if (first + whole[1:]).startswith("__") and not whole.startswith("__xla_"):
        first = "a"
    return first + whole[1:]
