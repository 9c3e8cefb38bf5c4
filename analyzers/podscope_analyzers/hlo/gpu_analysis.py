"""Flops and traffic of every instruction of a program, by the profiler's rules for GPUs."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from podscope_analyzers.hlo.damage import DAMAGED
from podscope_analyzers.hlo.fusion_utilization import fused_utilization
from podscope_analyzers.hlo.gpu_rules import RULES, AnalysisError, InstructionTotals, Proto
from podscope_analyzers.hlo.gpu_weights import flops_per_element
from podscope_analyzers.hlo.instructions import ELEMENTWISE, Surroundings
from podscope_analyzers.hlo.post_order import post_order
from podscope_analyzers.hlo.shapes import (
    Index,
    elements,
    is_tuple,
    leaf_bytes,
    leaves,
    size_bytes,
)
from podscope_protos.v1 import hlo_pb2

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
_MAX_DEPTH: Final = 64
_REFUSALS: Final = (AnalysisError, *DAMAGED)


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
        if opcode == "fusion":
            self._fusion(proto, operands, totals)
        elif rule is not None:
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

    def _fusion(self, proto: Proto, operands: Sequence[Proto], totals: InstructionTotals) -> None:
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


def _is_bitcast(proto: Proto, operands: Sequence[Proto]) -> bool:
    """Whether a transposition only renames dimensions: the bytes stay where they are."""
    result = proto.shape.layout.minor_to_major
    return bool(operands) and [proto.dimensions[i] for i in result] == list(
        operands[0].shape.layout.minor_to_major
    )
