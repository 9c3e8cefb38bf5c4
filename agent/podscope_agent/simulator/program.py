"""The program that the simulated pod trains: one data-parallel transformer step.

Every number that is planted (flops, bytes, time) follows from the shapes here, so the planes, the
HLO protos and the truth cannot disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from podscope_agent.simulator.devices import Device

Kind = Literal[
    "infeed", "copy-start", "copy-done", "matmul", "matmul_add", "elementwise", "copy", "while",
    "all-reduce", "update", "send", "recv", "send-done", "recv-done",
]  # fmt: skip

MODULE: Final = "jit_train_step"
_TPU_PROGRAM_ID: Final = 7_405_214_831_905_467_021
_PROGRAM_ID: Final = 15
SOURCE_FILE: Final = "/app/train/transformer.py"

_COMPUTE_EFFICIENCY: Final = 0.55
_MEMORY_EFFICIENCY: Final = 0.7
_STEP_TARGET_PS: Final = 10_000_000_000
"""Own compute time of a step of an ordinary size."""
_OP_TARGET_PS: Final = 4_000_000
"""Mean op time that is kept when a huge number of events is asked for."""
_MAX_LAYERS: Final = 24
TRANSFER_PS: Final[Mapping[Kind, int]] = {
    "send": 3_000_000, "recv": 2_000_000, "send-done": 5_000_000, "recv-done": 40_000_000,
}  # fmt: skip
"""Time of the operations that exchange something with other slices."""
TRANSFERS: Final = frozenset(TRANSFER_PS)
EXCHANGES: Final = 2
_GPU_ELEMENTWISE_WEIGHT: Final = 3
"""Flops that the GPU's cost analysis counts for one ordinary elementwise operation."""


@dataclass(frozen=True)
class Array:
    """An array's shape; the element type is the program's.

    Attributes:
        dims: Sizes of the dimensions, the slowest varying first.
    """

    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.dims:
            count *= size
        return count


@dataclass(frozen=True)
class Op:
    """One HLO instruction that runs on the device.

    Attributes:
        name: HLO name.
        kind: What it computes.
        operands: Names of the values it reads: ops, or leaves such as ``param.3``.
        operand_shapes: Their shapes.
        outputs: Shapes of the results (more than one only for an all-reduce).
        contraction: Operand dimensions that a matmul sums over (left, right).
        framework_name: ``op_name`` of the HLO metadata.
        source_line: Line in the training script.
        symbol_id: Number within the program, from 1.
        flops: Floating point operations of one execution.
        bytes_read: Bytes read by one execution.
        bytes_written: Bytes written by one execution.
        weight_ps: Undisturbed time of one execution.
    """

    name: str
    kind: Kind
    operands: tuple[str, ...]
    operand_shapes: tuple[Array, ...]
    outputs: tuple[Array, ...]
    contraction: tuple[int, int]
    framework_name: str
    source_line: int
    symbol_id: int
    flops: int
    bytes_read: int
    bytes_written: int
    weight_ps: int

    @property
    def bytes_accessed(self) -> int:
        """Bytes moved by one execution."""
        return self.bytes_read + self.bytes_written

    @property
    def tpu_category(self) -> str:
        """``hlo_category`` as the TPU compiler names it."""
        return {
            "matmul": "convolution fusion",
            "matmul_add": "convolution fusion",
            "elementwise": "loop fusion",
            "update": "loop fusion",
            "copy": "data formatting",
            **{kind: f"host {kind}" for kind in TRANSFERS},
        }.get(self.kind, self.kind)

    @property
    def hlo_category(self) -> str:
        """Category that a reader derives from the HLO itself (GPU)."""
        if self.kind in {"matmul", "matmul_add"}:
            return "custom fusion"
        return self.tpu_category


@dataclass(frozen=True)
class Slot:
    """One execution within a step, in program order.

    Attributes:
        op: What runs; None for time that only the enclosing loop accounts for.
        weight_ps: Its share of the step's own compute time.
    """

    op: Op | None
    weight_ps: int


@dataclass(frozen=True)
class Size:
    """How large the program is.

    Attributes:
        layers: Transformer layers.
        microbatches: Iterations of the gradient accumulation loop.
        tokens: Tokens of one microbatch.
    """

    layers: int
    microbatches: int
    tokens: int

    @property
    def executions(self) -> int:
        """Ops that run on one core in one step."""
        return self.microbatches * (self.layers * 20 + 1) + self.layers * 4 + 5


def choose_size(device: Device, executions: int | None) -> Size:
    """A program with about ``executions`` ops per core and step (None: a small one).

    More ops come first from more layers, then from more iterations of the loop, as in large jobs.
    """
    layers, microbatches = 2, 2
    if executions is not None:
        layers = min(_MAX_LAYERS, max(1, round((executions - 6) / 45)))
        microbatches = max(1, round((executions - 5 - layers * 4) / (layers * 20 + 1)))
    target_ps = max(_STEP_TARGET_PS, layers * microbatches * 20 * _OP_TARGET_PS)
    flops = device.peak_tflops * _COMPUTE_EFFICIENCY * target_ps
    per_token = 60 * layers * microbatches * device.hidden**2
    tokens = max(8, int(flops / per_token) // 8 * 8)
    return Size(layers, microbatches, tokens)


class Program:
    """The ops of a step and the order in which they run.

    Attributes:
        device: What it was compiled for.
        size: How large it is.
        replicas: Devices that take part in the all-reduces.
        element_bytes: Bytes of one element (2: bfloat16; 4 on a CPU).
        lead: An op that runs before the input is there (GPU), or None.
        prologue: Ops before the loop.
        body: Ops of one loop iteration.
        loop: The ``while`` op itself.
        collectives: The all-reduces of the gradients.
        epilogue: The optimizer's ops, and what several slices exchange meanwhile.
        slices: How many slices there are.
    """

    def __init__(self, device: Device, size: Size, replicas: int = 1, slices: int = 1) -> None:
        self.device = device
        self.size = size
        self.replicas = replicas
        self.slices = slices
        self.element_bytes = 4 if device.family == "cpu" else 2
        self._symbol = 0
        self._names: dict[str, int] = {}
        self.lead: Op | None = None
        self.prologue: list[Op] = []
        self.body: list[Op] = []
        self.collectives: list[Op] = []
        self.epilogue: list[Op] = []
        self._build()

    @property
    def program_id(self) -> int:
        """Id of the program: a fingerprint on a TPU, a small number elsewhere."""
        return _TPU_PROGRAM_ID if self.device.family == "tpu" else _PROGRAM_ID

    @property
    def module_name(self) -> str:
        """The module's name with the program's id, as tracers write it."""
        return f"{MODULE}({self.program_id})"

    @property
    def weights(self) -> list[Array]:
        """Shapes of the parameters, four per layer."""
        d = self.device.hidden
        return [Array((d, d)), Array((d, d)), Array((d, 4 * d)), Array((4 * d, d))] * (
            self.size.layers
        )

    @property
    def updates(self) -> list[Op]:
        """The ops that make the new parameters."""
        return [op for op in self.epilogue if op.kind == "update"]

    @property
    def activation(self) -> Array:
        """Shape of the activations between layers."""
        return Array((self.size.tokens, self.device.hidden))

    @property
    def ops(self) -> list[Op]:
        """Every op once, in program order."""
        lead = [] if self.lead is None else [self.lead]
        return [*lead, *self.prologue, self.loop, *self.body, *self.collectives, *self.epilogue]

    @cached_property
    def compute_slots(self) -> tuple[Slot, ...]:
        """Executions between the input and the first all-reduce, in order.

        The slots of the loop are those after the prologue's; `loop_slots` tells where they are.
        """
        slots = [Slot(op, op.weight_ps) for op in self.prologue if op.kind != "infeed"]
        condition_ps = max(200_000, sum(op.weight_ps for op in self.body) // 200)
        for _ in range(self.size.microbatches):
            slots += [Slot(op, op.weight_ps) for op in self.body]
            slots.append(Slot(None, condition_ps))
        return tuple(slots)

    @property
    def loop_slots(self) -> tuple[int, int]:
        """First and one past the last slot that the ``while`` op encloses."""
        first = sum(1 for op in self.prologue if op.kind != "infeed")
        return first, len(self.compute_slots)

    @cached_property
    def compute_ps(self) -> int:
        """Undisturbed own compute time of a step."""
        return sum(slot.weight_ps for slot in self.compute_slots)

    @cached_property
    def executions(self) -> dict[str, int]:
        """How often each op runs on one core in one step."""
        in_body = dict.fromkeys((op.name for op in self.body), self.size.microbatches)
        return {op.name: in_body.get(op.name, 1) for op in self.ops}

    @cached_property
    def flops_per_step(self) -> int:
        """Floating point operations of one core in one step."""
        return sum(op.flops * self.executions[op.name] for op in self.ops)

    @cached_property
    def bytes_per_step(self) -> int:
        """Bytes that one core moves in one step."""
        return sum(op.bytes_accessed * self.executions[op.name] for op in self.ops)

    @property
    def _matmul_stem(self) -> str:
        return "gemm_fusion_dot" if self.device.family == "gpu" else "fusion"

    def _name(self, stem: str) -> str:
        count = self._names.get(stem, 0)
        self._names[stem] = count + 1
        return f"{stem}.{count}" if count else stem

    def _time_ps(self, flops: int, moved: int) -> int:
        compute = flops / (self.device.peak_tflops * _COMPUTE_EFFICIENCY)
        memory = moved * 1000 / (self.device.memory_gbps * _MEMORY_EFFICIENCY)
        return max(100_000, round(max(compute, memory)))

    def _op(
        self,
        kind: Kind,
        stem: str,
        operands: tuple[tuple[str, Array], ...],
        outputs: tuple[Array, ...],
        framework_name: str,
        source_line: int,
        contraction: tuple[int, int] = (1, 0),
    ) -> Op:
        self._symbol += 1
        weight = _GPU_ELEMENTWISE_WEIGHT if self.device.family == "gpu" else 1
        elements = sum(output.elements for output in outputs)
        flops = 0
        if kind in {"matmul", "matmul_add"}:
            summed = operands[0][1].dims[contraction[0]]
            flops = 2 * elements * summed + (weight * elements if kind == "matmul_add" else 0)
        elif kind in {"elementwise", "update"}:
            flops = 2 * elements * weight
        elif kind == "all-reduce":
            flops = elements * weight
        is_free = kind in {"while", "copy-start", "copy-done", *TRANSFERS}
        read = 0 if is_free else sum(s.elements for _, s in operands) * self.element_bytes
        written = 0 if is_free else elements * self.element_bytes
        if kind == "all-reduce":
            # A ring moves every element about twice, whatever the number of hosts.
            weight_ps = max(50_000_000, round(2 * written * 1000 / self.device.link_gbps))
        elif is_free:
            weight_ps = 100_000
        else:
            weight_ps = self._time_ps(flops, read + written)
        return Op(
            name=self._name(stem),
            kind=kind,
            operands=tuple(name for name, _ in operands),
            operand_shapes=tuple(shape for _, shape in operands),
            outputs=outputs,
            contraction=contraction,
            framework_name=framework_name,
            source_line=source_line,
            symbol_id=self._symbol,
            flops=flops,
            bytes_read=read,
            bytes_written=written,
            weight_ps=weight_ps,
        )

    def _build(self) -> None:
        x = self.activation
        if self.device.family == "tpu":
            self.prologue.append(
                self._op("infeed", "infeed", (), (x,), "jit(train_step)/infeed", 41)
            )
            name = "jit(train_step)/prefetch"
            first = self.weights[0]
            start = self._op("copy-start", "copy-start", (("param.0", first),), (first,), name, 44)
            self.prologue.append(start)
            self.prologue.append(
                self._op("copy-done", "copy-done", ((start.name, first),), (first,), name, 44)
            )
        elif self.device.family == "gpu":
            weight = ("param.0", self.weights[0])
            name = "jit(train_step)/convert_element_type"
            self.lead = self._op(
                "elementwise", "convert_fusion", (weight,), (self.weights[0],), name, 47
            )
        self.loop = self._op("while", "while", (), (), "jit(train_step)/while", 52)
        self._build_body()
        self._build_update()

    def _build_body(self) -> None:
        x, layers = self.activation, self.size.layers
        wide = Array((self.size.tokens, 4 * self.device.hidden))
        state: tuple[str, Array] = ("state.x", x)
        saved: list[dict[str, tuple[str, Array]]] = []
        for layer in range(layers):
            scope = f"jit(train_step)/jvp(Transformer)/layer_{layer}"
            w = [(f"state.w{4 * layer + i}", self.weights[4 * layer + i]) for i in range(4)]
            a = self._matmul(state, w[0], x, f"{scope}/attention/in_proj", 81)
            s = self._elementwise((a,), x, "softmax_fusion", f"{scope}/attention/softmax", 84)
            o = self._matmul(s, w[1], x, f"{scope}/attention/out_proj", 87)
            r = self._elementwise((o, state), x, "add_norm_fusion", f"{scope}/norm_0/add", 90)
            u = self._matmul(r, w[2], wide, f"{scope}/mlp/up_proj", 94)
            g = self._elementwise((u,), wide, "gelu_fusion", f"{scope}/mlp/gelu", 96)
            y = self._matmul(g, w[3], x, f"{scope}/mlp/down_proj", 98)
            n = self._elementwise((y, r), x, "add_norm_fusion", f"{scope}/norm_1/add", 101)
            copy = self._op("copy", "copy", (n,), (x,), f"{scope}/transpose", 103)
            self.body.append(copy)
            saved.append({"x": state, "a": a, "s": s, "r": r, "u": u, "g": g})
            state = (copy.name, x)
        for layer in reversed(range(layers)):
            scope = f"jit(train_step)/transpose(jvp(Transformer))/layer_{layer}"
            w = [(f"state.w{4 * layer + i}", self.weights[4 * layer + i]) for i in range(4)]
            keep = saved[layer]
            self._weight_gradient(keep["g"], state, layer, 3, f"{scope}/mlp/down_proj", 98)
            d = self._matmul(state, w[3], wide, f"{scope}/mlp/down_proj", 98, transposed=True)
            d = self._elementwise((d, keep["u"]), wide, "gelu_grad_fusion", f"{scope}/mlp/gelu", 96)
            self._weight_gradient(keep["r"], d, layer, 2, f"{scope}/mlp/up_proj", 94)
            d = self._matmul(d, w[2], x, f"{scope}/mlp/up_proj", 94, transposed=True)
            d = self._elementwise((d, state), x, "norm_grad_fusion", f"{scope}/norm_0/mul", 90)
            self._weight_gradient(keep["s"], d, layer, 1, f"{scope}/attention/out_proj", 87)
            d = self._matmul(d, w[1], x, f"{scope}/attention/out_proj", 87, transposed=True)
            name = f"{scope}/attention/softmax"
            d = self._elementwise((d, keep["a"]), x, "softmax_grad_fusion", name, 84)
            self._weight_gradient(keep["x"], d, layer, 0, f"{scope}/attention/in_proj", 81)
            state = self._matmul(d, w[0], x, f"{scope}/attention/in_proj", 81, transposed=True)

    def _build_update(self) -> None:
        weights = self.weights
        half = len(weights) // 2
        for bucket, (first, last) in enumerate(((half, len(weights)), (0, half))):
            gradients = tuple((f"gradient.{i}", weights[i]) for i in range(first, last))
            self.collectives.append(
                self._op("all-reduce", "all-reduce", gradients, tuple(weights[first:last]),
                         f"jit(train_step)/psum_{bucket}", 118)
            )  # fmt: skip
        for i, shape in enumerate(weights):
            operands = ((f"param.{i}", shape), (f"reduced.{i}", shape))
            self.epilogue.append(
                self._op("update", "adam_fusion", operands, (shape,),
                         f"jit(train_step)/optimizer/update_{i}", 126)
            )  # fmt: skip
        if self.slices > 1:
            self._build_exchanges()

    def _build_exchanges(self) -> None:
        """Slices send each other the parameters as they were, while these are updated."""
        updates = list(self.epilogue)
        begins, ends = [], []
        for number in range(EXCHANGES):
            array = self.weights[number]
            name = f"jit(train_step)/exchange_{number}"
            made = []
            for kind, weight_ps in TRANSFER_PS.items():
                operands = ((f"param.{number}", array),) if kind == "send" else ()
                op = self._op(kind, kind, operands, (array,), name, 122)
                made.append(replace(op, weight_ps=weight_ps))
            begins.append(made[:2])
            ends.append(made[2:])
        self.epilogue = []
        parts = [*begins, *ends]
        share = max(1, len(updates) // (len(parts) + 1))
        for number, part in enumerate(parts):
            self.epilogue += [*part, *updates[number * share : (number + 1) * share]]
        self.epilogue += updates[len(parts) * share :]

    def _matmul(
        self,
        left: tuple[str, Array],
        right: tuple[str, Array],
        output: Array,
        framework_name: str,
        source_line: int,
        *,
        transposed: bool = False,
    ) -> tuple[str, Array]:
        op = self._op(
            "matmul", self._matmul_stem, (left, right), (output,), f"{framework_name}/dot_general",
            source_line, (1, 1 if transposed else 0),
        )  # fmt: skip
        self.body.append(op)
        return op.name, output

    def _weight_gradient(
        self,
        saved: tuple[str, Array],
        incoming: tuple[str, Array],
        layer: int,
        index: int,
        framework_name: str,
        source_line: int,
    ) -> None:
        number = 4 * layer + index
        shape = self.weights[number]
        sum_so_far = (f"state.g{number}", shape)
        self.body.append(
            self._op("matmul_add", self._matmul_stem, (saved, incoming, sum_so_far), (shape,),
                     f"{framework_name}/dot_general", source_line, (0, 0))
        )  # fmt: skip

    def _elementwise(
        self,
        operands: tuple[tuple[str, Array], ...],
        output: Array,
        stem: str,
        framework_name: str,
        source_line: int,
    ) -> tuple[str, Array]:
        op = self._op("elementwise", stem, operands, (output,), framework_name, source_line)
        self.body.append(op)
        return op.name, output
