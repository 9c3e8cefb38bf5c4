"""Flops of convolutions, against counting every pair of positions."""

from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.hlo.convolution import convolution_flops
from podscope_protos.v1 import hlo_pb2

FEATURES, OUTPUTS, BATCH = 3, 5, 2


def flops(window: hlo_pb2.WindowDimension, image: int, kernel: int, result: int) -> float:
    """Flops along one spatial dimension, each pair of positions once per features and batch."""
    proto = hlo_pb2.HloInstructionProto(
        opcode="convolution",
        window=hlo_pb2.Window(dimensions=[window]),
        convolution_dimension_numbers=hlo_pb2.ConvolutionDimensionNumbers(
            input_batch_dimension=0,
            input_feature_dimension=1,
            input_spatial_dimensions=[2],
            kernel_output_feature_dimension=1,
            kernel_spatial_dimensions=[2],
            output_spatial_dimensions=[2],
        ),
    )
    shapes = ([BATCH, FEATURES, image], [FEATURES, OUTPUTS, kernel], [BATCH, OUTPUTS, result])
    return convolution_flops(proto, *(hlo_pb2.ShapeProto(dimensions=one) for one in shapes))


@given(
    st.integers(0, 12), st.integers(0, 6), st.integers(0, 14),
    st.integers(1, 6), st.integers(-8, 8), st.integers(1, 4), st.integers(1, 6),
)  # fmt: skip
def test_flops_are_two_for_every_pair_that_meets_an_element(
    image: int, kernel: int, result: int, stride: int, padding: int, dilation: int, base: int
) -> None:
    window = hlo_pb2.WindowDimension(
        stride=stride, padding_low=padding, window_dilation=dilation, base_dilation=base
    )
    # An element of the input is at every ``base``-th place; between them are holes.
    elements = {base * at for at in range(image)}
    pairs = sum(
        stride * out + dilation * k - padding in elements
        for out in range(result)
        for k in range(kernel)
    )
    assert flops(window, image, kernel, result) == 2 * FEATURES * OUTPUTS * BATCH * pairs


def test_a_result_longer_than_any_memory_is_counted_too() -> None:
    length = 1 << 40
    window = hlo_pb2.WindowDimension(stride=1, window_dilation=1, base_dilation=1)
    found = flops(window, length, 3, length - 2)
    assert found == 2 * FEATURES * OUTPUTS * BATCH * 3 * (length - 2)
