"""Columns of the tables about allocators; those that several have are defined once."""

from typing import Final

from podscope_analyzers.result import Column

_ALLOCATOR: Final = Column("allocator", "Allocator", "string")
_CAPACITY_BYTES: Final = Column("capacity_bytes", "Capacity", "integer", "bytes")
_BEGIN_MS: Final = Column("begin_ms", "From", "number", "ms")
_END_MS: Final = Column("end_ms", "To", "number", "ms")
_OP_NAME: Final = Column("op_name", "Operation", "string")
_ALLOCATION_BYTES: Final = Column("allocation_bytes", "Allocated", "integer", "bytes")
_OCCURRENCES: Final = Column("occurrences", "Occurrences", "integer")
_TOTAL_BYTES: Final = Column("total_bytes", "Together", "integer", "bytes")
_REGION_TYPE: Final = Column("region_type", "Region", "string")
_DATA_TYPE: Final = Column("data_type", "Data type", "string")
_SHAPE: Final = Column("shape", "Shape", "string")
_USED_BYTES: Final = Column("used_bytes", "In use", "integer", "bytes")
_FREE_BYTES: Final = Column("free_bytes", "Free", "integer", "bytes")
_CACHED_BYTES: Final = Column("cached_bytes", "Cached", "integer", "bytes")

ALLOCATOR_COLUMNS: Final = (
    _ALLOCATOR,
    Column("allocations", "Allocations", "integer"),
    Column("deallocations", "Deallocations", "integer"),
    Column("peak_bytes", "Peak", "integer", "bytes"),
    Column("peak_time_ms", "Peak at", "number", "ms"),
    Column("peak_stack_bytes", "Stack at the peak", "integer", "bytes"),
    Column("peak_heap_bytes", "Heap at the peak", "integer", "bytes"),
    Column("peak_free_bytes", "Free at the peak", "integer", "bytes"),
    Column("peak_cached_bytes", "Cached at the peak", "integer", "bytes"),
    Column("peak_fragmentation_ratio", "Fragmentation at the peak", "number", "ratio"),
    Column("lifetime_peak_bytes", "Peak since the start", "integer", "bytes"),
    _CAPACITY_BYTES,
)
TIMELINE_COLUMNS: Final = (
    _ALLOCATOR,
    _BEGIN_MS,
    _END_MS,
    Column("events", "Events", "integer"),
    Column("min_used_bytes", "Least in use", "integer", "bytes"),
    Column("max_used_bytes", "Most in use", "integer", "bytes"),
    Column("min_free_bytes", "Least free", "integer", "bytes"),
    Column("max_stack_bytes", "Most stack", "integer", "bytes"),
    Column("max_fragmentation_ratio", "Most fragmentation", "number", "ratio"),
    Column("op_name", "Operation at the most", "string"),
)
PEAK_COLUMNS: Final = (
    _ALLOCATOR,
    _OP_NAME,
    _ALLOCATION_BYTES,
    Column("requested_bytes", "Requested", "integer", "bytes"),
    _OCCURRENCES,
    _TOTAL_BYTES,
    _REGION_TYPE,
    _DATA_TYPE,
    _SHAPE,
    Column("is_recorded", "Recorded", "boolean"),
)
MOMENT_COLUMNS: Final = (
    _ALLOCATOR,
    Column("time_ms", "Event before it", "number", "ms"),
    _USED_BYTES,
    Column("stack_bytes", "Stack", "integer", "bytes"),
    Column("heap_bytes", "Heap", "integer", "bytes"),
    _FREE_BYTES,
    _CACHED_BYTES,
    Column("fragmentation_ratio", "Fragmentation", "number", "ratio"),
)
GROWTH_COLUMNS: Final = (
    _ALLOCATOR,
    Column("verdict", "Verdict", "string"),
    Column("steps", "Steps", "integer"),
    Column("first_bytes", "Least in use in the first step", "integer", "bytes"),
    Column("last_bytes", "Least in use in the last step", "integer", "bytes"),
    Column("growth_per_step_bytes", "Growth per step", "number", "bytes"),
    Column("growth_ratio", "Growth over all steps, of the peak", "number", "ratio"),
    Column("noise_bytes", "Noise", "number", "bytes"),
    Column("p_value", "Probability by chance", "number"),
    Column("steps_until_full", "Steps until full", "integer"),
)
SURVIVOR_COLUMNS: Final = (
    _ALLOCATOR,
    _OP_NAME,
    _ALLOCATION_BYTES,
    Column("occurrences", "Left", "integer"),
    Column("steps", "In steps", "integer"),
    _TOTAL_BYTES,
    _REGION_TYPE,
    _DATA_TYPE,
    _SHAPE,
)
SHORTAGE_COLUMNS: Final = (
    Column("kind", "Kind", "string"),
    _ALLOCATOR,
    Column("time_ms", "At", "number", "ms"),
    Column("requested_bytes", "Asked for", "integer", "bytes"),
    _FREE_BYTES,
    _CACHED_BYTES,
    _USED_BYTES,
    _CAPACITY_BYTES,
    Column("missing_bytes", "Missing", "integer", "bytes"),
    Column("is_fragmented", "Fragmented", "boolean"),
    _OP_NAME,
    Column("message", "Message", "string"),
)
SHRINK_COLUMNS: Final = (
    _ALLOCATOR,
    _OP_NAME,
    _SHAPE,
    _DATA_TYPE,
    _REGION_TYPE,
    _OCCURRENCES,
    _TOTAL_BYTES,
    Column("used_ratio", "Share of what is in use", "number", "ratio"),
    Column("cumulative_bytes", "With those above", "integer", "bytes"),
    Column("is_enough", "These would be enough", "boolean"),
)
MODULE_COLUMNS: Final = (
    Column("program", "Program", "string"),
    Column("core", "Core", "string"),
    _BEGIN_MS,
    _END_MS,
)
