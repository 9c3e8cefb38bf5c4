"""Every table in one place, for the migrations and the schema check."""

from podscope_collector.analyses.models import (
    HostSummary,
    PodViewerRow,
    StoredPodState,
    StoredToolResult,
)
from podscope_collector.captures.models import Capture, CaptureAttempt, CaptureHost
from podscope_collector.db import Base
from podscope_collector.schedules.models import Schedule
from podscope_collector.work.models import Heartbeat, WorkItem

MODELS = (
    Capture,
    CaptureAttempt,
    CaptureHost,
    Heartbeat,
    HostSummary,
    PodViewerRow,
    Schedule,
    StoredPodState,
    StoredToolResult,
    WorkItem,
)

metadata = Base.metadata
