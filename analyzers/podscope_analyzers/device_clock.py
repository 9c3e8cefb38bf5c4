"""When events happened by the device's own clock, which some tracers tell beside line times."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.xspace import Columns

DEVICE_SPAN: Final = ("device_offset_ps", "device_duration_ps")


def device_spans(columns: Columns) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and duration of events on the device's clock, where they carry both, (n,) each.

    Args:
        columns: With the stats of ``DEVICE_SPAN`` decoded.
    """
    offset, duration = (columns.stat(name) for name in DEVICE_SPAN)
    if not offset.kind.any():
        return columns.start_ps, columns.duration_ps
    if offset.is_everywhere and duration.is_everywhere:
        return offset.ints_or_uints(), duration.ints_or_uints()
    both = offset.present() & duration.present()
    return (
        np.where(both, offset.ints_or_uints(), columns.start_ps),
        np.where(both, duration.ints_or_uints(), columns.duration_ps),
    )
