"""What any instruction may carry prints like the reference prints it, of random instructions."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from podscope_analyzers.hlo import Program
from podscope_analyzers.hlo.payloads import put_back
from podscope_analyzers.hlo.text import LONG, SHORT, module_text
from podscope_protos.v1 import hlo_pb2

INSTRUCTIONS = 400
TEXTS = (
    "",
    "a",
    "jit(f)/dot",
    'q"uo\\te',
    "ü€",
    "tab\tnl\n",
    '{"a":1}',
    ' {"a":"}"} ',
    "{a}",
    "'s",
)
CONFIGS = (
    *(b'{"a":1}', b'x"y', b'{"wait_on_operation_queues":[],"k":2}', b'{"k":"}{"}', b"\xff\x00"),
    *(b' {"a":1}\n', b'{"a":1}x', b"{}", b"[1]", "{'ü':1}".encode()),
)
NAMES = ("a b", "%x", "__x", "__xla_x", "ünï", "0x", "-a", 'q"', "region_0.1", "a/b")
UNARY = ("exponential", "logistic", "rsqrt", "tan", "erf", "negate", "floor", "copy")
KINDS = hlo_pb2.OpSharding
MODES = (hlo_pb2.ResultAccuracy.MODE_DEFAULT, hlo_pb2.ResultAccuracy.HIGHEST)
VERSIONS = (
    hlo_pb2.CustomCallApiVersion.API_VERSION_UNSPECIFIED,
    hlo_pb2.CustomCallApiVersion.API_VERSION_ORIGINAL,
    hlo_pb2.CustomCallApiVersion.API_VERSION_STATUS_RETURNING,
    hlo_pb2.CustomCallApiVersion.API_VERSION_TYPED_FFI,
)
PRECISIONS = (hlo_pb2.PrecisionConfig.PRECISION_DEFAULT, hlo_pb2.PrecisionConfig.HIGHEST)
Instruction = hlo_pb2.HloInstructionProto


def noted(metadata: hlo_pb2.OpMetadata, rng: random.Random) -> None:
    for name in ("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name"):
        if rng.random() < 0.4:
            setattr(metadata, name, rng.choice(TEXTS))
    for name in ("source_line", "source_end_line", "source_column", "source_end_column"):
        if rng.random() < 0.3:
            setattr(metadata, name, rng.choice((1, 7, 2**31 - 1)))
    if rng.random() < 0.2:
        metadata.profile_type.append(hlo_pb2.ProfileType.WINDOW)


def tiled(sharding: hlo_pb2.OpSharding, rng: random.Random) -> None:
    """Dimensions of a value, and groups of several kinds, some of one device."""
    sharding.type = KINDS.OTHER
    groups = rng.randint(0, 3)
    sizes = [rng.choice((1, 2, 2, 3)) for _ in range(rng.randint(1, 2) + groups)]
    sharding.tile_assignment_dimensions.extend(sizes)
    if groups == 1 and rng.random() < 0.5:
        sharding.replicate_on_last_tile_dim = True
    else:
        kinds = (KINDS.REPLICATED, KINDS.MANUAL, KINDS.UNREDUCED)
        sharding.last_tile_dims.extend(rng.choice(kinds) for _ in range(groups))
    count = math.prod(sizes)
    if rng.random() < 0.4:
        sharding.tile_assignment_devices.extend(rng.sample(range(count), count))
        return
    rng.shuffle(sizes)
    sharding.iota_reshape_dims.extend(sizes)
    sharding.iota_transpose_perm.extend(rng.sample(range(len(sizes)), len(sizes)))


def named(sharding: hlo_pb2.NamedShardingProto, rng: random.Random) -> None:
    for letter in "abc"[: rng.randint(1, 3)]:
        sharding.mesh.axes.add(name=letter, size=rng.choice((2, 4)))
    free = list(range(len(sharding.mesh.axes)))
    for _ in range(rng.randint(0, 2)):
        dimension = sharding.dim_shardings.add(is_closed=rng.random() < 0.7)
        if free and rng.random() < 0.5:
            dimension.axes.add(mesh_axis_index=free.pop(0))
    for axes in (sharding.replicated_axes, sharding.unreduced_axes, sharding.manual_axes):
        while free and rng.random() < 0.4:
            axes.add(mesh_axis_index=free.pop(0))


def sharded(instruction: Instruction, rng: random.Random) -> None:
    sharding, chance = instruction.sharding, rng.random()
    if chance < 0.2:
        named(sharding.named_sharding, rng)
        return
    if chance < 0.4:
        sharding.type = rng.choice((KINDS.REPLICATED, KINDS.MANUAL, KINDS.UNREDUCED))
    else:
        tiled(sharding, rng)
    for _ in range(rng.choice((0, 0, 1, 2))):
        noted(sharding.metadata.add(), rng)


def described(instruction: Instruction, rng: random.Random) -> None:
    """Some of what an instruction may say of itself."""
    if rng.random() < 0.5:
        sharded(instruction, rng)
    if rng.random() < 0.3:
        for key in rng.sample(("a", "_x", "Z", "b.c"), 2):
            instruction.frontend_attributes.map[key] = rng.choice(TEXTS)
    if rng.random() < 0.4:
        instruction.backend_config = rng.choice(CONFIGS)
    if rng.random() < 0.1:
        instruction.backend_config_payload.id = rng.randrange(2)
    if rng.random() < 0.1:
        instruction.backend_config_payload.value = rng.choice(CONFIGS)
    if rng.random() < 0.5:
        noted(instruction.metadata, rng)
    if rng.random() < 0.1:
        instruction.metadata.metadata_payload.id = rng.randrange(2)
    if rng.random() < 0.2:
        instruction.result_accuracy.mode = rng.choice(MODES)
    elif rng.random() < 0.2:
        instruction.result_accuracy.tolerance.rtol = 1 / 3
    if rng.random() < 0.2:
        origin = instruction.original_value
        for place in rng.sample(range(3), rng.randint(0, 2)):
            array = origin.elements.add(shape_index=[place]).original_array
            array.instruction_name = rng.choice(("v", "", 'q"'))
        if rng.random() < 0.3:
            origin.call_hierarchy = rng.choice(TEXTS)
    if rng.random() < 0.3:
        instruction.custom_call_api_version = rng.choice(VERSIONS)


def random_module(seed: int) -> hlo_pb2.HloProto:
    """Instructions one after another, each of the one before it."""
    rng = random.Random(seed)
    module = hlo_pb2.HloModuleProto(name="1 m", entry_computation_id=1, payloads=[b'{"p":1}', b""])
    computation = module.computations.add(name="main x", id=1)
    array = hlo_pb2.ShapeProto(element_type=hlo_pb2.F32, dimensions=[4])
    array.is_dynamic_dimension.append(False)
    array.layout.minor_to_major.append(0)
    add = computation.instructions.add
    add(name="p", id=1, opcode="parameter").shape.CopyFrom(array)
    for number in range(2, INSTRUCTIONS):
        one = add(name=f"{rng.choice(NAMES)}.{number}", id=number, operand_ids=[number - 1])
        one.opcode = rng.choice(UNARY)
        one.shape.CopyFrom(array)
        if rng.random() < 0.3:
            one.opcode, one.custom_call_target = "custom-call", rng.choice(TEXTS[1:])
            one.precision_config.operand_precision.extend(PRECISIONS[: rng.randint(0, 2)])
        described(one, rng)
    computation.root_id = INSTRUCTIONS - 1
    shape = computation.program_shape
    shape.parameters.append(array)
    shape.parameter_names.append("p")
    shape.result.CopyFrom(array)
    module.host_program_shape.CopyFrom(shape)
    return hlo_pb2.HloProto(hlo_module=module)


@pytest.mark.parametrize("seed", range(6))
def test_random_attributes_print_like_the_reference(
    seed: int, xprof_graph_viewer: Callable[..., str]
) -> None:
    proto = random_module(seed)
    kind, style = (("short_txt", SHORT), ("long_txt", LONG))[seed % 2]
    shows_metadata = seed % 3 != 0
    expected = xprof_graph_viewer(proto, type=kind, show_metadata=int(shows_metadata))
    put_back(proto.hlo_module)
    got = module_text(Program(1, proto), replace(style, metadata=shows_metadata))
    assert got.split("\n") == expected.split("\n")
