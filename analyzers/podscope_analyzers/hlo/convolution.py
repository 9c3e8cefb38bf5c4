"""Flops of convolutions."""

from math import prod
from typing import Final

import numpy as np

from podscope_protos.v1 import hlo_pb2

_MAX_WINDOW: Final = 1 << 16
_MAX_POSITIONS: Final = 1 << 26


def convolution_flops(
    proto: hlo_pb2.HloInstructionProto,
    image: hlo_pb2.ShapeProto,
    kernel: hlo_pb2.ShapeProto,
    result: hlo_pb2.ShapeProto,
) -> float:
    """Two flops for each product of an element that is not padding.

    Raises:
        OverflowError: a window is too large to be counted.
    """
    numbers = proto.convolution_dimension_numbers
    features = image.dimensions[numbers.input_feature_dimension] // max(
        1, proto.feature_group_count
    )
    outputs = kernel.dimensions[numbers.kernel_output_feature_dimension]
    batch = image.dimensions[numbers.input_batch_dimension] // max(1, proto.batch_group_count)
    positions = prod(
        _valid_positions(
            window,
            image.dimensions[numbers.input_spatial_dimensions[i]],
            kernel.dimensions[numbers.kernel_spatial_dimensions[i]],
            result.dimensions[numbers.output_spatial_dimensions[i]],
        )
        for i, window in enumerate(proto.window.dimensions)
    )
    return 2.0 * features * outputs * batch * positions


def _valid_positions(
    window: hlo_pb2.WindowDimension, input_size: int, kernel_size: int, output_size: int
) -> int:
    """Pairs of kernel and output position that meet an element of the input."""
    if kernel_size > _MAX_WINDOW or kernel_size * output_size > _MAX_POSITIONS * 64:
        problem = "a window is too large"
        raise OverflowError(problem)
    dilation = max(1, window.base_dilation)
    base = np.arange(output_size, dtype=np.int64) * max(1, window.stride) - window.padding_low
    count = 0
    for k in range(kernel_size):
        place = base + k * max(1, window.window_dilation)
        is_valid = (place >= 0) & (place % dilation == 0) & (place // dilation < input_size)
        count += int(np.count_nonzero(is_valid))
    return count
