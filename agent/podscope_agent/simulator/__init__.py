"""Simulated pods: profiler servers and XSpace files without any accelerator.

`Pod` says what to simulate, `build_xspace` makes one host's trace, `serving` serves a pod from a
running event loop and `serve` from a process of its own.
"""

from podscope_agent.simulator.devices import DEVICES
from podscope_agent.simulator.faults import FAULT_KINDS, Fault, parse_faults
from podscope_agent.simulator.pod import Pod, Window
from podscope_agent.simulator.process import RunningPod, serve
from podscope_agent.simulator.server import PodServer, ServedHost, serving
from podscope_agent.simulator.truth import planted_truth
from podscope_agent.simulator.write import session_name, write_pod
from podscope_agent.simulator.xspace import TraceOptions, build_xspace

__all__ = [
    "DEVICES",
    "FAULT_KINDS",
    "Fault",
    "Pod",
    "PodServer",
    "RunningPod",
    "ServedHost",
    "TraceOptions",
    "Window",
    "build_xspace",
    "parse_faults",
    "planted_truth",
    "serve",
    "serving",
    "session_name",
    "write_pod",
]
