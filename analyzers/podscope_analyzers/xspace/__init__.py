"""Reads XSpaces: planes, lines, and their events as columns."""

from podscope_analyzers.xspace.columns import Columns, StatColumn
from podscope_analyzers.xspace.limits import Limits
from podscope_analyzers.xspace.metadata import EventMetadataTable, StatValue
from podscope_analyzers.xspace.opening import Verification, open_xspace, unpack, verify
from podscope_analyzers.xspace.sifting import Sieve, Sifted, Survey
from podscope_analyzers.xspace.space import Line, Plane, XSpace

__all__ = [
    "Columns",
    "EventMetadataTable",
    "Limits",
    "Line",
    "Plane",
    "Sieve",
    "Sifted",
    "StatColumn",
    "StatValue",
    "Survey",
    "Verification",
    "XSpace",
    "open_xspace",
    "unpack",
    "verify",
]
