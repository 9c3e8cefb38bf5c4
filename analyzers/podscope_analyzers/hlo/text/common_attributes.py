"""Attributes that an instruction of any opcode may have."""

from collections.abc import Iterable, Iterator
from typing import Final

from podscope_analyzers.hlo.shapes import is_tuple, leaves
from podscope_analyzers.hlo.text.enums import enum_name
from podscope_analyzers.hlo.text.escapes import c_escaped, is_json_object
from podscope_analyzers.hlo.text.sharding_text import sharding_text
from podscope_protos.v1 import hlo_pb2

Proto = hlo_pb2.HloInstructionProto

# Opcodes of which a program can say how exact they must be.
_WITH_ACCURACY: Final = frozenset(
    {
        *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "erf"),
        *("sine", "cosine", "tan", "asin", "acos", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "sqrt", "rsqrt", "cbrt"),
    }
)


def common_attributes(
    proto: Proto,
    predecessors: Iterable[str],
    *,
    metadata: bool = False,
    frontend: hlo_pb2.FrontendAttributes | None = None,
) -> Iterator[str]:
    """The attributes that any instruction may have, in order.

    Args:
        proto: The instruction.
        predecessors: Names of what must run before.
        metadata: Whether what the framework noted on shardings is shown.
        frontend: Attributes of the framework, if they are not the instruction's own.
    """
    if proto.HasField("sharding"):
        count = sum(1 for _ in leaves(proto.shape)) if is_tuple(proto.shape) else None
        text = sharding_text(proto.sharding, leaves=count, metadata=metadata)
        yield f"sharding={text}"
    shown = proto.frontend_attributes if frontend is None else frontend
    if shown.map:
        yield f"frontend_attributes={frontend_attributes_text(shown)}"
    names = list(dict.fromkeys(predecessors))
    if names:
        yield f"control-predecessors={{{', '.join(names)}}}"
    if proto.statistics_viz.statistics:
        yield f"statistics={_statistics(proto.statistics_viz)}"
    if proto.opcode in _WITH_ACCURACY:
        yield from _accuracy(proto.result_accuracy)


def frontend_attributes_text(attributes: hlo_pb2.FrontendAttributes) -> str:
    """Attributes of the framework by name; values that are JSON objects stay bare."""
    shown = (
        f"{key}={value}" if is_json_object(value) else f'{key}="{c_escaped(value)}"'
        for key, value in sorted(attributes.map.items())
    )
    return "{" + ",".join(shown) + "}"


def _statistics(shown: hlo_pb2.StatisticsViz) -> str:
    values = ",".join(f"{one.stat_name}={one.stat_val:g}" for one in shown.statistics)
    return f"{{visualizing_index={shown.stat_index_to_visualize},{values}}}"


def _accuracy(accuracy: hlo_pb2.ResultAccuracy) -> Iterator[str]:
    match accuracy.WhichOneof("specs"):
        case "mode" if accuracy.mode:
            mode = enum_name(hlo_pb2.ResultAccuracy.Mode, accuracy.mode).lower()
            yield f"result_accuracy={{mode={mode}}}"
        case "tolerance":
            limit = accuracy.tolerance
            yield (
                f"result_accuracy={{tolerance={{atol={limit.atol:g},rtol={limit.rtol:g},"
                f"ulps={limit.ulps}}}}}"
            )
