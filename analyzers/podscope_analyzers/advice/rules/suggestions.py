"""Which of the rules XProf has as smart suggestions, and what it calls them."""

from collections.abc import Mapping
from typing import Final

SUGGESTIONS: Final[Mapping[str, str]] = {
    "barrier_cores": "BarrierCores",
    "communication_bound": "CollectiveBound",
    "compute_bound": "ComputeBound",
    "memory_bandwidth_bound": "MemoryBound",
    "data_shuffling": "DataShuffleBound",
    "input_enqueue": "DataTransferBound",
    "input_processing": "HostProcessingBound",
    "input_unobserved": "InputBound",
    "debug_print": "DebugPrint",
    "tensor_core_idle": "TensorCoreIdleBound",
    "sparse_core_bound": "SparseCoreBound",
    "async_wait": "SparseCoreOffload",
}
"""In the order of its documentation. Its open build uses the first alone."""
