"""What one execution of an instruction costs on a GPU, by opcode, as the profiler counts it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log2, prod
from typing import Final, Protocol

import numpy as np

from podscope_analyzers.hlo.convolution import convolution_flops
from podscope_analyzers.hlo.gpu_weights import flops_per_element
from podscope_analyzers.hlo.replica_groups import group_size, has_groups
from podscope_analyzers.hlo.shapes import (
    POINTER_BYTES,
    Index,
    elements,
    first_leaf,
    is_tuple,
    leaf_bytes,
    leaves,
    size_bytes,
)
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto

_UNKNOWN: Final = -1.0


class AnalysisError(Exception):
    """A program that the analysis refuses: all its costs are unknown then."""


@dataclass
class InstructionTotals:
    """Cost of one execution.

    Attributes:
        transcendentals: Functions such as sine, where they are counted apart.
        output: Bytes written by place in the result; only where the rules give some.
        operands: Bytes read by place in each operand.
        utilization: How often each element of each operand is used.
    """

    flops: float = 0.0
    bytes: float = 0.0
    transcendentals: float = 0.0
    output: dict[Index, float] = field(default_factory=dict)
    operands: list[dict[Index, float]] = field(default_factory=list)
    utilization: dict[int, float] = field(default_factory=dict)


class Callees(Protocol):
    """The computations that instructions call, and what these cost."""

    def called(self, proto: Proto, index: int = 0) -> tuple[float, float]:
        """Flops and bytes of one execution of a called computation."""

    def called_totals(self, proto: Proto, index: int = 0) -> InstructionTotals:
        """Sums over a called computation."""

    def computation(self, proto: Proto, index: int = 0) -> hlo_pb2.HloComputationProto:
        """A called computation."""


Rule = Callable[[Callees, Proto, list[Proto], InstructionTotals], None]
"""Fills in the totals of an instruction with these operands."""


def _concatenate(
    _: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    dimension = proto.dimensions[0]
    aligned = dimension == 0 or all(o.shape.dimensions[dimension] % 32 == 0 for o in operands)
    totals.flops = elements(proto.shape) * (6.0 if aligned else 400.0)


def _slice(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    size = size_bytes(proto.shape)
    totals.bytes = 2 * size
    totals.operands[0] = {(): size}
    totals.utilization[0] = _share(proto, operands[0])
    if proto.opcode in ("dynamic-slice", "gather") and len(operands) > 1:
        totals.bytes += size_bytes(operands[1].shape)


def _share(part: Proto, whole: Proto) -> float:
    count = elements(whole.shape)
    return elements(part.shape) / count if count else 0.0


def _update(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    update = size_bytes(operands[1].shape)
    totals.bytes = 2 * update
    if len(operands) > 2:
        totals.bytes += size_bytes(operands[2].shape)
    totals.output = {(): update}
    totals.operands[0] = {(): 0.0}
    whole = elements(proto.shape)
    totals.utilization[0] = (whole - elements(operands[1].shape)) / whole if whole else 0.0


def _scatter(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    count = len(operands) // 2
    updates = operands[count + 1 :]
    totals.flops = analysis.called(proto)[0] * elements(updates[0].shape)
    size = sum(size_bytes(update.shape) for update in updates)
    totals.bytes = 3 * size + size_bytes(operands[count].shape)
    totals.output = {(): size}
    for position, update in enumerate(updates):
        # Only what is updated is read.
        totals.operands[position] = {(): size_bytes(update.shape)}


def _dot(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    totals.flops = _dot_flops(
        elements(proto.shape), operands[0], proto.dot_dimension_numbers.lhs_contracting_dimensions
    )


def _dot_flops(results: int, left: Proto, contracting: Sequence[int]) -> float:
    return 2.0 * results * prod(left.shape.dimensions[i] for i in contracting)


def _ragged_dot(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    numbers = proto.ragged_dot_dimension_numbers
    left = list(proto.shape.dimensions)
    for position in range(len(numbers.rhs_group_dimensions)):
        del left[position]
    contracting = numbers.dot_dimension_numbers.lhs_contracting_dimensions
    totals.flops = _dot_flops(prod(left), operands[0], contracting)


def _convolution(
    _: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    totals.flops = convolution_flops(proto, operands[0].shape, operands[1].shape, proto.shape)


def _reduce(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    result = first_leaf(proto.shape)
    spared = elements(operands[0].shape) - elements(result)
    totals.flops = analysis.called(proto)[0] * spared
    results = [leaf for _, leaf in leaves(proto.shape)]
    for position, leaf in enumerate(results):
        at = len(operands) // 2 + position
        before = totals.operands[at][()]
        totals.operands[at] = {(): size_bytes(leaf)}
        totals.bytes += size_bytes(leaf) - before
        totals.utilization[at] = elements(result)


def _reduce_window(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    window = proto.window.dimensions
    result = first_leaf(proto.shape)
    count = (prod(d.size for d in window) - 1) * elements(result)
    wide = sum(d.size != 1 for d in window)
    padded = sum(bool(d.padding_low or d.padding_high) for d in window)
    if wide == 1 and padded == 1 and not is_tuple(proto.shape):
        for d, extent in zip(window, result.dimensions, strict=False):
            pad = d.padding_low
            if pad and pad == d.padding_high == extent - 1 and d.size == 2 * pad + 1:
                count = elements(result) // extent + extent - 1
    totals.flops = analysis.called(proto)[0] * count


def _select_and_scatter(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    source = elements(operands[1].shape)
    window = prod(d.size for d in proto.window.dimensions)
    select, scatter = analysis.called(proto, 0)[0], analysis.called(proto, 1)[0]
    totals.flops = select * source * (window - 1) + scatter * source


def _map(analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    del operands
    totals.flops = analysis.called(proto)[0] * elements(proto.shape)


def _scan(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    totals.flops = analysis.called(proto)[0] * elements(operands[1].shape)


def _sort(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    del proto
    count = elements(operands[0].shape)
    totals.flops = float(count * ceil(log2(count))) if count else 0.0


def _fft(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    logarithms = prod(floor(log2(length)) for length in proto.fft_length if length > 0)
    totals.flops = 8.0 * logarithms * elements(operands[0].shape)


def _triangular_solve(
    _: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    matrix, right = operands[0].shape, operands[1].shape
    totals.flops = 2.0 * matrix.dimensions[-1] * elements(right)
    totals.bytes = size_bytes(proto.shape) + size_bytes(matrix) / 2 + size_bytes(right)
    totals.operands[0] = {(): size_bytes(right)}


def _cholesky(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    del proto
    matrix = operands[0].shape
    totals.flops = float(matrix.dimensions[-1] * elements(matrix) // 3)
    size = size_bytes(matrix)
    totals.bytes = size
    totals.output, totals.operands[0] = {(): size / 2}, {(): size / 2}


def _all_reduce(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    if proto.use_global_device_ids and not has_groups(proto):
        problem = "a reduction over global devices names no groups"
        raise AnalysisError(problem)
    totals.flops = _reducer(analysis, proto) * elements(proto.shape)
    if proto.opcode == "all-reduce-start":
        totals.bytes = leaf_bytes(proto.shape)


def _reducer(analysis: Callees, proto: Proto) -> float:
    """Flops for one element of a reduction, by the root of its computation."""
    computation = analysis.computation(proto)
    root = {one.id: one for one in computation.instructions}[computation.root_id]
    return flops_per_element(root.opcode, first_leaf(proto.shape).element_type)


def _all_gather(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    del operands
    size = leaf_bytes(proto.shape)
    if proto.opcode == "all-gather-start" and len(proto.shape.tuple_shapes) > 1:
        size = leaf_bytes(proto.shape.tuple_shapes[1])
    count = group_size(proto)
    part = size // count
    totals.bytes = part * (2 * count - 1) + part * count


def _reduce_scatter(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    count, size = group_size(proto), leaf_bytes(proto.shape)
    totals.flops = _reducer(analysis, proto) * elements(proto.shape)
    totals.bytes = size * count + size * (2 * count - 1)


def _async_start(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    totals.bytes = 0.0
    totals.output, totals.operands = {}, [{} for _ in operands]
    for inner in analysis.computation(proto).instructions:
        if inner.opcode == "reduce-scatter":
            wrapped = InstructionTotals(operands=[{} for _ in operands])
            _reduce_scatter(analysis, inner, operands, wrapped)
            totals.flops, totals.bytes = wrapped.flops, wrapped.bytes


def _custom_call(
    _: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    target = proto.custom_call_target
    result = first_leaf(proto.shape)
    if target.startswith("__cublas$lt$matmul"):
        totals.flops = _dot_flops(elements(result), operands[0], _matmul_dimensions(proto))
    elif target.startswith("__cudnn$conv"):
        totals.flops = convolution_flops(proto, operands[0].shape, operands[1].shape, result)
    else:
        # In sums it counts as it is; by itself it is 0, whatever its configuration estimates.
        totals.flops = totals.bytes = _UNKNOWN
        totals.output, totals.operands = {(): _UNKNOWN}, [{(): _UNKNOWN} for _ in operands]
        return
    totals.bytes = sum(size_bytes(o.shape) for o in operands) + size_bytes(result)
    totals.output = {(): size_bytes(result)}


def _matmul_dimensions(proto: Proto) -> list[int]:
    try:
        config = json.loads(proto.backend_config)["gemm_backend_config"]
        numbers = config["dot_dimension_numbers"].get("lhs_contracting_dimensions", [])
        return [int(number) for number in numbers]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = "the configuration of a matrix product cannot be read"
        raise AnalysisError(problem) from error


def _tuple(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    totals.bytes = POINTER_BYTES * len(proto.shape.tuple_shapes)
    totals.output = {(): totals.bytes}
    totals.operands = [{} for _ in operands]


def _infeed(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    totals.output = {index: size_bytes(leaf) for index, leaf in leaves(proto.shape)}
    totals.operands = [{} for _ in operands]
    totals.bytes = leaf_bytes(proto.shape)


def _outfeed(_: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    del proto
    totals.output = {}
    totals.operands = [
        {index: size_bytes(leaf) for index, leaf in leaves(operand.shape)} for operand in operands
    ]
    totals.bytes = sum(leaf_bytes(operand.shape) for operand in operands)


def _callees(
    analysis: Callees, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    costs = [analysis.called_totals(proto, i) for i in range(len(proto.called_computation_ids))]
    merge = max if proto.opcode == "conditional" else _sum
    totals.flops = merge([one.flops for one in costs])
    totals.bytes = merge([one.bytes for one in costs])
    totals.transcendentals = merge([one.transcendentals for one in costs])
    totals.output = _merged([one.output for one in costs], merge)
    count = max((len(one.operands) for one in costs), default=0)
    totals.operands = [
        _merged([one.operands[i] for one in costs if i < len(one.operands)], merge)
        for i in range(count)
    ]


def _sum(values: Sequence[float]) -> float:
    total = np.float32(0)
    for one in values:
        total += np.float32(one)
    return float(total)


def _merged(
    parts: Sequence[Mapping[Index, float]], merge: Callable[[Sequence[float]], float]
) -> dict[Index, float]:
    places = dict.fromkeys(at for part in parts for at in part)
    return {at: merge([part[at] for part in parts if at in part]) for at in places}


RULES: Final[Mapping[str, Rule]] = {
    "all-gather": _all_gather,
    "all-gather-start": _all_gather,
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "async-start": _async_start,
    "call": _callees,
    "cholesky": _cholesky,
    "concatenate": _concatenate,
    "conditional": _callees,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-slice": _slice,
    "dynamic-update-slice": _update,
    "fft": _fft,
    "gather": _slice,
    "infeed": _infeed,
    "map": _map,
    "outfeed": _outfeed,
    "ragged-dot": _ragged_dot,
    "reduce": _reduce,
    "reduce-scatter": _reduce_scatter,
    "reduce-window": _reduce_window,
    "scaled-dot": _dot,
    "scan": _scan,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "slice": _slice,
    "sort": _sort,
    "triangular-solve": _triangular_solve,
    "tuple": _tuple,
    "while": _callees,
}
