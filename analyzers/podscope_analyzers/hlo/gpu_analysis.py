"""Flops and traffic of every instruction of a program, by the profiler's rules for GPUs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log2, prod
from typing import Final

import numpy as np

from podscope_analyzers.hlo.convolution import convolution_flops
from podscope_analyzers.hlo.fusion_utilization import fused_utilization
from podscope_analyzers.hlo.gpu_weights import flops_per_element
from podscope_analyzers.hlo.instructions import ELEMENTWISE, Surroundings
from podscope_analyzers.hlo.post_order import post_order
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

FREE: Final = frozenset(
    {
        "parameter",
        "constant",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "add-dependency",
        "domain",
    }
)
_SMALL_CONSTANT: Final = 8
_LOOKS_INTO: Final = frozenset(
    {
        *("call", "conditional", "fusion", "map", "reduce", "reduce-window", "scan", "scatter"),
        *("select-and-scatter", "while", "async-start"),
    }
)
_UNKNOWN: Final = -1.0
_MAX_DEPTH: Final = 64


class AnalysisError(Exception):
    """A program that the analysis refuses: all its costs are unknown then."""


_REFUSALS: Final = (AnalysisError, KeyError, IndexError, OverflowError, ZeroDivisionError)


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


class GpuAnalysis:
    """Costs of a program's instructions, made when first asked for.

    Args:
        program: With its computations.
        whole: Whether one instruction that cannot be analysed makes the whole program unknown,
            as in the reference. Without, only what an instruction's own cost needs is analysed.
    """

    def __init__(self, program: Surroundings, *, whole: bool = True) -> None:
        self._program = program
        self._totals: dict[int, InstructionTotals] = {}
        self._sums: dict[int, InstructionTotals] = {}
        self._depth = 0
        self._is_valid = True
        self._reached = _reached(program)
        if not whole:
            return
        try:
            for computation in program.computations.values():
                for proto in computation.instructions:
                    self._of(proto)
        except _REFUSALS:
            self._is_valid = False

    def totals(self, proto: Proto) -> InstructionTotals | None:
        """Cost of an instruction; None where the analysis does not come, or refuses."""
        if not self._is_valid or proto.id not in self._reached:
            return None
        try:
            return self._of(proto)
        except _REFUSALS:
            self._depth = 0
            return None

    def _of(self, proto: Proto) -> InstructionTotals:
        known = self._totals.get(proto.id)
        if known is None:
            self._depth += 1
            if self._depth > _MAX_DEPTH:
                problem = "computations call each other too deeply"
                raise AnalysisError(problem)
            known = self._totals[proto.id] = self._analysed(proto)
            self._depth -= 1
        return known

    @property
    def is_valid(self) -> bool:
        """Whether the program can be analysed."""
        return self._is_valid

    def operand(self, proto: Proto, index: int) -> Proto:
        """One operand of an instruction."""
        return self._program.by_id[proto.operand_ids[index]]

    def _analysed(self, proto: Proto) -> InstructionTotals:
        operands = [self._program.by_id[i] for i in proto.operand_ids]
        opcode = proto.opcode
        if opcode in FREE or (opcode == "transpose" and _is_bitcast(proto, operands)):
            return InstructionTotals(operands=[{} for _ in operands])
        totals = InstructionTotals(
            output={(): leaf_bytes(proto.shape)},
            operands=[{(): size_bytes(operand.shape)} for operand in operands],
        )
        totals.bytes = leaf_bytes(proto.shape) + sum(size_bytes(o.shape) for o in operands)
        if opcode in ELEMENTWISE or opcode == "bitcast-convert":
            weight = flops_per_element(opcode, proto.shape.element_type)
            totals.flops = elements(proto.shape) * weight
            return totals
        rule = RULES.get(opcode)
        if rule is not None:
            rule(self, proto, operands, totals)
        return totals

    def called(self, proto: Proto, index: int = 0) -> tuple[float, float]:
        """Flops and bytes of one execution of a called computation."""
        totals = self.called_totals(proto, index)
        return totals.flops, totals.bytes

    def called_totals(self, proto: Proto, index: int = 0) -> InstructionTotals:
        """Sums over a called computation, key by key in single precision.

        Bytes of results and of operands are summed by their place, whatever instruction they
        belong to.
        """
        return self.sums(proto.called_computation_ids[index])

    def sums(self, computation_id: int) -> InstructionTotals:
        """Sums over a computation; see ``called_totals``."""
        if computation_id not in self._sums:
            flops = size = transcendentals = np.float32(0)
            output: dict[Index, np.float32] = {}
            operands: list[dict[Index, np.float32]] = []
            for inner in post_order(self._program.computations[computation_id]):
                totals = self._of(inner)
                flops += np.float32(totals.flops)
                size += np.float32(totals.bytes)
                transcendentals += np.float32(totals.transcendentals)
                _add(output, totals.output)
                while len(operands) < len(totals.operands):
                    operands.append({})
                for sums, part in zip(operands, totals.operands, strict=False):
                    _add(sums, part)
            self._sums[computation_id] = InstructionTotals(
                float(flops),
                float(size),
                float(transcendentals),
                {at: float(one) for at, one in output.items()},
                [{at: float(one) for at, one in part.items()} for part in operands],
            )
        return self._sums[computation_id]

    def computation(self, proto: Proto, index: int = 0) -> hlo_pb2.HloComputationProto:
        """A called computation."""
        return self._program.computations[proto.called_computation_ids[index]]

    def fusion(self, proto: Proto, operands: Sequence[Proto], totals: InstructionTotals) -> None:
        """A fusion: its instructions as often as they are used, its traffic at its edge."""
        computation = self.computation(proto)
        order = post_order(computation)
        if proto.fusion_kind == "kCustom":
            inner = next((one for one in order if one.opcode in ("gather", "scatter")), None)
            if inner is not None:
                of_inner = self._of(inner)
                totals.flops, totals.bytes = of_inner.flops, of_inner.bytes
                totals.output, totals.operands = of_inner.output, of_inner.operands
                return
        by_id = {one.id: one for one in order}
        root = by_id[computation.root_id]
        results = {root.id, *(root.operand_ids if root.opcode == "tuple" else ())}

        def shares(one: Proto) -> Mapping[int, float]:
            if one.opcode == "dynamic-update-slice" and one.id in results:
                # In place: what is not updated stays where it is.
                return {0: 0.0}
            return self._of(one).utilization

        used = fused_utilization(order, root, by_id, shares)
        flops = np.float32(0)
        for one in order:
            flops += np.float32(used.get(one.id, 0.0)) * np.float32(self._of(one).flops)
        totals.flops = float(flops)
        totals.output = dict(self._fusion_output(root))
        size = float(sum(totals.output.values()))
        totals.operands = [{} for _ in operands]
        for one in order:
            utilization = min(used.get(one.id, 0.0), 1.0)
            if one.opcode == "constant" and elements(one.shape) > _SMALL_CONSTANT:
                size += size_bytes(one.shape) * utilization
            elif one.opcode == "parameter":
                read = self._parameter_bytes(one, order, used)
                size += sum(read.values())
                if one.parameter_number < len(operands):
                    totals.operands[one.parameter_number] = read
                    totals.utilization[one.parameter_number] = used.get(one.id, 0.0)
        totals.bytes = size

    def _fusion_output(self, root: Proto) -> list[tuple[Index, float]]:
        if root.opcode == "tuple":
            inner = [self._program.by_id[i] for i in root.operand_ids]
            return [
                ((position, *index), size)
                for position, one in enumerate(inner)
                for index, size in self._leaf_output(one)
            ]
        return self._leaf_output(root)

    def _leaf_output(self, root: Proto) -> list[tuple[Index, float]]:
        if root.opcode == "dynamic-update-slice":
            return [((), float(size_bytes(self.operand(root, 1).shape)))]
        return [(index, float(size_bytes(leaf))) for index, leaf in leaves(root.shape)]

    def _parameter_bytes(
        self, parameter: Proto, order: Sequence[Proto], used: Mapping[int, float]
    ) -> dict[Index, float]:
        if not is_tuple(parameter.shape):
            share = min(used.get(parameter.id, 0.0), 1.0)
            return {(): float(int(size_bytes(parameter.shape) * share))}
        read: dict[Index, float] = {}
        for one in order:
            if one.opcode == "get-tuple-element" and parameter.id in one.operand_ids:
                share = min(used.get(one.id, 0.0), 1.0)
                read[(one.tuple_index,)] = float(int(size_bytes(one.shape) * share))
        return read


def _add(sums: dict[Index, np.float32], part: Mapping[Index, float]) -> None:
    for at, size in part.items():
        sums[at] = sums.get(at, np.float32(0)) + np.float32(size)


def _uncalled(program: Surroundings) -> list[int]:
    called = {
        number
        for computation in program.computations.values()
        for one in computation.instructions
        for number in one.called_computation_ids
    }
    return [number for number in program.computations if number not in called]


def _reached(program: Surroundings) -> frozenset[int]:
    """Instructions that the analysis comes to: it does not look into comparators and the like."""
    reached: set[int] = set()
    entry = program.module.entry_computation_id
    pending = [entry] if entry in program.computations else _uncalled(program)
    seen = set(pending)
    for number in pending:
        for one in program.computations[number].instructions:
            reached.add(one.id)
            if one.opcode in _LOOKS_INTO:
                for inner in one.called_computation_ids:
                    if inner not in seen and inner in program.computations:
                        seen.add(inner)
                        pending.append(inner)
    return frozenset(reached)


Rule = Callable[[GpuAnalysis, Proto, list[Proto], InstructionTotals], None]


def _is_bitcast(proto: Proto, operands: Sequence[Proto]) -> bool:
    """Whether a transposition only renames dimensions: the bytes stay where they are."""
    result = proto.shape.layout.minor_to_major
    return bool(operands) and [proto.dimensions[i] for i in result] == list(
        operands[0].shape.layout.minor_to_major
    )


def _concatenate(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    dimension = proto.dimensions[0]
    aligned = dimension == 0 or all(o.shape.dimensions[dimension] % 32 == 0 for o in operands)
    totals.flops = elements(proto.shape) * (6.0 if aligned else 400.0)


def _slice(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    size = size_bytes(proto.shape)
    totals.bytes = 2 * size
    totals.operands[0] = {(): size}
    totals.utilization[0] = _share(proto, operands[0])
    if proto.opcode in ("dynamic-slice", "gather") and len(operands) > 1:
        totals.bytes += size_bytes(operands[1].shape)


def _share(part: Proto, whole: Proto) -> float:
    count = elements(whole.shape)
    return elements(part.shape) / count if count else 0.0


def _update(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    update = size_bytes(operands[1].shape)
    totals.bytes = 2 * update
    if len(operands) > 2:
        totals.bytes += size_bytes(operands[2].shape)
    totals.output = {(): update}
    totals.operands[0] = {(): 0.0}
    whole = elements(proto.shape)
    totals.utilization[0] = (whole - elements(operands[1].shape)) / whole if whole else 0.0


def _scatter(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
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


def _dot(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    totals.flops = _dot_flops(
        elements(proto.shape), operands[0], proto.dot_dimension_numbers.lhs_contracting_dimensions
    )


def _dot_flops(results: int, left: Proto, contracting: Sequence[int]) -> float:
    return 2.0 * results * prod(left.shape.dimensions[i] for i in contracting)


def _ragged_dot(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    numbers = proto.ragged_dot_dimension_numbers
    left = list(proto.shape.dimensions)
    for position in range(len(numbers.rhs_group_dimensions)):
        del left[position]
    contracting = numbers.dot_dimension_numbers.lhs_contracting_dimensions
    totals.flops = _dot_flops(prod(left), operands[0], contracting)


def _convolution(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    totals.flops = convolution_flops(proto, operands[0].shape, operands[1].shape, proto.shape)


def _reduce(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
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
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
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
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    source = elements(operands[1].shape)
    window = prod(d.size for d in proto.window.dimensions)
    select, scatter = analysis.called(proto, 0)[0], analysis.called(proto, 1)[0]
    totals.flops = select * source * (window - 1) + scatter * source


def _map(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    totals.flops = analysis.called(proto)[0] * elements(proto.shape)


def _scan(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    totals.flops = analysis.called(proto)[0] * elements(operands[1].shape)


def _sort(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    del proto
    count = elements(operands[0].shape)
    totals.flops = float(count * ceil(log2(count))) if count else 0.0


def _fft(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    logarithms = prod(floor(log2(length)) for length in proto.fft_length if length > 0)
    totals.flops = 8.0 * logarithms * elements(operands[0].shape)


def _triangular_solve(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    matrix, right = operands[0].shape, operands[1].shape
    totals.flops = 2.0 * matrix.dimensions[-1] * elements(right)
    totals.bytes = size_bytes(proto.shape) + size_bytes(matrix) / 2 + size_bytes(right)
    totals.operands[0] = {(): size_bytes(right)}


def _cholesky(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del proto
    matrix = operands[0].shape
    totals.flops = float(matrix.dimensions[-1] * elements(matrix) // 3)
    size = size_bytes(matrix)
    totals.bytes = size
    totals.output, totals.operands[0] = {(): size / 2}, {(): size / 2}


def _all_reduce(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    if proto.use_global_device_ids and not has_groups(proto):
        problem = "a reduction over global devices names no groups"
        raise AnalysisError(problem)
    totals.flops = _reducer(analysis, proto) * elements(proto.shape)
    if proto.opcode == "all-reduce-start":
        totals.bytes = leaf_bytes(proto.shape)


def _reducer(analysis: GpuAnalysis, proto: Proto) -> float:
    """Flops for one element of a reduction, by the root of its computation."""
    computation = analysis.computation(proto)
    root = {one.id: one for one in computation.instructions}[computation.root_id]
    return flops_per_element(root.opcode, first_leaf(proto.shape).element_type)


def _all_gather(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    size = leaf_bytes(proto.shape)
    if proto.opcode == "all-gather-start" and len(proto.shape.tuple_shapes) > 1:
        size = leaf_bytes(proto.shape.tuple_shapes[1])
    count = group_size(proto)
    part = size // count
    totals.bytes = part * (2 * count - 1) + part * count


def _reduce_scatter(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del operands
    count, size = group_size(proto), leaf_bytes(proto.shape)
    totals.flops = _reducer(analysis, proto) * elements(proto.shape)
    totals.bytes = size * count + size * (2 * count - 1)


def _async_start(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    totals.bytes = 0.0
    totals.output, totals.operands = {}, [{} for _ in operands]
    for inner in analysis.computation(proto).instructions:
        if inner.opcode == "reduce-scatter":
            wrapped = InstructionTotals(operands=[{} for _ in operands])
            _reduce_scatter(analysis, inner, operands, wrapped)
            totals.flops, totals.bytes = wrapped.flops, wrapped.bytes


def _custom_call(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    target = proto.custom_call_target
    result = first_leaf(proto.shape)
    if target.startswith("__cublas$lt$matmul"):
        totals.flops = _dot_flops(elements(result), operands[0], _matmul_dimensions(proto))
    elif target.startswith("__cudnn$conv"):
        totals.flops = convolution_flops(proto, operands[0].shape, operands[1].shape, result)
    else:
        # In sums it counts as it is; by itself it is 0.
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


def _tuple(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    totals.bytes = POINTER_BYTES * len(proto.shape.tuple_shapes)
    totals.output = {(): totals.bytes}
    totals.operands = [{} for _ in operands]


def _infeed(_: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals) -> None:
    totals.output = {index: size_bytes(leaf) for index, leaf in leaves(proto.shape)}
    totals.operands = [{} for _ in operands]
    totals.bytes = leaf_bytes(proto.shape)


def _outfeed(
    _: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
) -> None:
    del proto
    totals.output = {}
    totals.operands = [
        {index: size_bytes(leaf) for index, leaf in leaves(operand.shape)} for operand in operands
    ]
    totals.bytes = sum(leaf_bytes(operand.shape) for operand in operands)


def _callees(
    analysis: GpuAnalysis, proto: Proto, operands: list[Proto], totals: InstructionTotals
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
    "fusion": GpuAnalysis.fusion,
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
