"""How near the operations of the devices come to what the devices can do, over all of them."""

import numpy as np
import numpy.typing as npt

from podscope_analyzers.op_metrics.database import MemorySpace, OpDatabase
from podscope_analyzers.peaks import HBM, PerfEnv


def memory_bandwidth_ratio(ops: OpDatabase, peaks: PerfEnv) -> float | None:
    """Bytes moved to and from main memory over what fits into the time looked at.

    None where no operation tells its traffic, or the device its bandwidth.
    """
    bandwidth = _hbm_bytes_per_ps(peaks)
    moved = float(_hbm_bytes(ops).sum())
    if not bandwidth or moved <= 0 or ops.total_time_ps <= 0:
        return None
    return moved / (bandwidth * ops.total_time_ps)


def program_efficiency_ratio(ops: OpDatabase, peaks: PerfEnv) -> float | None:
    """Time that the operations need at peak rates over the time that they take.

    An operation needs as long as its computation or its traffic, whichever takes longer; never
    more than it took, since a work estimated too high is no better program. One whose work is not
    known counts as time that nothing needs.
    """
    flops_per_ps = peaks.peak_tera_flops_per_second
    bandwidth = _hbm_bytes_per_ps(peaks)
    took = ops.top("self_time_ps") * ~ops.is_idle[: ops.top_count]
    needed = np.zeros(len(took))
    if flops_per_ps > 0:
        needed = ops.top("own_flops") / flops_per_ps
    if bandwidth > 0:
        needed = np.maximum(needed, _hbm_bytes(ops) / bandwidth)
    total = float(took.sum())
    if total <= 0 or not needed.any():
        return None
    return float(np.minimum(needed, took).sum()) / total


def _hbm_bytes_per_ps(peaks: PerfEnv) -> float:
    return peaks.bandwidth(HBM) / 1e3


def _hbm_bytes(ops: OpDatabase) -> npt.NDArray[np.float64]:
    """Traffic with main memory of every operation at the top, shape (n,).

    All traffic of an operation whose memories are not told apart, as in the roofline.
    """
    accesses, top = ops.accesses, ops.top_count
    of_top = accesses.op < top
    is_told_apart = np.zeros(top, np.bool_)
    is_told_apart[accesses.op[of_top]] = True
    in_hbm = np.flatnonzero(of_top & (accesses.space == MemorySpace.HBM))
    moved = np.zeros(top)
    np.add.at(moved, accesses.op[in_hbm], accesses.size_bytes[in_hbm])
    return np.where(is_told_apart, moved, ops.top("own_bytes_accessed"))
