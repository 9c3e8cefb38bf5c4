"""Parsed programs are large and refer to themselves: who asks a tool is not left with them."""

import gc
from collections.abc import Callable

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers.hlo.programs import Program
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope


def _stored(host: str) -> HostPartial:
    """A host's partial with its programs, as a service reads it back."""
    pod = Pod("tpu-v5e", 2, 6, 3)
    made = analyze_host(build_xspace(pod, 0), host)
    read = HostPartial.from_bytes(made.to_bytes())
    return read.with_part("programs", made.part_to_bytes("programs"))


def _programs() -> list[Program]:
    # Its own type: a proxy that outlived its object cannot be asked for its class.
    return [one for one in gc.get_objects() if type(one) is Program]


def _own(partial: HostPartial) -> object:
    return run_tool("graph_viewer", [partial], Scope(hosts=[partial.host]))


def _xprofs(partial: HostPartial) -> object:
    (title, *_) = partial.program_titles.values()
    assert partial.programs is not None
    (program, *_) = partial.programs
    node = next(program.instructions()).name
    partial.programs.close()
    given = {"type": "graph", "format": "dot", "module_name": title, "node_name": node}
    return run_tool_xprof("graph_viewer", [partial], given)


@pytest.mark.parametrize("ask", [_own, _xprofs])
def test_nothing_parsed_stays_when_a_tool_has_answered(
    ask: Callable[[HostPartial], object],
) -> None:
    partial = _stored("w0")
    gc.collect()
    before = _programs()
    gc.disable()
    try:
        assert ask(partial)
        assert all(any(one is other for other in before) for one in _programs())
    finally:
        gc.enable()
