"""GPU kernels by launch parameters and framework operation."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from podscope_analyzers.hlo import Instruction, Programs
from podscope_analyzers.op_metrics.grouping import group_rows
from podscope_analyzers.op_names import parse_op_name
from podscope_analyzers.plane_views import OpLine, OpPlane, OpSpace, device_planes
from podscope_analyzers.spread import Spread
from podscope_analyzers.step_times import StepTimes

MAX_KERNELS: Final = 1000
"""Kernels kept per host, and of all hosts together."""

_STATS: Final = ("kernel_details", "tf_op", "hlo_op", "program_id", "equation")
_NVIDIA_NAMES: Final = re.compile(
    "16816|c1688|conv1x1|conv2d_c1_k1|dgrad_1x1_stride_2x2|direct_group|first_layer_wgrad_kernel|"
    "h1688|h884|hmma|i16832|i8816|s884|s1688|xmma_gemm|xmma_implicit_gemm|xmma_sparse_conv|"
    "xmma_sparse_gemm|xmma_warp_specialized_implicit_gemm"
)
# XLA's and Triton's: whether they use tensor cores is in their code, not in their names.
_GENERATED_NAMES: Final = re.compile("gemm_fusion|triton")
_AMD_NAMES: Final = re.compile(
    r"_MI[0-9]+x[0-9]+x[0-9]+|Custom_Cijk_|_xdl|mfma|wmma|gtcx|gemm_fusion|attn_fwd|bwd_kernel_|"
    r"aiter|TileFmhaShape<|TileFmhaBwdShape<"
)
_OPS_AT_END: Final = (
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "Conv3D",
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput",
    "/MatMul",
    "FusedMatMul",
    "/CudnnRNN",
    "XlaDot",
    "XlaDotV2",
)
_OPS_WITHIN: Final = (
    "BatchMatMul",
    "CudnnRNNV",
    "CudnnRNNForward",
    "CudnnRNNBackprop",
    "dot_general",
    "conv_general_dilated",
)
_BLANKS: Final = "\t\v\f\r"
_COUNT: Final = re.compile(r"\+?[0-9]{1,18}")
_MAX_COUNT: Final = 2**32 - 1

Dim3 = tuple[int, int, int]
ONE: Final[Dim3] = (1, 1, 1)
"""The size that the reference assumes where the tracer did not tell."""


def uses_tensor_core(kernel: str, vendor: str) -> bool | None:
    """Whether a kernel's name says that it computes on tensor (Nvidia) or matrix (AMD) cores.

    None where the name does not tell: those of matrix products that a compiler generated for
    Nvidia's GPUs, and all where the maker is not known.
    """
    names = {"Nvidia": _NVIDIA_NAMES, "AMD": _AMD_NAMES}.get(vendor)
    if names is None or names.search(kernel):
        return None if names is None else True
    return None if vendor == "Nvidia" and _GENERATED_NAMES.search(kernel) else False


def is_eligible_op(op_name: str) -> bool:
    """Whether a framework operation could be computed on tensor cores."""
    return op_name.endswith(_OPS_AT_END) or any(part in op_name for part in _OPS_WITHIN)


def is_eligible_einsum(equation: str) -> bool:
    """Whether an einsum is a product of two operands."""
    sides = equation.split("->")
    return len(sides) == 2 and len(sides[0].split(",")) == 2


@dataclass(frozen=True)
class Launch:
    """How a kernel was launched; None is what the tracer did not tell.

    Attributes:
        static_bytes: Shared memory known when the kernel was compiled.
        dynamic_bytes: Shared memory asked for at launch.
        occupancy_percent: Theoretical occupancy.
    """

    registers: int | None = None
    static_bytes: int | None = None
    dynamic_bytes: int | None = None
    block: Dim3 | None = None
    grid: Dim3 | None = None
    occupancy_percent: float | None = None

    @property
    def shared_bytes(self) -> int | None:
        """Shared memory of both kinds."""
        known = [one for one in (self.static_bytes, self.dynamic_bytes) if one is not None]
        return sum(known) if known else None


def parse_launch(details: str) -> Launch:
    """Launch parameters from ``key:value`` tokens; tokens of any other form are passed over."""
    found: dict[str, Any] = {}
    for token in re.split(r"[ \n]", details):
        key, *values = token.split(":")
        if len(values) != 1:
            continue
        name = _LAUNCH_NAMES.get(key)
        if key in ("block", "grid"):
            sizes = [_count(part) for part in values[0].split(",")]
            if len(sizes) == 3 and None not in sizes:
                found[key] = tuple(sizes)
        elif key == "occ_pct":
            try:
                occupancy = float(values[0])
            except ValueError:
                continue
            if isfinite(occupancy):
                found["occupancy_percent"] = occupancy
        elif name and (count := _count(values[0])) is not None:
            found[name] = count
    return Launch(**found)


def _count(text: str) -> int | None:
    """The number of 32 bits without sign that a text is, blanks around it apart."""
    bare = text.strip(_BLANKS)
    if not _COUNT.fullmatch(bare) or int(bare) > _MAX_COUNT:
        return None
    return int(bare)


_LAUNCH_NAMES: Final = {
    "regs": "registers",
    "static_shared": "static_bytes",
    "dynamic_shared": "dynamic_bytes",
}


@dataclass(frozen=True)
class Kernel:
    """Executions of one kernel with one launch and operation.

    Attributes:
        uses_tensor_core: None where the GPU's maker is unknown.
        is_op_eligible: Whether its operation could be computed on tensor cores, as the reference
            tells it: a kernel that uses them says so only of an operation that the framework
            named. None where the operation is unknown.
        total_ns: Sum of whole nanoseconds, as the least and the most are.
        hosts: On how many hosts.
    """

    name: str
    op_name: str
    launch: Launch
    uses_tensor_core: bool | None
    is_op_eligible: bool | None
    occurrences: int
    total_ns: int
    min_ns: int
    max_ns: int
    hosts: int = 1

    def merged(self, other: "Kernel") -> "Kernel":
        """Both together; the launch is this one's."""
        return replace(
            self,
            occurrences=self.occurrences + other.occurrences,
            total_ns=self.total_ns + other.total_ns,
            min_ns=min(self.min_ns, other.min_ns),
            max_ns=max(self.max_ns, other.max_ns),
        )

    @property
    def could_use_tensor_core(self) -> bool | None:
        """Whether its operation could use tensor cores, as one whose kernel does can."""
        return _could(self.is_op_eligible, uses=bool(self.uses_tensor_core))

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells kernels apart, in the order by which equal times are sorted.

        The occupancy is not in it.
        """
        launch = self.launch
        return (
            self.name,
            launch.grid or ONE,
            launch.block or ONE,
            launch.registers or 0,
            launch.static_bytes or 0,
            launch.dynamic_bytes or 0,
            bool(self.uses_tensor_core),
            bool(self.is_op_eligible),
            self.op_name,
        )


def _could(is_eligible: bool | None, *, uses: bool) -> bool | None:
    return None if is_eligible is None else is_eligible or uses


@dataclass(frozen=True)
class OpKernels:
    """Kernels of one framework operation.

    Attributes:
        is_eligible: Whether any of the kernels' operation could use tensor cores; None where nobody
            knows of any.
        tensor_core_ns: Time of the kernels that use tensor cores.
        untold_ns: Time of the kernels of which that is not known.
    """

    is_eligible: bool | None
    total_ns: int
    tensor_core_ns: int
    untold_ns: int = 0

    @property
    def could_use_tensor_core(self) -> bool | None:
        """Whether it could use tensor cores, as one whose kernels do can."""
        return _could(self.is_eligible, uses=self.tensor_core_ns > 0)

    @property
    def uses_tensor_core(self) -> bool | None:
        """Whether any of the kernels does; None where nobody knows."""
        return True if self.tensor_core_ns else None if self.untold_ns else False

    @property
    def tensor_core_ratio(self) -> float | None:
        """Share of the time on tensor cores; None where it is not known of all kernels."""
        return None if self.untold_ns else self.reference_ratio

    @property
    def reference_ratio(self) -> float:
        """The same, where what is not known counts as no, as the reference has it."""
        return self.tensor_core_ns / self.total_ns if self.total_ns else 0.0


@dataclass(frozen=True)
class KernelDatabase:
    """The longest kernels of one or several hosts, longest first.

    Attributes:
        step_times: Their times by step.
        left_out: Kernels that are not among them, being shorter.
        left_out_ns: Time of these.
    """

    kernels: tuple[Kernel, ...] = ()
    step_times: StepTimes = field(default_factory=StepTimes)
    left_out: int = 0
    left_out_ns: int = 0

    @classmethod
    def of(
        cls,
        kernels: Iterable[Kernel],
        step_times: Sequence[StepTimes] = (),
        places: Sequence[NDArray[np.int64]] = (),
    ) -> "KernelDatabase":
        """The longest of some kernels.

        Args:
            kernels: Distinct ones of a host, or those of several hosts.
            step_times: Of parts of them.
            places: Kernel of every row that a part is about.
        """
        every = list(kernels)
        order = sorted(range(len(every)), key=lambda at: (-every[at].total_ns, every[at].key))
        del order[MAX_KERNELS:]
        rank = np.full(len(every), -1, np.int64)
        rank[order] = np.arange(len(order))
        by_step = StepTimes.combine(step_times, [rank[place] for place in places])
        kept = tuple(every[at] for at in order)
        left_out_ns = sum(one.total_ns for one in every) - sum(one.total_ns for one in kept)
        return cls(kept, by_step, len(every) - len(kept), left_out_ns)

    @classmethod
    def combine(cls, hosts: Iterable["KernelDatabase"]) -> "KernelDatabase":
        """Kernels of several hosts, one row for equal ones."""
        parts = list(hosts)
        if len(parts) == 1:
            return parts[0]
        found: dict[tuple[Any, ...], Kernel] = {}
        numbers: dict[tuple[Any, ...], int] = {}
        places = []
        for part in parts:
            keys = [kernel.key for kernel in part.kernels]
            for key, kernel in zip(keys, part.kernels, strict=True):
                known = found.get(key)
                found[key] = (
                    replace(known.merged(kernel), hosts=known.hosts + kernel.hosts)
                    if known
                    else kernel
                )
            places.append(
                np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
            )
        return cls.of(
            list(found.values()), [part.step_times for part in parts], places
        )._with_left_out(parts)

    @classmethod
    def side_by_side(cls, hosts: Iterable["KernelDatabase"]) -> "KernelDatabase":
        """Kernels of several hosts as the reference has them: equal ones of two hosts stay two."""
        parts = list(hosts)
        if len(parts) == 1:
            return parts[0]
        return cls.of([kernel for part in parts for kernel in part.kernels])._with_left_out(parts)

    def _with_left_out(self, parts: Iterable["KernelDatabase"]) -> "KernelDatabase":
        """The same, less what the parts lacked before."""
        before = list(parts)
        return replace(
            self,
            # A kernel that several hosts left out is counted once a host.
            left_out=self.left_out + sum(part.left_out for part in before),
            left_out_ns=self.left_out_ns + sum(part.left_out_ns for part in before),
        )

    def spreads(self) -> list[Spread | None]:
        """How far the time of every kernel varies from step to step; None where unknown."""
        return self.step_times.spreads(len(self.kernels))

    def by_op(self) -> dict[str, OpKernels]:
        """Kernels by the name of their framework operation."""
        found: dict[str, OpKernels] = {}
        for kernel in self.kernels:
            known = found.get(kernel.op_name)
            before = known or OpKernels(None, 0, 0)
            told = {before.is_eligible, kernel.is_op_eligible} - {None}
            found[kernel.op_name] = OpKernels(
                any(told) if told else None,
                before.total_ns + kernel.total_ns,
                before.tensor_core_ns + (kernel.total_ns if kernel.uses_tensor_core else 0),
                before.untold_ns + (kernel.total_ns if kernel.uses_tensor_core is None else 0),
            )
        return found

    def to_state(self) -> dict[str, Any]:
        """The kernels as plain values, one list per field."""
        state: dict[str, Any] = {
            name: [getattr(kernel, name) for kernel in self.kernels] for name in _KERNEL_FIELDS
        }
        for name in _LAUNCH_FIELDS:
            state[name] = [getattr(kernel.launch, name) for kernel in self.kernels]
        return state | {
            "step_times": self.step_times.to_state(),
            "left_out": self.left_out,
            "left_out_ns": self.left_out_ns,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "KernelDatabase":
        """The kernels that ``to_state`` wrote."""
        kernels = []
        for at in range(len(state["name"])):
            launch = {name: state[name][at] for name in _LAUNCH_FIELDS}
            for size in ("block", "grid"):
                launch[size] = None if launch[size] is None else tuple(launch[size])
            values = {name: state[name][at] for name in _KERNEL_FIELDS}
            kernels.append(Kernel(launch=Launch(**launch), **values))
        return cls(
            tuple(kernels),
            StepTimes.from_state(state["step_times"]),
            state["left_out"],
            state["left_out_ns"],
        )


_LAUNCH_FIELDS: Final = tuple(one.name for one in fields(Launch))
# A stored database is of one host.
_KERNEL_FIELDS: Final = tuple(
    one.name for one in fields(Kernel) if one.name not in ("launch", "hosts")
)


def host_kernels(space: OpSpace, programs: Programs) -> KernelDatabase:
    """Kernels of one host's GPUs."""
    found: dict[tuple[Any, ...], Kernel] = {}
    numbers: dict[tuple[Any, ...], int] = {}
    parts, places = [], []
    for plane in device_planes(space):
        if "kernel_details" not in plane.stat_names:
            continue
        for line in plane.lines:
            if line.is_derived:
                continue
            kernels, by_step = _line_kernels(plane, line, programs)
            for kernel in kernels:
                known = found.get(kernel.key)
                found[kernel.key] = known.merged(kernel) if known else kernel
            parts.append(by_step)
            places.append(
                np.array([numbers.setdefault(one.key, len(numbers)) for one in kernels], np.int64)
            )
    database = KernelDatabase.of(list(found.values()), parts, places)
    return replace(database, step_times=database.step_times.bounded())


def _line_kernels(
    plane: OpPlane, line: OpLine, programs: Programs
) -> tuple[list[Kernel], StepTimes]:
    """Kernels of a line, and their times by step."""
    columns = line.columns(_STATS)
    details, details_table = columns.stat("kernel_details").strings()
    tf_op, tf_table = columns.stat("tf_op").strings()
    hlo_op, hlo_table = columns.stat("hlo_op").strings()
    equation, equation_table = columns.stat("equation").strings()
    program = columns.stat("program_id").ints_or_uints()
    duration_ns = columns.duration_ps // 1000
    has_details = np.array([*map(bool, details_table), False])[details]
    # Kernels shorter than a nanosecond count, with no time: only those of no length are none.
    events = np.flatnonzero(has_details & (columns.duration_ps > 0))
    if not len(events):
        return [], StepTimes()
    parts = np.stack(
        [
            part[events].astype(np.int64)
            for part in (columns.metadata, details, tf_op, hlo_op, equation, program)
        ]
    )
    group, first = group_rows(parts)
    duration = duration_ns[events]
    total = np.zeros(len(first), np.int64)
    np.add.at(total, group, duration)
    least = np.full(len(first), np.iinfo(np.int64).max)
    np.minimum.at(least, group, duration)
    most = np.zeros(len(first), np.int64)
    np.maximum.at(most, group, duration)
    count = np.bincount(group, minlength=len(first))
    vendor = plane.stats.get("device_vendor")
    names = plane.event_metadata.names
    kernels = []
    for at in range(len(first)):
        row, of_details, of_tf, of_hlo, of_equation, program_id = parts[:, first[at]].tolist()
        uses = uses_tensor_core(names[row], vendor if isinstance(vendor, str) else "")
        op_name, eligible = _op_of(
            tf_table[of_tf] if of_tf >= 0 else "",
            equation_table[of_equation] if of_equation >= 0 else "",
            programs.instruction(program_id, hlo_table[of_hlo].rsplit("::", 1)[-1])
            if of_hlo >= 0
            else None,
            uses=bool(uses),
        )
        kernels.append(
            Kernel(
                name=names[row],
                op_name=op_name,
                launch=parse_launch(details_table[of_details]),
                uses_tensor_core=uses,
                is_op_eligible=eligible,
                occurrences=int(count[at]),
                total_ns=int(total[at]),
                min_ns=int(least[at]),
                max_ns=int(most[at]),
            )
        )
    return kernels, StepTimes.of(group, line.group_id[events], columns.duration_ps[events])


def _op_of(
    tf_op: str, equation: str, instruction: Instruction | None, *, uses: bool
) -> tuple[str, bool | None]:
    """Name of the framework operation, and whether it could be computed on tensor cores."""
    op_name, eligible = "", None
    if tf_op:
        op_name = parse_op_name(tf_op).name
        eligible = is_eligible_einsum(equation) or is_eligible_op(op_name) or uses
    if instruction is not None:
        op_name = parse_op_name(instruction.framework_name).name
        eligible = is_eligible_op(op_name) or bool(eligible)
    return op_name, eligible
