"""Full paths of the profiler's RPCs.

Stock servers register these names in packages that are not ours (``tensorflow``), so they
are called and served by path and never through generated stubs.
"""

from typing import Final

PROFILER_SERVICE: Final = "tensorflow.ProfilerService"
PROFILE: Final = f"/{PROFILER_SERVICE}/Profile"
TERMINATE: Final = f"/{PROFILER_SERVICE}/Terminate"
MONITOR: Final = f"/{PROFILER_SERVICE}/Monitor"
START_CONTINUOUS_PROFILING: Final = f"/{PROFILER_SERVICE}/StartContinuousProfiling"
GET_SNAPSHOT: Final = f"/{PROFILER_SERVICE}/GetSnapshot"
STOP_CONTINUOUS_PROFILING: Final = f"/{PROFILER_SERVICE}/StopContinuousProfiling"

PROFILE_ANALYSIS: Final = "tensorflow.ProfileAnalysis"
NEW_SESSION: Final = f"/{PROFILE_ANALYSIS}/NewSession"
ENUM_SESSIONS: Final = f"/{PROFILE_ANALYSIS}/EnumSessions"
GET_SESSION_TOOL_DATA: Final = f"/{PROFILE_ANALYSIS}/GetSessionToolData"

RUNTIME_METRIC_SERVICE: Final = "tpu.monitoring.runtime.RuntimeMetricService"
GET_RUNTIME_METRIC: Final = f"/{RUNTIME_METRIC_SERVICE}/GetRuntimeMetric"
LIST_SUPPORTED_METRICS: Final = f"/{RUNTIME_METRIC_SERVICE}/ListSupportedMetrics"

AGENT_SERVICE: Final = "podscope.agent.v1.AgentService"
AGENT_DESCRIBE: Final = f"/{AGENT_SERVICE}/Describe"
AGENT_CLOCK_PING: Final = f"/{AGENT_SERVICE}/ClockPing"
AGENT_CAPTURE: Final = f"/{AGENT_SERVICE}/Capture"
AGENT_CANCEL: Final = f"/{AGENT_SERVICE}/Cancel"
AGENT_FETCH: Final = f"/{AGENT_SERVICE}/Fetch"
AGENT_REPORT_FIGURES: Final = f"/{AGENT_SERVICE}/ReportFigures"

BUSY_DETAILS: Final = "Another profiling session active."
"""What a stock server says, with code INTERNAL, while another capture runs."""

AGENT_PORT: Final = 8466
"""Where a podscope agent listens by default, and the profiler of a TPU worker."""

MAX_MESSAGE_BYTES: Final = 2**31 - 1
"""The largest message that a gRPC peer can be told to accept."""
