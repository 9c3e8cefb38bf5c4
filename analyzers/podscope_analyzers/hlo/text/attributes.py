"""What an instruction says of itself after its operands, by its opcode."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from podscope_analyzers.hlo.text.escapes import c_escaped, is_json_object
from podscope_analyzers.hlo.text.literal_text import literal_text
from podscope_analyzers.hlo.text.shape_text import braced, shape_text
from podscope_analyzers.hlo.text.sharding_text import replica_groups_text, sharding_text
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto
Attributes = Iterator[str]

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


def common_attributes(
    proto: Proto, predecessors: Iterable[str], *, metadata: bool = False
) -> Attributes:
    """The attributes that any instruction may have, in order.

    Args:
        proto: The instruction.
        predecessors: Names of what must run before.
        metadata: Whether what the framework noted on shardings is shown.
    """
    if proto.HasField("sharding"):
        yield f"sharding={sharding_text(proto.sharding, metadata=metadata)}"
    if proto.frontend_attributes.map:
        yield f"frontend_attributes={frontend_attributes_text(proto.frontend_attributes)}"
    names = list(predecessors)
    if names:
        yield f"control-predecessors={{{', '.join(names)}}}"
    if proto.statistics_viz.statistics:
        shown = proto.statistics_viz
        values = ",".join(f"{s.stat_name}={s.stat_val:g}" for s in shown.statistics)
        yield f"statistics={{visualizing_index={shown.stat_index_to_visualize},{values}}}"
    accuracy = proto.result_accuracy
    match accuracy.WhichOneof("specs"):
        case "mode" if accuracy.mode:
            mode = hlo_pb2.ResultAccuracy.Mode.Name(accuracy.mode).lower()
            yield f"result_accuracy={{mode={mode}}}"
        case "tolerance":
            limit = accuracy.tolerance
            yield (
                f"result_accuracy={{tolerance={{atol={limit.atol:g},rtol={limit.rtol:g},"
                f"ulps={limit.ulps}}}}}"
            )


def frontend_attributes_text(attributes: hlo_pb2.FrontendAttributes) -> str:
    """Attributes of the framework by name; values that are JSON objects stay bare."""
    shown = (
        f"{key}={value}" if is_json_object(value) else f'{key}="{c_escaped(value)}"'
        for key, value in sorted(attributes.map.items())
    )
    return "{" + ",".join(shown) + "}"


def origin_text(origin: hlo_pb2.OriginalValueProto) -> str:
    """Which values of the program before compilation an instruction's results are."""
    texts = {}
    for element in origin.elements:
        array = element.original_array
        index = f" {braced(array.shape_index)}" if array.shape_index else ""
        name = f'{{"{array.instruction_name}"{index}}}' if array.instruction_name else "{}"
        texts[tuple(element.shape_index)] = name
    return _origin_tree(texts, ())


def _origin_tree(texts: Mapping[tuple[int, ...], str], at: tuple[int, ...]) -> str:
    if at in texts or not texts:
        return texts.get(at, "")
    below = sorted({index[: len(at) + 1] for index in texts if index[: len(at)] == at})
    return "(" + ", ".join(_origin_tree(texts, index) for index in below) + ")"


def _dimensions(proto: Proto) -> Attributes:
    yield f"dimensions={braced(proto.dimensions)}"


def _sort(proto: Proto) -> Attributes:
    yield from _dimensions(proto)
    if proto.is_stable:
        yield "is_stable=true"


def _compare(proto: Proto, operand_type: int) -> Attributes:
    yield f"direction={proto.comparison_direction}"
    name = hlo_pb2.PrimitiveType.Name(operand_type) if operand_type else ""
    is_float = name.startswith(("F", "BF", "C"))
    # Older programs say the order in the type, newer ones apart; of integers it is always total.
    if is_float and "TOTAL" in (
        proto.comparison_order or proto.comparison_type.removeprefix("FLOAT").removesuffix("ORDER")
    ):
        yield "order=TOTAL"


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


def _precision(proto: Proto) -> Attributes:
    config = proto.precision_config
    if any(config.operand_precision):
        names = (
            hlo_pb2.PrecisionConfig.Precision.Name(one).removeprefix("PRECISION_").lower()
            for one in config.operand_precision
        )
        yield f"operand_precision={{{','.join(names)}}}"
    if config.algorithm:
        name = hlo_pb2.PrecisionConfig.Algorithm.Name(config.algorithm)
        yield f"algorithm={name.removeprefix('ALG_').lower()}"


def _contraction(numbers: hlo_pb2.DotDimensionNumbers) -> Attributes:
    if numbers.lhs_batch_dimensions:
        yield f"lhs_batch_dims={braced(numbers.lhs_batch_dimensions)}"
    yield f"lhs_contracting_dims={braced(numbers.lhs_contracting_dimensions)}"
    if numbers.rhs_batch_dimensions:
        yield f"rhs_batch_dims={braced(numbers.rhs_batch_dimensions)}"
    yield f"rhs_contracting_dims={braced(numbers.rhs_contracting_dimensions)}"


def _dot(proto: Proto) -> Attributes:
    yield from _contraction(proto.dot_dimension_numbers)
    yield from _precision(proto)


def _ragged_dot(proto: Proto) -> Attributes:
    numbers = proto.ragged_dot_dimension_numbers
    yield from _contraction(numbers.dot_dimension_numbers)
    yield f"lhs_ragged_dims={braced(numbers.lhs_ragged_dimensions)}"
    yield f"rhs_group_dims={braced(numbers.rhs_group_dimensions)}"
    yield from _precision(proto)


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


def _window(proto: Proto) -> Attributes:
    if proto.window.dimensions:
        yield f"window={window_text(proto.window)}"


def _labels(named: Mapping[int, str], spatial: Iterable[int]) -> str:
    labels = {**named, **{at: str(number) for number, at in enumerate(spatial)}}
    # Dimensions are those of small arrays; a hostile number must not make a long text.
    length = min(max([*labels, -1]) + 1, 1000)
    return "".join(labels.get(at, "?") for at in range(length))


def _dimension_labels(proto: Proto) -> Attributes:
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


def _group_counts(proto: Proto) -> Attributes:
    for name in ("feature_group_count", "batch_group_count"):
        count = getattr(proto, name)
        if count > 1:
            yield f"{name}={count}"


def _convolution(proto: Proto) -> Attributes:
    yield from _window(proto)
    yield from _dimension_labels(proto)
    yield from _group_counts(proto)
    yield from _precision(proto)


def _fft(proto: Proto) -> Attributes:
    yield f"fft_type={hlo_pb2.FftType.Name(proto.fft_type)}"
    yield f"fft_length={braced(proto.fft_length)}"


def _options(name: str) -> Callable[[Proto], Attributes]:
    def shown(proto: Proto) -> Attributes:
        for field, value in getattr(proto, name).ListFields():
            if isinstance(value, bool):
                yield f"{field.name}=true"
            else:
                yield f"{field.name}={field.enum_type.values_by_number[value].name}"

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
        yield from _dimension_labels(proto)
    yield from _group_counts(proto)
    yield from _precision(proto)
    if proto.padding_type:
        yield f"padding_type={hlo_pb2.PaddingType.Name(proto.padding_type)}"
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
        yield f"schedule={hlo_pb2.CustomCallSchedule.Name(proto.custom_call_schedule)}"
    if proto.custom_call_api_version > hlo_pb2.CustomCallApiVersion.API_VERSION_ORIGINAL:
        version = hlo_pb2.CustomCallApiVersion.Name(proto.custom_call_api_version)
        yield f"api_version={version}"


def _channel(proto: Proto) -> Attributes:
    if proto.channel_id > 0:
        yield f"channel_id={proto.channel_id}"


def _collective(proto: Proto) -> Attributes:
    opcode = proto.opcode
    yield from _channel(proto)
    yield f"replica_groups={replica_groups_text(proto)}"
    if proto.constrain_layout:
        yield "constrain_layout=true"
    if opcode.startswith("all-gather"):
        yield from _dimensions(proto)
    if proto.use_global_device_ids and opcode.startswith(
        ("all-gather", "all-reduce", "reduce-scatter")
    ):
        yield "use_global_device_ids=true"
    if opcode == "reduce-scatter" or (opcode == "all-to-all" and proto.dimensions):
        yield from _dimensions(proto)
    if opcode == "collective-broadcast":
        yield f"has_dynamic_root={str(proto.has_dynamic_root).lower()}"


def _permute(proto: Proto) -> Attributes:
    yield from _channel(proto)
    pairs = ",".join(f"{{{pair.source},{pair.target}}}" for pair in proto.source_target_pairs)
    yield f"source_target_pairs={{{pairs}}}"


def _transfer(proto: Proto) -> Attributes:
    yield from _channel(proto)
    if proto.is_host_transfer:
        yield "is_host_transfer=true"


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


def _single(text: Callable[[Any], str]) -> Callable[[Proto], Attributes]:
    return lambda proto: iter([text(proto)])


def _reduce_precision(proto: Proto) -> Attributes:
    yield f"exponent_bits={proto.exponent_bits}"
    yield f"mantissa_bits={proto.mantissa_bits}"


def _topk(proto: Proto) -> Attributes:
    yield f"k={proto.k}"
    yield f"largest={str(proto.largest).lower()}"
    yield f"is_stable={str(proto.is_stable).lower()}"


def _distribution(proto: Proto) -> str:
    return f"distribution={hlo_pb2.RandomDistribution.Name(proto.distribution).lower()}"


def _algorithm(proto: Proto) -> str:
    return f"algorithm={hlo_pb2.RandomAlgorithm.Name(proto.rng_algorithm).lower()}"


def _by_opcodes(
    *rows: tuple[str, Callable[[Proto], Attributes]],
) -> Mapping[str, Callable[[Proto], Attributes]]:
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
    ("dot scaled-dot", _dot),
    ("ragged-dot", _ragged_dot),
    ("convolution", _convolution),
    ("reduce-window select-and-scatter", _window),
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
    (_COLLECTIVES, _collective),
    ("collective-permute collective-permute-start", _permute),
    ("send recv send-done recv-done", _transfer),
    ("parameter", _parameter),
    ("copy-start", _prefetch),
    ("domain", _domain),
    ("scan", _scan),
)
