"""By how much each of several is later than the others, of which a median speaks."""

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]


def lateness(own: Float64s) -> Float64s:
    """Own work less the median of the *others* in the same step.

    Args:
        own: Shape (hosts, steps), NaN where a host misses a step.

    Returns:
        Shape (hosts, steps), NaN where the host misses the step or is alone in it.
    """
    # The median of all but one: of the sorted values, the middle places move up by one from
    # the place of the one that is left out on.
    order = np.argsort(own, axis=0, kind="stable")
    ordered = np.take_along_axis(own, order, axis=0)
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(len(own))[:, None], axis=0)
    others = (~np.isnan(own)).sum(axis=0) - 1
    low, high = (others - 1) // 2, others // 2
    columns = np.arange(own.shape[1])
    last = max(len(own) - 1, 0)
    middle = sum(
        ordered[np.clip(at + (at >= place), 0, last), columns]
        for at in (low[None, :], high[None, :])
    )
    late: Float64s = own - middle / 2
    late[:, others < 1] = np.nan
    return late
