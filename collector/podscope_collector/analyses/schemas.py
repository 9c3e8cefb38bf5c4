"""What the API says about tools."""

from typing import Literal

from pydantic import BaseModel

from podscope_collector.captures.states import AnalysisState


class ToolView(BaseModel):
    """A tool of a capture.

    ``state`` is that of the analysis; ``status`` tells whether the result has something to
    show, null until it is there. ``hosts`` are those with a result of their own.
    """

    name: str
    title: str
    scope: Literal["host", "all_hosts", "both"]
    state: AnalysisState
    status: Literal["ok", "empty"] | None
    hosts: list[str]


class ToolList(BaseModel):
    """The tools in the order in which people meet them."""

    items: list[ToolView]
