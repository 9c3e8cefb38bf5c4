"""Steps of a job: when each ran, and what its time went into."""

from podscope_analyzers.steps.build import host_step_database
from podscope_analyzers.steps.database import Collectives, StepDatabase, Transfers
from podscope_analyzers.steps.event_types import EVENT_TYPES, EventType
from podscope_analyzers.steps.intersection import StepIntersection, intersect_steps
from podscope_analyzers.steps.pod_steps import PodSteps, combine_step_databases
from podscope_analyzers.steps.tpu import TpuBreakdown, tpu_breakdown

__all__ = [
    "EVENT_TYPES",
    "Collectives",
    "EventType",
    "PodSteps",
    "StepDatabase",
    "StepIntersection",
    "TpuBreakdown",
    "Transfers",
    "combine_step_databases",
    "host_step_database",
    "intersect_steps",
    "tpu_breakdown",
]
