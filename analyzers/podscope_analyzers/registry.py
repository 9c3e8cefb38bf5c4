"""The table of tools: one row each, in the order in which people meet them."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Protocol, cast

from podscope_analyzers.errors import ParameterError, UnknownToolError

if TYPE_CHECKING:
    from podscope_analyzers.capture_stats import CaptureStats
    from podscope_analyzers.result import Scope, ToolResult
    from podscope_analyzers.tools import (
        framework_op_stats,
        graph_viewer,
        hlo_stats,
        inference_profile,
        input_pipeline_analyzer,
        kernel_stats,
        megascale_stats,
        memory_profile,
        memory_viewer,
        op_profile,
        overview_page,
        perf_counters,
        pod_viewer,
        roofline_model,
        smart_suggestion,
        tf_data_bottleneck_analysis,
        utilization_viewer,
    )

ToolScope = Literal["host", "all_hosts", "both"]


class ToolModule(Protocol):
    """What the module of a tool has."""

    @property
    def VERSION(self) -> int:  # noqa: N802  # a module's constant
        """Raised when the meaning of the tool's result changes."""

    def analyze(
        self, stats: "CaptureStats", scope: "Scope", parameters: Mapping[str, str], /
    ) -> "ToolResult":
        """Our own result."""

    def xprof_json(self, stats: "CaptureStats", parameters: Mapping[str, str], /) -> object:
        """What XProf's data route answers."""


if TYPE_CHECKING:
    # Modules are loaded by name, each when its tool is used; here they are checked.
    _MODULES: tuple[ToolModule, ...] = (
        framework_op_stats,
        graph_viewer,
        hlo_stats,
        inference_profile,
        input_pipeline_analyzer,
        kernel_stats,
        megascale_stats,
        memory_profile,
        memory_viewer,
        op_profile,
        overview_page,
        perf_counters,
        pod_viewer,
        roofline_model,
        smart_suggestion,
        tf_data_bottleneck_analysis,
        utilization_viewer,
    )


@dataclass(frozen=True)
class Tool:
    """A tool that works on the combined stats of one or several hosts.

    Attributes:
        name: Of the tool, and of its module in ``tools``.
        scope: Whether it answers for single hosts, for all hosts together, or for both.
        keeps_incomplete_steps: Whether it wants each host's first and last step too, which the
            reference leaves out of more than five steps that are not a TPU's.
        first_host_in_xprof: Whether XProf's answer, asked without a host, is of the first in name
            order alone; ours is of all hosts together.
        parts: Which of ``partials.PARTS`` it works on beside the stats.
        shows_children: Whether it shows what the devices' operations are made of.
    """

    name: str
    title: str
    scope: ToolScope
    keeps_incomplete_steps: bool = False
    first_host_in_xprof: bool = False
    parts: tuple[str, ...] = ()
    shows_children: bool = False

    @cached_property
    def _module(self) -> ToolModule:
        return cast("ToolModule", importlib.import_module(f"{__package__}.tools.{self.name}"))

    @property
    def version(self) -> int:
        """Raised when the meaning of its result changes."""
        return self._module.VERSION

    @property
    def parameters(self) -> Mapping[str, str]:
        """Names that it takes beside those every tool takes, each with one line of help."""
        taken: Mapping[str, str] = getattr(self._module, "PARAMETERS", {})
        return taken

    def analyze(
        self, stats: "CaptureStats", scope: "Scope", parameters: Mapping[str, str]
    ) -> "ToolResult":
        """Our own result."""
        return self._module.analyze(stats, scope, parameters)

    def xprof_json(self, stats: "CaptureStats", parameters: Mapping[str, str]) -> object:
        """What XProf's data route answers for it, JSON-ready; text where that is a page or text."""
        return self._module.xprof_json(stats, parameters)


_ROWS: tuple[Tool, ...] = (
    Tool("overview_page", "Overview", "all_hosts"),
    Tool("pod_viewer", "Pod viewer", "all_hosts", keeps_incomplete_steps=True),
    Tool("input_pipeline_analyzer", "Input pipeline", "both"),
    Tool("tf_data_bottleneck_analysis", "tf.data bottlenecks", "both"),
    Tool("framework_op_stats", "Framework operations", "both"),
    Tool("op_profile", "Op profile", "both", first_host_in_xprof=True, shows_children=True),
    Tool("hlo_stats", "HLO instructions", "both", first_host_in_xprof=True, shows_children=True),
    Tool("roofline_model", "Roofline", "both", first_host_in_xprof=True),
    Tool("graph_viewer", "Graph viewer", "host", parts=("programs",)),
    Tool("kernel_stats", "GPU kernels", "both", keeps_incomplete_steps=True),
    Tool("memory_profile", "Memory profile", "host", parts=("allocations",)),
    Tool("memory_viewer", "Memory viewer", "host", parts=("programs",)),
    Tool("megascale_stats", "Transfers between slices", "both"),
    Tool("perf_counters", "Hardware counters", "host", parts=("counters",)),
    Tool("utilization_viewer", "Unit utilization", "host", parts=("counters",)),
    Tool("inference_profile", "Inference", "both"),
    Tool("smart_suggestion", "Suggestions", "all_hosts"),
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
    import difflib

    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known: {', '.join(sorted(known))}" if known else "; it takes none"
