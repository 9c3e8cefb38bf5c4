"""Costs by XLA's generic analysis, which its clients for CPUs report for a whole program.

It counts transcendental functions apart, elementwise work once per element whatever it is, calls
of libraries as minus one, and takes no device into account.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from podscope_analyzers.hlo.gpu_analysis import FREE, GpuAnalysis
from podscope_analyzers.hlo.gpu_rules import RULES, InstructionTotals
from podscope_analyzers.hlo.instructions import ELEMENTWISE, Surroundings
from podscope_analyzers.hlo.post_order import post_order
from podscope_analyzers.hlo.shapes import elements, is_tuple, leaf_bytes, leaves, size_bytes
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto

_TRANSCENDENTAL: Final = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cosh", "cosine", "erf"),
        *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power"),
        *("rsqrt", "sine", "sinh", "sqrt", "tan", "tanh", "cos"),
        *("rng", "rng-bit-generator"),
    }
)
_CALLS: Final = frozenset({"call", "async-start"})
# Their computation's cost is taken as often as the rule says, transcendental functions too.
_SCALED: Final = frozenset(
    {"map", "reduce", "reduce-window", "scan", "scatter", "select-and-scatter"}
)
# What the profiler counts for GPUs alone.
_PLAIN: Final = frozenset(
    {"all-gather", "all-gather-start", "concatenate", "reduce-scatter", "custom-call"}
)
_UNKNOWN: Final = -1.0
_SIZE_BYTES: Final = 4


class GenericAnalysis(GpuAnalysis):
    """Costs of a program's instructions, made when first asked for; see ``GpuAnalysis``."""

    def __init__(self, program: Surroundings, *, whole: bool = True) -> None:
        self._counts_transcendentals = False
        super().__init__(program, whole=whole)

    def program(self) -> InstructionTotals | None:
        """Sums over the entry computation; None in a program that cannot be analysed."""
        entry = self._program.module.entry_computation_id
        if not self.is_valid or entry not in self._program.computations:
            return None
        return self.sums(entry)

    def called(self, proto: Proto, index: int = 0) -> tuple[float, float]:
        """Flops, or transcendental functions, and bytes of a called computation."""
        totals = self.called_totals(proto, index)
        count = totals.transcendentals if self._counts_transcendentals else totals.flops
        return count, totals.bytes

    def _analysed(self, proto: Proto) -> InstructionTotals:
        operands = [self._program.by_id[i] for i in proto.operand_ids]
        opcode = proto.opcode
        if opcode in FREE or opcode in ("fusion", "transpose", "tuple") or opcode in _CALLS:
            return self._special(proto, operands)
        totals = self._default(proto, operands)
        if opcode in _TRANSCENDENTAL:
            totals.transcendentals = float(elements(proto.shape))
        elif (
            opcode in ELEMENTWISE
            or opcode == "bitcast-convert"
            or opcode in ("all-reduce", "all-reduce-start")
        ):
            totals.flops = float(elements(proto.shape))
        elif opcode == "custom-call":
            totals.flops = totals.bytes = _UNKNOWN
            totals.output = {(): _UNKNOWN}
            totals.operands = [{(): _UNKNOWN} for _ in operands]
        elif opcode in RULES and opcode not in _PLAIN:
            RULES[opcode](self, proto, operands, totals)
            if opcode in _SCALED:
                scaled = self._default(proto, operands)
                self._counts_transcendentals = True
                try:
                    RULES[opcode](self, proto, operands, scaled)
                finally:
                    self._counts_transcendentals = False
                totals.transcendentals = scaled.flops
            if opcode == "infeed":
                totals.output[()] = leaf_bytes(proto.shape)
            if opcode == "reduce":
                plain = self._default(proto, operands)
                totals.bytes, totals.operands = plain.bytes, plain.operands
        return totals

    def _default(self, proto: Proto, operands: Sequence[Proto]) -> InstructionTotals:
        output = sum(_host_bytes(leaf) for _, leaf in leaves(proto.shape))
        sizes = [_host_bytes(operand.shape) for operand in operands]
        return InstructionTotals(
            bytes=output + sum(sizes),
            output={(): output},
            operands=[{(): size} for size in sizes],
        )

    def _special(self, proto: Proto, operands: list[Proto]) -> InstructionTotals:
        if proto.opcode == "fusion":
            return self._fused(proto, operands)
        if proto.opcode in _CALLS:
            totals = InstructionTotals()
            RULES["call"](self, proto, operands, totals)
            return totals
        # What costs nothing, or no more than a table, costs the same everywhere.
        return super()._analysed(proto)

    def _fused(self, proto: Proto, operands: list[Proto]) -> InstructionTotals:
        computation = self.computation(proto)
        order = post_order(computation)
        by_id = {one.id: one for one in order}
        if proto.fusion_kind == "kCustom":
            inner = next((one for one in order if one.opcode in ("gather", "scatter")), None)
            if inner is not None:
                return self._of(inner)
        sums = self.called_totals(proto)
        output = dict(self._fusion_output(by_id[computation.root_id]))
        totals = InstructionTotals(
            flops=sums.flops,
            transcendentals=sums.transcendentals,
            output={**output, (): float(sum(output.values()))},
            # Of places that the fusion does not have, the sums of its instructions stay.
            operands=[dict(one) for one in sums.operands]
            + [{} for _ in operands[len(sums.operands) :]],
        )
        size = np.float32(totals.output[()])
        for one in order:
            if one.opcode == "constant" and elements(one.shape) > 1:
                size += np.float32(size_bytes(one.shape))
            elif one.opcode == "parameter":
                read = self._reads(one, order)
                size += np.float32(read)
                if one.parameter_number < len(operands):
                    totals.operands[one.parameter_number] = {(): read}
        totals.bytes = float(size)
        return totals

    def _reads(self, parameter: Proto, order: Sequence[Proto]) -> float:
        """Bytes that a fused computation reads of a parameter, or of an element of one."""
        if is_tuple(parameter.shape):
            return sum(
                self._reads(one, order)
                for one in order
                if one.opcode == "get-tuple-element" and parameter.id in one.operand_ids
            )
        whole = float(size_bytes(parameter.shape))
        total, is_read = 0.0, False
        for user in order:
            if parameter.id not in user.operand_ids:
                continue
            places = [i for i, one in enumerate(user.operand_ids) if one == parameter.id]
            if user.opcode == "fusion":
                inner = post_order(self.computation(user))
                total += sum(
                    self._reads(one, inner)
                    for one in inner
                    if one.opcode == "parameter" and one.parameter_number in places
                )
            elif user.opcode == "slice" or (user.opcode == "dynamic-slice" and places == [0]):
                total += size_bytes(user.shape)
            elif user.opcode in ("broadcast", "reshape"):
                total += whole
            elif not (user.opcode == "dynamic-update-slice" and places == [0]):
                is_read = True
        return total + whole * is_read


def _host_bytes(shape: hlo_pb2.ShapeProto) -> int:
    """Bytes of a shape on a host, where arrays of no fixed size are followed by their sizes."""
    return size_bytes(shape) + _SIZE_BYTES * len(shape.dimensions) * any(shape.is_dynamic_dimension)


_KEPT_AS = "_generic_analysis"


def generic_analysis(program: Surroundings) -> GenericAnalysis:
    """The analysis of a program, made once, of the instructions that are asked for."""
    # With the program: it knows it, and so would keep it alive in a table of weak references.
    known = vars(program)
    found: GenericAnalysis | None = known.get(_KEPT_AS)
    if found is None:
        found = known[_KEPT_AS] = GenericAnalysis(program, whole=False)
    return found
