"""Which events of a host say something themselves: all others only lie around some of these.

A traced Python program makes millions of calls. One that has no stat that anything reads has the
group of the call around it, and neither begins nor hands on a group.
"""

from typing import Final

import numpy as np

from podscope_analyzers.collectives import is_runtime_collective
from podscope_analyzers.grouping.contexts import CONTEXT_STATS
from podscope_analyzers.grouping.event_types import NodeType, node_types
from podscope_analyzers.op_names import PYTHON_FRAME, OpCategory, parse_op_name
from podscope_analyzers.xspace import EventMetadataTable, Sieve

# Beside what grouping reads, what operations on the host's threads are known by.
_STATS: Final = CONTEXT_STATS | {
    "_ipl_stage_id",
    "_ipl_stage_cat",
    "tf_op",
    "hlo_op",
    "program_id",
}


def host_sieve(table: EventMetadataTable) -> Sieve:
    """The sieve for the lines of a host's plane.

    Args:
        table: What the plane's events are called.
    """
    rows = node_types(table.names) != NodeType.UNKNOWN
    for row, name in enumerate(table.names):
        rows[row] |= not name.startswith(PYTHON_FRAME) or _is_known(name)
    return Sieve(rows.astype(np.uint8), _STATS, "_a")


def _is_known(name: str) -> bool:
    return parse_op_name(name).category != OpCategory.UNKNOWN or is_runtime_collective(name)
