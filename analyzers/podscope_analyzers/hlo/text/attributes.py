"""What an instruction says of itself after its operands, by its opcode."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from podscope_analyzers.hlo.text.collectives import collective, permute, transfer
from podscope_analyzers.hlo.text.contractions import (
    convolution,
    dimension_labels,
    dot,
    group_counts,
    precision,
    ragged_dot,
    window,
    window_text,
)
from podscope_analyzers.hlo.text.enums import enum_name
from podscope_analyzers.hlo.text.escapes import c_escaped
from podscope_analyzers.hlo.text.literal_text import literal_text
from podscope_analyzers.hlo.text.shape_text import braced, shape_text
from podscope_analyzers.hlo.text.sharding_text import sharding_text
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto
Attributes = Iterator[str]
Rule = Callable[[Proto], Attributes]

_COLLECTIVES: Final = (
    "all-reduce all-reduce-start all-gather all-gather-start reduce-scatter all-to-all "
    "collective-broadcast ragged-all-to-all"
)


def own_attributes(proto: Proto, operand_types: Iterable[int], *, configs: bool) -> Attributes:
    """The attributes of the instruction's opcode, in order.

    Args:
        proto: The instruction.
        operand_types: Element types of its operands.
        configs: Whether texts that only a device reads are shown.
    """
    if proto.opcode == "compare":
        yield from _compare(proto, next(iter(operand_types), 0))
    elif proto.opcode in ("infeed", "outfeed"):
        yield from _feeds(proto, configs=configs)
    elif proto.opcode in _OWN:
        yield from _OWN[proto.opcode](proto)


def _dimensions(proto: Proto) -> Attributes:
    yield f"dimensions={braced(proto.dimensions)}"


def _sort(proto: Proto) -> Attributes:
    yield from _dimensions(proto)
    if proto.is_stable:
        yield "is_stable=true"


def _compare(proto: Proto, operand_type: int) -> Attributes:
    yield f"direction={proto.comparison_direction}"
    name = enum_name(hlo_pb2.PrimitiveType, operand_type)
    usual = "PARTIAL" if name.startswith(("F", "BF", "C")) else "TOTAL"
    order = proto.comparison_order or usual
    if not proto.comparison_order and proto.comparison_type:
        # Older programs say the order in the type.
        order = "PARTIAL" if proto.comparison_type == "FLOAT" else "TOTAL"
    if order != usual:
        yield f"order={order}"


def _reshape(proto: Proto) -> Attributes:
    if proto.dimensions and proto.dimensions[0] != -1:
        yield f"inferred_dimension={proto.dimensions[0]}"


def _slice(proto: Proto) -> Attributes:
    with_strides = any(one.stride != 1 for one in proto.slice_dimensions)
    bounds = (
        f"[{one.start}:{one.limit}{f':{one.stride}' if with_strides else ''}]"
        for one in proto.slice_dimensions
    )
    yield f"slice={{{', '.join(bounds)}}}"


def _pad(proto: Proto) -> Attributes:
    dimensions = proto.padding_config.dimensions
    inner = any(one.interior_padding for one in dimensions)
    shown = "x".join(
        f"{one.edge_padding_low}_{one.edge_padding_high}"
        + (f"_{one.interior_padding}" if inner else "")
        for one in dimensions
    )
    yield f"padding={shown}"


def _gather(proto: Proto) -> Attributes:
    numbers = proto.gather_dimension_numbers
    yield f"offset_dims={braced(numbers.offset_dims)}"
    yield f"collapsed_slice_dims={braced(numbers.collapsed_slice_dims)}"
    yield f"start_index_map={braced(numbers.start_index_map)}"
    if numbers.operand_batching_dims:
        yield f"operand_batching_dims={braced(numbers.operand_batching_dims)}"
    if numbers.start_indices_batching_dims:
        yield f"start_indices_batching_dims={braced(numbers.start_indices_batching_dims)}"
    yield f"index_vector_dim={numbers.index_vector_dim}"
    yield f"slice_sizes={braced(proto.gather_slice_sizes)}"
    if proto.indices_are_sorted:
        yield "indices_are_sorted=true"


def _scatter(proto: Proto) -> Attributes:
    numbers = proto.scatter_dimension_numbers
    yield f"update_window_dims={braced(numbers.update_window_dims)}"
    yield f"inserted_window_dims={braced(numbers.inserted_window_dims)}"
    yield f"scatter_dims_to_operand_dims={braced(numbers.scatter_dims_to_operand_dims)}"
    if numbers.input_batching_dims:
        yield f"input_batching_dims={braced(numbers.input_batching_dims)}"
    if numbers.scatter_indices_batching_dims:
        yield f"scatter_indices_batching_dims={braced(numbers.scatter_indices_batching_dims)}"
    yield f"index_vector_dim={numbers.index_vector_dim}"
    if proto.indices_are_sorted:
        yield "indices_are_sorted=true"
    if proto.unique_indices:
        yield "unique_indices=true"


def _fft(proto: Proto) -> Attributes:
    yield f"fft_type={enum_name(hlo_pb2.FftType, proto.fft_type)}"
    yield f"fft_length={braced(proto.fft_length)}"


def _options(name: str) -> Rule:
    """The rule that shows whatever is set in a message of options."""

    def shown(proto: Proto) -> Attributes:
        for field, value in getattr(proto, name).ListFields():
            if isinstance(value, bool):
                yield f"{field.name}=true"
            else:
                known = field.enum_type.values_by_number
                yield f"{field.name}={known[value].name if value in known else value}"

    return shown


def _aliases(proto: Proto) -> Attributes:
    if proto.output_operand_aliasing:
        pairs = (
            f"{braced(one.output_shape_index)}: ({one.operand_index}, "
            f"{braced(one.operand_shape_index)})"
            for one in proto.output_operand_aliasing
        )
        yield f"output_to_operand_aliasing={{{', '.join(pairs)}}}"


def _fusion(proto: Proto) -> Attributes:
    yield f"kind={proto.fusion_kind}"
    yield from _aliases(proto)


def _custom_call(proto: Proto) -> Attributes:
    if proto.HasField("window"):
        yield f"window={window_text(proto.window)}"
    if proto.HasField("convolution_dimension_numbers"):
        yield from dimension_labels(proto)
    yield from group_counts(proto)
    yield from precision(proto)
    if proto.padding_type:
        yield f"padding_type={enum_name(hlo_pb2.PaddingType, proto.padding_type)}"
    yield f'custom_call_target="{c_escaped(proto.custom_call_target)}"'
    if proto.constrain_layout:
        shapes = ", ".join(map(shape_text, proto.operand_shapes_with_layout))
        yield f"operand_layout_constraints={{{shapes}}}"
    if proto.custom_call_has_side_effect:
        yield "custom_call_has_side_effect=true"
    if proto.HasField("literal"):
        literal = proto.literal
        yield f"literal={shape_text(literal.shape)} {literal_text(literal, large=True)}"
    yield from _aliases(proto)
    if proto.custom_call_schedule:
        yield f"schedule={enum_name(hlo_pb2.CustomCallSchedule, proto.custom_call_schedule)}"
    if proto.custom_call_api_version != hlo_pb2.CustomCallApiVersion.API_VERSION_ORIGINAL:
        version = enum_name(hlo_pb2.CustomCallApiVersion, proto.custom_call_api_version)
        yield f"api_version={version}"


def _feeds(proto: Proto, *, configs: bool) -> Attributes:
    if proto.opcode == "outfeed":
        yield f"outfeed_shape={shape_text(proto.outfeed_shape)}"
    config = proto.infeed_config if proto.opcode == "infeed" else proto.outfeed_config
    if configs and config:
        yield f'{proto.opcode}_config="{c_escaped(config)}"'


def _parameter(proto: Proto) -> Attributes:
    replicated = proto.parameter_replication.replicated_at_leaf_buffers
    if replicated:
        yield f"parameter_replication={{{','.join(str(one).lower() for one in replicated)}}}"


def _prefetch(proto: Proto) -> Attributes:
    if proto.HasField("cross_program_prefetch_index"):
        yield f"cross_program_prefetch_index={proto.cross_program_prefetch_index}"


def _domain(proto: Proto) -> Attributes:
    # The two are stored the other way round.
    entry = sharding_text(proto.domain_exit_sharding)
    leave = sharding_text(proto.domain_entry_sharding)
    yield f'domain={{kind="sharding", entry={entry}, exit={leave}}}'


def _batch_norm(proto: Proto) -> Attributes:
    yield f"epsilon={proto.epsilon:g}"
    yield f"feature_index={proto.feature_index}"


def _scan(proto: Proto) -> Attributes:
    yield from _dimensions(proto)
    yield f"num_carries={proto.num_carries}"
    yield f"is_reverse={str(proto.is_reverse).lower()}"
    if proto.is_associative:
        is_associative = proto.is_associative == hlo_pb2.TriState.TRI_STATE_TRUE
        yield f"is_associative={str(is_associative).lower()}"


def _single(text: Callable[[Proto], str]) -> Rule:
    return lambda proto: iter([text(proto)])


def _reduce_precision(proto: Proto) -> Attributes:
    yield f"exponent_bits={proto.exponent_bits}"
    yield f"mantissa_bits={proto.mantissa_bits}"


def _topk(proto: Proto) -> Attributes:
    yield f"k={proto.k}"
    yield f"largest={str(proto.largest).lower()}"
    yield f"is_stable={str(proto.is_stable).lower()}"


def _distribution(proto: Proto) -> str:
    return f"distribution={enum_name(hlo_pb2.RandomDistribution, proto.distribution).lower()}"


def _algorithm(proto: Proto) -> str:
    return f"algorithm={enum_name(hlo_pb2.RandomAlgorithm, proto.rng_algorithm).lower()}"


def _by_opcodes(*rows: tuple[str, Rule]) -> Mapping[str, Rule]:
    return {opcode: rule for opcodes, rule in rows for opcode in opcodes.split()}


_OWN: Final = _by_opcodes(
    (
        "broadcast transpose reverse concatenate reduce map get-dimension-size set-dimension-size",
        _dimensions,
    ),
    ("sort", _sort),
    ("iota", _single(lambda p: f"iota_dimension={next(iter(p.dimensions), 0)}")),
    ("reshape", _reshape),
    ("slice", _slice),
    ("dynamic-slice", _single(lambda p: f"dynamic_slice_sizes={braced(p.dynamic_slice_sizes)}")),
    ("pad", _pad),
    ("gather", _gather),
    ("scatter", _scatter),
    ("dot scaled-dot", dot),
    ("ragged-dot", ragged_dot),
    ("convolution", convolution),
    ("reduce-window select-and-scatter", window),
    ("fft", _fft),
    ("triangular-solve", _options("triangular_solve_options")),
    ("cholesky", _options("cholesky_options")),
    ("rng", _single(_distribution)),
    ("rng-bit-generator", _single(_algorithm)),
    ("rng-get-and-update-state", _single(lambda p: f"delta={p.delta}")),
    ("reduce-precision", _reduce_precision),
    ("get-tuple-element", _single(lambda p: f"index={p.tuple_index}")),
    ("batch-norm-training batch-norm-inference batch-norm-grad", _batch_norm),
    ("topk", _topk),
    ("fusion", _fusion),
    ("custom-call", _custom_call),
    (_COLLECTIVES, collective),
    ("collective-permute collective-permute-start", permute),
    ("send recv send-done recv-done", transfer),
    ("parameter", _parameter),
    ("copy-start", _prefetch),
    ("domain", _domain),
    ("scan", _scan),
)
