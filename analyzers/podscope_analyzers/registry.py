"""The table of tools: one row each, in the order in which people meet them."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from podscope_analyzers.capture_stats import CaptureStats
from podscope_analyzers.errors import ParameterError, UnknownToolError
from podscope_analyzers.result import Scope, ToolResult
from podscope_analyzers.tools import (
    framework_op_stats,
    hlo_stats,
    input_pipeline_analyzer,
    kernel_stats,
    memory_profile,
    memory_viewer,
    overview_page,
    pod_viewer,
    roofline_model,
    tf_data_bottleneck_analysis,
)

ToolScope = Literal["host", "all_hosts", "both"]
Analyze = Callable[[CaptureStats, Scope, Mapping[str, str]], ToolResult]
XprofJson = Callable[[CaptureStats, Mapping[str, str]], object]


@dataclass(frozen=True)
class Tool:
    """A tool that works on the combined stats of one or several hosts.

    Attributes:
        scope: Whether it answers for single hosts, for all hosts together, or for both.
        version: Raised when the meaning of its result changes.
        analyze: Gives our own result.
        xprof_json: Gives what XProf's data route answers for the same tool, JSON-ready.
        parameters: Names that it takes beside those every tool takes, each with one line of help.
        keeps_incomplete_steps: Whether it wants each host's first and last step too, which the
            reference leaves out of more than five steps that are not a TPU's.
        parts: Which of ``partials.PARTS`` it works on beside the stats.
    """

    name: str
    title: str
    scope: ToolScope
    version: int
    analyze: Analyze
    xprof_json: XprofJson
    parameters: Mapping[str, str] = field(default_factory=dict)
    keeps_incomplete_steps: bool = False
    parts: tuple[str, ...] = ()


_ROWS: tuple[Tool, ...] = (
    Tool(
        "overview_page",
        "Overview",
        "all_hosts",
        overview_page.VERSION,
        overview_page.analyze,
        overview_page.xprof_json,
    ),
    Tool(
        "pod_viewer",
        "Pod viewer",
        "all_hosts",
        pod_viewer.VERSION,
        pod_viewer.analyze,
        pod_viewer.xprof_json,
        keeps_incomplete_steps=True,
    ),
    Tool(
        "input_pipeline_analyzer",
        "Input pipeline",
        "both",
        input_pipeline_analyzer.VERSION,
        input_pipeline_analyzer.analyze,
        input_pipeline_analyzer.xprof_json,
    ),
    Tool(
        tf_data_bottleneck_analysis.NAME,
        "tf.data bottlenecks",
        "both",
        tf_data_bottleneck_analysis.VERSION,
        tf_data_bottleneck_analysis.analyze,
        tf_data_bottleneck_analysis.xprof_json,
    ),
    Tool(
        framework_op_stats.NAME,
        "Framework operations",
        "both",
        framework_op_stats.VERSION,
        framework_op_stats.analyze,
        framework_op_stats.xprof_json,
    ),
    Tool(
        hlo_stats.NAME,
        "HLO instructions",
        "both",
        hlo_stats.VERSION,
        hlo_stats.analyze,
        hlo_stats.xprof_json,
    ),
    Tool(
        roofline_model.NAME,
        "Roofline",
        "host",
        roofline_model.VERSION,
        roofline_model.analyze,
        roofline_model.xprof_json,
    ),
    Tool(
        kernel_stats.NAME,
        "GPU kernels",
        "both",
        kernel_stats.VERSION,
        kernel_stats.analyze,
        kernel_stats.xprof_json,
        keeps_incomplete_steps=True,
    ),
    Tool(
        memory_profile.NAME,
        "Memory profile",
        "host",
        memory_profile.VERSION,
        memory_profile.analyze,
        memory_profile.xprof_json,
        parameters=memory_profile.PARAMETERS,
        parts=("allocations",),
    ),
    Tool(
        memory_viewer.NAME,
        "Memory viewer",
        "host",
        memory_viewer.VERSION,
        memory_viewer.analyze,
        memory_viewer.xprof_json,
        parameters=memory_viewer.PARAMETERS,
        parts=("programs",),
    ),
)

TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ROWS}


def find_tool(name: str) -> Tool:
    """The tool of this name.

    Raises:
        UnknownToolError: there is none; the message names the nearest.
    """
    tool = TOOLS.get(name)
    if tool is None:
        msg = f"no tool '{name}'{nearest(name, TOOLS)}"
        raise UnknownToolError(msg)
    return tool


def check_parameters(tool: Tool, parameters: Mapping[str, str]) -> None:
    """Refuse a parameter that the tool does not take.

    Raises:
        ParameterError: there is one; the message names the nearest that the tool takes.
    """
    for name in parameters:
        if name not in tool.parameters:
            msg = f"{tool.name} has no parameter '{name}'{nearest(name, tool.parameters)}"
            raise ParameterError(msg)


def nearest(name: str, known: Mapping[str, object]) -> str:
    """The end of a message about an unknown name: the nearest known one, or all of them."""
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(sorted(known))}" if known else "; it takes none"
