"""Comparisons of stored results; nothing is analysed for them."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace

from podscope_analyzers.diff import Comparison, Side, compare, parameters_for
from podscope_analyzers.diff.steps import StepRange
from podscope_analyzers.registry import TOOLS, check_parameters
from podscope_analyzers.result import ToolResult
from podscope_collector.analyses.results import Question, answer, ask, tool_named
from podscope_collector.runtime import Runtime


@dataclass(frozen=True)
class AskedSide:
    """One of the two.

    Attributes:
        host: Empty for all hosts together.
        steps: First and last; None for all.
    """

    capture_id: uuid.UUID
    host: str = ""
    steps: StepRange | None = None


def compare_stored(
    runtime: Runtime, tool: str, parameters: Mapping[str, str], base: AskedSide, other: AskedSide
) -> Comparison:
    """What changed from the base to the other.

    Raises:
        InputNotFoundError: there is no such capture, host or tool.
        NotAnalyzedError: an analysis is under way, or failed.
        ParameterError: the tool does not take one of the parameters.
    """
    check_parameters(tool_named(tool), parameters)
    return compare(*(_side(runtime, tool, parameters, asked) for asked in (base, other)))


def _side(runtime: Runtime, tool: str, parameters: Mapping[str, str], asked: AskedSide) -> Side:
    listed = {**parameters, **parameters_for(tool, asked.steps)}
    question = ask(runtime, asked.capture_id, tool, asked.host, listed, of_any_host=True)
    overview = replace(question, tool=TOOLS["overview_page"], parameters={})
    return Side(_result(runtime, question), _result(runtime, overview), asked.steps)


def _result(runtime: Runtime, question: Question) -> ToolResult:
    found = answer(runtime, question)
    return ToolResult.from_json(found["body"], found["tables"])
