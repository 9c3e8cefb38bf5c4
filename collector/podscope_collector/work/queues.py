"""Queues and the tasks that consume them; a kind of work has one task and one queue."""

from typing import Final

from podscope_collector.work.models import WorkKind

CAPTURE: Final = "capture"
INGEST: Final = "ingest"
ANALYZE: Final = "analyze"
MAINTENANCE: Final = "maintenance"
QUEUES: Final = (CAPTURE, INGEST, ANALYZE, MAINTENANCE)

# Captures wait for the network and must start at once; analyses take a core each. Workers of
# their own keep a thousand analyses from standing in front of a capture.
PROMPT_QUEUES: Final = (CAPTURE, MAINTENANCE)
HEAVY_QUEUES: Final = (INGEST, ANALYZE)

TASKS: Final[dict[WorkKind, tuple[str, str]]] = {
    WorkKind.RUN_CAPTURE: ("podscope.captures.run", CAPTURE),
    WorkKind.ANALYZE_HOST: ("podscope.analyses.analyze_host", ANALYZE),
    WorkKind.REDUCE_CAPTURE: ("podscope.analyses.reduce_capture", ANALYZE),
}
TICK_TASK: Final = "podscope.maintenance.tick"
HEARTBEAT_TASK: Final = "podscope.maintenance.heartbeat"
