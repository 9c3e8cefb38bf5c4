"""Attributes of products, convolutions and whatever else has windows."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from podscope_analyzers.hlo.text.enums import enum_name
from podscope_analyzers.hlo.text.shape_text import braced
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto
Attributes = Iterator[str]

_DEFAULT: Final = hlo_pb2.PrecisionConfig.Precision.PRECISION_DEFAULT
# Dimensions are those of small arrays; a hostile number must not make a long text.
_MAX_LABELS: Final = 1000


def precision(proto: Proto) -> Attributes:
    """How exact the product must be: of each operand, and by which algorithm."""
    config = proto.precision_config
    wanted = list(config.operand_precision)
    if wanted and proto.operand_ids:
        # XLA fits the list to the operands when it loads a program.
        count = len(proto.operand_ids)
        wanted = [*wanted, *[_DEFAULT] * count][:count]
    if any(wanted):
        names = (enum_name(hlo_pb2.PrecisionConfig.Precision, one) for one in wanted)
        shown = ",".join(name.removeprefix("PRECISION_").lower() for name in names)
        yield f"operand_precision={{{shown}}}"
    if config.algorithm:
        name = enum_name(hlo_pb2.PrecisionConfig.Algorithm, config.algorithm)
        yield f"algorithm={name.removeprefix('ALG_').lower()}"


def _contraction(numbers: hlo_pb2.DotDimensionNumbers) -> Attributes:
    if numbers.lhs_batch_dimensions:
        yield f"lhs_batch_dims={braced(numbers.lhs_batch_dimensions)}"
    yield f"lhs_contracting_dims={braced(numbers.lhs_contracting_dimensions)}"
    if numbers.rhs_batch_dimensions:
        yield f"rhs_batch_dims={braced(numbers.rhs_batch_dimensions)}"
    yield f"rhs_contracting_dims={braced(numbers.rhs_contracting_dimensions)}"


def dot(proto: Proto) -> Attributes:
    """Which dimensions a product runs over."""
    yield from _contraction(proto.dot_dimension_numbers)
    yield from precision(proto)


def ragged_dot(proto: Proto) -> Attributes:
    """The same of a product of groups of unequal sizes."""
    numbers = proto.ragged_dot_dimension_numbers
    yield from _contraction(numbers.dot_dimension_numbers)
    yield f"lhs_ragged_dims={braced(numbers.lhs_ragged_dimensions)}"
    yield f"rhs_group_dims={braced(numbers.rhs_group_dimensions)}"
    yield from precision(proto)


def window_text(window: hlo_pb2.Window) -> str:
    """A window: its size, and what is not plain about it."""
    dimensions = window.dimensions

    def across(text: Callable[[hlo_pb2.WindowDimension], str]) -> str:
        return "x".join(map(text, dimensions))

    shown = [f"size={across(lambda d: str(d.size))}"]
    if any(d.stride != 1 for d in dimensions):
        shown.append(f"stride={across(lambda d: str(d.stride))}")
    if any(d.padding_low or d.padding_high for d in dimensions):
        shown.append(f"pad={across(lambda d: f'{d.padding_low}_{d.padding_high}')}")
    if any(d.base_dilation != 1 for d in dimensions):
        shown.append(f"lhs_dilate={across(lambda d: str(d.base_dilation))}")
    if any(d.window_dilation != 1 for d in dimensions):
        shown.append(f"rhs_dilate={across(lambda d: str(d.window_dilation))}")
    if any(d.window_reversal for d in dimensions):
        shown.append(f"rhs_reversal={across(lambda d: str(int(d.window_reversal)))}")
    return f"{{{' '.join(shown)}}}"


def window(proto: Proto) -> Attributes:
    """The window of an instruction that has one."""
    if proto.window.dimensions:
        yield f"window={window_text(proto.window)}"


def _labels(named: Mapping[int, str], spatial: Iterable[int]) -> str:
    labels = {**named, **{at: str(number) for number, at in enumerate(spatial)}}
    length = min(max([*labels, -1]) + 1, _MAX_LABELS)
    return "".join(labels.get(at, "?") for at in range(length))


def dimension_labels(proto: Proto) -> Attributes:
    """What every dimension of a convolution's operands and result is."""
    n = proto.convolution_dimension_numbers
    left = _labels(
        {n.input_batch_dimension: "b", n.input_feature_dimension: "f"}, n.input_spatial_dimensions
    )
    kernel = _labels(
        {n.kernel_input_feature_dimension: "i", n.kernel_output_feature_dimension: "o"},
        n.kernel_spatial_dimensions,
    )
    output = _labels(
        {n.output_batch_dimension: "b", n.output_feature_dimension: "f"},
        n.output_spatial_dimensions,
    )
    yield f"dim_labels={left}_{kernel}->{output}"


def group_counts(proto: Proto) -> Attributes:
    """Groups of features and of batches, where there are several."""
    for name in ("feature_group_count", "batch_group_count"):
        count = getattr(proto, name)
        if count > 1:
            yield f"{name}={count}"


def convolution(proto: Proto) -> Attributes:
    """The window of a convolution, and what its dimensions are."""
    yield from window(proto)
    yield from dimension_labels(proto)
    yield from group_counts(proto)
    yield from precision(proto)
    if proto.conv_kind:
        kind = enum_name(hlo_pb2.ConvolutionKind, proto.conv_kind)
        yield f"convolution_kind={kind.removeprefix('CONVOLUTION_KIND_').lower()}"
