"""What a step's time can go into on a CPU or GPU host, in order of priority."""

from enum import IntEnum
from typing import Final


class EventType(IntEnum):
    """Kind of an event within a step; of several at one time, the largest wins."""

    UNKNOWN_TIME = 0
    HOST_COMPUTE = 1
    HOST_PREPROCESS = 2
    HOST_POSTPROCESS = 3
    HOST_BATCH_FORMATION = 4
    HOST_RUNTIME = 5
    HOST_COMPILE = 6
    HOST_TO_HOST = 7
    HOST_TO_DEVICE = 8
    HOST_PREPARE = 9
    DEVICE_COLLECTIVES = 10
    HOST_WAIT_INPUT = 11
    DEVICE_TO_DEVICE = 12
    DEVICE_TO_HOST = 13
    DEVICE_COMPUTE_32 = 14
    DEVICE_COMPUTE_16 = 15
    DEVICE_WAIT_DEVICE = 16
    DEVICE_WAIT_HOST = 17


EVENT_TYPES: Final = tuple(kind.name.lower() for kind in EventType)
"""Names of the types; a type's value is its index, and the column of a breakdown."""

GENERIC_GROUPS: Final[tuple[tuple[str, tuple[EventType, ...]], ...]] = (
    ("Device compute", (EventType.DEVICE_COMPUTE_32, EventType.DEVICE_COMPUTE_16)),
    ("Device to device", (EventType.DEVICE_TO_DEVICE, EventType.DEVICE_WAIT_DEVICE)),
    ("Device collective communication", (EventType.DEVICE_COLLECTIVES,)),
    ("Host compute", (EventType.HOST_COMPUTE,)),
    ("Kernel launch", (EventType.HOST_PREPARE,)),
    (
        "Input",
        (EventType.HOST_WAIT_INPUT, EventType.HOST_TO_DEVICE, EventType.DEVICE_WAIT_HOST),
    ),
    ("Output", (EventType.DEVICE_TO_HOST,)),
    ("Compilation", (EventType.HOST_COMPILE,)),
    ("All others", (EventType.UNKNOWN_TIME,)),
)
"""The groups that people see, ids 1 to 9 in this order; copies within the host are in none."""
