"""Flops of convolutions."""

from math import gcd, prod
from typing import Final

from podscope_protos.v1 import hlo_pb2

_MAX_WINDOW: Final = 1 << 16


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
    if kernel_size > _MAX_WINDOW:
        problem = "a window is too large"
        raise OverflowError(problem)
    stride, dilation = max(1, window.stride), max(1, window.base_dilation)
    common = gcd(stride, dilation)
    # Positions at which an element is met, not a hole between dilated ones, are this far apart.
    apart = dilation // common
    inverse = pow(stride // common, -1, apart)
    count = 0
    for k in range(kernel_size):
        start = k * max(1, window.window_dilation) - window.padding_low
        if start % common:
            continue
        first = -(start // common) * inverse % apart
        low = max(0, -(start // stride))
        high = min(output_size - 1, (input_size * dilation - 1 - start) // stride)
        if low <= high:
            count += (high - first) // apart - (low - 1 - first) // apart
    return count
