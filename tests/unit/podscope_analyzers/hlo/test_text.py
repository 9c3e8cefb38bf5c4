"""One instruction as text, by hand-worked cases of XLA's form."""

import math
import struct
from types import SimpleNamespace

import pytest
from google.protobuf import text_format

from podscope_analyzers.hlo.text import EXPRESSION, Printer, Style
from podscope_analyzers.hlo.text.escapes import c_escaped, is_json_object
from podscope_analyzers.hlo.text.literal_text import literal_text
from podscope_analyzers.hlo.text.names import sanitised
from podscope_analyzers.hlo.text.origin_text import origin_text
from podscope_analyzers.hlo.text.shape_text import shape_text
from podscope_analyzers.hlo.text.sharding_text import sharding_text
from podscope_protos.v1 import hlo_pb2

F32_8 = "shape { element_type: F32 dimensions: 8 layout { minor_to_major: 0 } }"
F32 = "shape { element_type: F32 layout {} }"


def printed(module: str, name: str, style: Style = EXPRESSION) -> str:
    """The text of an instruction of a module in protobuf's text form."""
    proto = text_format.Parse(module, hlo_pb2.HloModuleProto())
    by_id = {i.id: i for c in proto.computations for i in c.instructions}
    program = SimpleNamespace(computations={c.id: c for c in proto.computations}, by_id=by_id)
    found = next(i for i in by_id.values() if i.name == name)
    return Printer(program, style).instruction(found)


def shape(text: str) -> hlo_pb2.ShapeProto:
    return text_format.Parse(text, hlo_pb2.ShapeProto())


def literal(text: str) -> hlo_pb2.LiteralProto:
    return text_format.Parse(text, hlo_pb2.LiteralProto())


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("element_type: F32 layout {}", "f32[]"),
        ("element_type: U32 layout { memory_space: 2 }", "u32[]{:S(2)}"),
        (
            "element_type: BF16 dimensions: 8 dimensions: 128 layout { minor_to_major: 1 "
            "minor_to_major: 0 tiles { dimensions: [8, 128] } tiles { dimensions: [2, 1] } "
            "element_size_in_bits: 4 memory_space: 1 }",
            "bf16[8,128]{1,0:T(8,128)(2,1)E(4)S(1)}",
        ),
        (
            "element_type: S32 dimensions: [10, -9223372036854775808] "
            "is_dynamic_dimension: [true, true]",
            "s32[<=10,?]",
        ),
        ("element_type: TUPLE", "()"),
        (
            "element_type: TUPLE " + "tuple_shapes { element_type: TOKEN } " * 6,
            "(token[], token[], token[], token[], token[], /*index=5*/token[])",
        ),
    ],
)
def test_a_shape_shows_its_layout(given: str, expected: str) -> None:
    assert shape_text(shape(given)) == expected


def test_a_shape_without_layout_shows_none() -> None:
    nested = "element_type: TUPLE tuple_shapes { element_type: F32 dimensions: 2 layout { "
    assert shape_text(shape(nested + "minor_to_major: 0 } }"), layout=False) == "(f32[2])"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("shape { element_type: PRED } preds: true", "true"),
        ("shape { element_type: PRED dimensions: 2 } preds: [true, false]", "{1, 0}"),
        ("shape { element_type: F32 } f32s: 0.1", "0.1"),
        ("shape { element_type: F32 } f32s: 16777217.5", "16777218"),
        ("shape { element_type: F64 } f64s: 0.1", "0.1"),
        ("shape { element_type: F64 } f64s: 0.30000000000000004", "0.30000000000000004"),
        ("shape { element_type: F32 dimensions: 2 } f32s: [-inf, inf]", "{-inf, inf}"),
        ("shape { element_type: C64 } c64s: [1, -2]", "(1, -2)"),
        ("shape { element_type: S4 dimensions: 2 } s4s: '\\017\\007'", "{-1, 7}"),
        ("shape { element_type: F8E4M3FN } f8e4m3fns: '\\176'", "448"),
        ("shape { element_type: F8E5M2 } f8e5m2s: '\\174'", "inf"),
        ("shape { element_type: S32 dimensions: [2, 1] } s32s: [1, 2]", "{ {1}, {2} }"),
        (
            "shape { element_type: S32 dimensions: [2, 2] layout { minor_to_major: [0, 1] } } "
            "s32s: [1, 2, 3, 4]",
            "{ { 1, 3 }, { 2, 4 } }",
        ),
        (
            "shape { element_type: S32 dimensions: [1, 2, 1, 2] } s32s: [1, 2, 3, 4]",
            "{ { /*i0=0*/ { /*i1=0*/ { 1, 2 } }, { /*i1=1*/ { 3, 4 } } } }",
        ),
        ("shape { element_type: S32 dimensions: 11 } s32s: 1", "{...}"),
        ("shape { element_type: S32 dimensions: 2 } s32s: 1", "{...}"),
        ("shape { element_type: TUPLE }", "{...}"),
    ],
)
def test_a_constant_is_in_the_order_of_its_indices(given: str, expected: str) -> None:
    assert literal_text(literal(given), large=False) == expected


def test_half_floats_have_few_digits() -> None:
    half = hlo_pb2.LiteralProto(f16s=struct.pack("<e", 0.1))
    half.shape.element_type = hlo_pb2.PrimitiveType.F16
    assert literal_text(half, large=False) == "0.099976"
    brain = hlo_pb2.LiteralProto(bf16s=struct.pack("<f", -0.99609375)[2:])
    brain.shape.element_type = hlo_pb2.PrimitiveType.BF16
    assert literal_text(brain, large=False) == "-0.9961"


def test_a_large_constant_is_shown_where_it_is_wanted() -> None:
    numbers = ", ".join(map(str, range(12)))
    given = f"shape {{ element_type: S32 dimensions: 12 }} s32s: [{numbers}]"
    assert literal_text(literal(given), large=True) == "{" + numbers + "}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("type: REPLICATED", "{replicated}"),
        ("type: MAXIMAL tile_assignment_devices: 3", "{maximal device=3}"),
        (
            "type: OTHER tile_assignment_dimensions: [2, 1, 2] tile_assignment_devices: "
            "[0, 1, 2, 3] replicate_on_last_tile_dim: true",
            "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}",
        ),
        (
            "type: OTHER tile_assignment_dimensions: [2, 4] iota_reshape_dims: [4, 2] "
            "iota_transpose_perm: [1, 0] last_tile_dims: [MANUAL, REPLICATED]",
            "{devices=[2,4]<=[4,2]T(1,0) last_tile_dims={manual, replicated}}",
        ),
        (
            "type: TUPLE tuple_shardings { type: MANUAL } tuple_shardings { type: REPLICATED "
            "is_shard_group: true shard_group_id: 4 shard_group_type: LIKE }",
            "{{manual}, {replicated shard_like 4}}",
        ),
        (
            "type: OTHER tile_assignment_dimensions: [2, 4] iota_reshape_dims: [2, 1, 4] "
            "iota_transpose_perm: [0, 1, 2]",
            "{devices=[2,4]<=[8]}",
        ),
        (
            "named_sharding { mesh { axes { name: 'a' size: 2 } axes { name: 'b' size: 4 } } "
            "dim_shardings { axes { mesh_axis_index: 0 } is_closed: true } dim_shardings {} "
            "unreduced_axes { mesh_axis_index: 1 sub_axis_info { pre_size: 2 size: 2 } } "
            "reduction_op: MAX }",
            "{mesh['a'=2,'b'=4], [{'a'}, {?}], unreduced=max{'b':(2)2}}",
        ),
        ("named_sharding { mesh { device_ids: 3 } }", "{single_device[device_id=3]}"),
        (
            "named_sharding { mesh { axes { name: 'a' size: 2 } } "
            "manual_axes { mesh_axis_index: 0 } }",
            "{mesh['a'=2], manual}",
        ),
    ],
)
def test_a_sharding_is_in_braces(given: str, expected: str) -> None:
    assert sharding_text(text_format.Parse(given, hlo_pb2.OpSharding())) == expected


@pytest.mark.parametrize(
    ("sizes", "devices", "kinds", "expected"),
    [
        # Groups of one device say nothing.
        ([3, 2, 1], "tile_assignment_devices: [4, 3, 1, 5, 0, 2]", "MANUAL", "[3,2]4,3,1,5,0,2"),
        # Groups of one kind are one group.
        (
            *([2, 2, 3], "iota_reshape_dims: 12 iota_transpose_perm: 0", "MANUAL, MANUAL"),
            "[2,6]<=[12] last_tile_dims={manual}",
        ),
        # Manual groups come first, replicas last, those of each group in order.
        (
            *([2, 2], "tile_assignment_devices: [3, 1, 2, 0]", "REPLICATED, MANUAL"),
            "[2,2]2,3,0,1 last_tile_dims={manual, replicated}",
        ),
        (
            *([2, 3], "iota_reshape_dims: 6 iota_transpose_perm: 0", "UNREDUCED, MANUAL"),
            "[3,2]<=[2,3]T(1,0) last_tile_dims={manual, unreduced}",
        ),
        # An iota that no longer runs along the tile's dimensions is listed.
        (
            *([2, 3], "iota_reshape_dims: [3, 2] iota_transpose_perm: [1, 0]"),
            *("MANUAL, UNREDUCED", "[2,3]<=[3,2]T(1,0) last_tile_dims={manual, unreduced}"),
        ),
        (
            *([2, 3], "iota_reshape_dims: [2, 3] iota_transpose_perm: [1, 0]"),
            *("UNREDUCED, MANUAL", "[3,2]0,4,3,2,1,5 last_tile_dims={manual, unreduced}"),
        ),
        (
            *([4, 2], "iota_reshape_dims: [2, 4] iota_transpose_perm: [1, 0]", "REPLICATED"),
            "[4,2]<=[2,4]T(1,0) last_tile_dim_replicate",
        ),
    ],
)
def test_groups_of_devices_have_one_form(
    sizes: list[int], devices: str, kinds: str, expected: str
) -> None:
    given = f"type: OTHER tile_assignment_dimensions: {sizes} {devices} last_tile_dims: [{kinds}]"
    sharding = text_format.Parse(given, hlo_pb2.OpSharding())
    assert sharding_text(sharding) == f"{{devices={expected}}}"


@pytest.mark.parametrize(
    ("sizes", "kinds", "expected"),
    [
        ([1, 2], "MANUAL", "{manual}"),
        ([1, 1, 2], "UNREDUCED, REPLICATED", "{replicated}"),
        ([2], "UNREDUCED", "{unreduced}"),
        ([1, 1], "MANUAL, MANUAL", "{replicated}"),
    ],
)
def test_one_kind_on_all_devices_is_told_by_its_name(
    sizes: list[int], kinds: str, expected: str
) -> None:
    devices = f"iota_reshape_dims: {math.prod(sizes)} iota_transpose_perm: 0"
    given = f"type: OTHER tile_assignment_dimensions: {sizes} {devices} last_tile_dims: [{kinds}]"
    assert sharding_text(text_format.Parse(given, hlo_pb2.OpSharding())) == expected


def test_one_sharding_of_a_tuple_is_that_of_each_of_its_arrays() -> None:
    manual = text_format.Parse("type: MANUAL", hlo_pb2.OpSharding())
    assert sharding_text(manual, leaves=2) == "{{manual}, {manual}}"
    assert sharding_text(manual, leaves=0) == "{{manual}}"


def test_a_long_sharding_is_not_repeated_for_each_of_very_many_arrays() -> None:
    listed = hlo_pb2.OpSharding(
        type=hlo_pb2.OpSharding.OTHER,
        tile_assignment_dimensions=[100_000],
        tile_assignment_devices=range(100_000),
    )
    once = sharding_text(listed)
    assert sharding_text(listed, leaves=10_000) == f"{{{once}, ...}}"


@pytest.mark.parametrize(
    ("sizes", "devices", "expected"),
    [
        # Their product is the number of devices all the same.
        ([-2, -2], "tile_assignment_devices: [0, 1, 2, 3]", "[-2,-2]0,1,2,3"),
        (
            *([-2, -2], "iota_reshape_dims: [2, 2] iota_transpose_perm: [1, 0]"),
            "[-2,-2]<=[2,2]T(1,0)",
        ),
        (
            *([2, 2], "iota_reshape_dims: [-2, -2] iota_transpose_perm: [1, 0]"),
            "[2,2]<=[-2,-2]T(1,0)",
        ),
        ([2, 2], "tile_assignment_devices: [0, 1]", "[2,2]0,1"),
    ],
)
def test_damaged_tiles_are_shown_as_stored(sizes: list[int], devices: str, expected: str) -> None:
    kinds = "last_tile_dims: [MANUAL, REPLICATED]"
    given = f"type: OTHER tile_assignment_dimensions: {sizes} {devices} {kinds}"
    sharding = text_format.Parse(given, hlo_pb2.OpSharding())
    shown = sharding_text(sharding)
    assert shown == f"{{devices={expected} last_tile_dims={{manual, replicated}}}}"


def test_a_product_of_sizes_that_no_machine_has_is_not_written() -> None:
    given = hlo_pb2.OpSharding(
        type=hlo_pb2.OpSharding.OTHER,
        tile_assignment_dimensions=[2],
        iota_reshape_dims=[1 << 62] * 300,
        iota_transpose_perm=range(300),
    )
    assert sharding_text(given).startswith(f"{{devices=[2]<=[{1 << 62},{1 << 62},")


@pytest.mark.parametrize(("rows", "is_listed"), [(2**13, True), (2**16, False)])
def test_devices_are_listed_one_by_one_for_as_many_as_machines_have(
    rows: int, is_listed: bool
) -> None:
    given = hlo_pb2.OpSharding(
        type=hlo_pb2.OpSharding.OTHER,
        tile_assignment_dimensions=[3, rows],
        iota_reshape_dims=[3, rows],
        iota_transpose_perm=[1, 0],
        last_tile_dims=[hlo_pb2.OpSharding.UNREDUCED, hlo_pb2.OpSharding.MANUAL],
    )
    assert ("<=" in sharding_text(given)) is not is_listed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fusion.1-x_y", "fusion.1-x_y"),
        ("a b/c", "a_b_c"),
        ("0x", "_x"),
        ("é", "a_"),
        ("__x", "a_x"),
        ("__xla_x", "__xla_x"),
        ("bf16", "bf16_"),
        ("tuple", "tuple"),
        ("", ""),
    ],
)
def test_a_name_holds_only_what_the_text_can(name: str, expected: str) -> None:
    assert sanitised(name) == expected


def origin(places: list[list[int]]) -> str:
    stored = hlo_pb2.OriginalValueProto()
    for number, place in enumerate(places):
        element = stored.elements.add(shape_index=place)
        element.original_array.instruction_name = f"v{number}"
    return origin_text(stored)


def test_places_of_an_origin_that_have_none_are_empty_tuples() -> None:
    assert origin([[2], [0, 1]]) == '(((), {"v1"}), (), {"v0"})'
    assert origin([[9_999]]) == "(" + "(), " * 9_999 + '{"v0"})'


def test_empty_places_of_an_origin_are_limited_all_together() -> None:
    deep = origin([[9_999] * 100, [9_998] * 100, [9_997] * 100])
    assert deep.endswith("(), ...")
    assert deep.count("()") == 10_000
    assert origin([[6_000], [7_000, 6_000]]).count("()") == 10_000


def test_an_element_of_a_tuple_is_of_the_same_origin() -> None:
    module = f"""
      computations {{ id: 1 name: "main"
        instructions {{ id: 1 name: "p" opcode: "parameter" {F32_8}
          original_value {{ elements {{ original_array {{ instruction_name: "v" }} }} }} }}
        instructions {{ id: 2 name: "t" opcode: "tuple" operand_ids: 1
          original_value {{ call_hierarchy: "f" elements {{ shape_index: 1 }} }} }}
        instructions {{ id: 3 name: "g" opcode: "get-tuple-element" {F32_8} operand_ids: 2 }} }}
    """
    assert printed(module, "g").endswith('index=0, origin={{"v"}}')
    assert printed(module, "t").endswith(', origin={((), {}),["f"]}')


def test_a_fusion_names_its_operands_and_its_computation() -> None:
    module = f"""
      computations {{ id: 1 name: "fused" }}
      computations {{ id: 2 name: "main"
        instructions {{ id: 1 name: "p" opcode: "parameter" {F32_8} }}
        instructions {{ id: 2 name: "f.1" opcode: "fusion" fusion_kind: "kLoop" {F32_8}
          operand_ids: [1, 1, 1, 1, 1, 1] called_computation_ids: 1
          control_predecessor_ids: 1 backend_config: "{{}}"
          metadata {{ op_name: "jit(f)/add" }} }} }}"""
    operands = ", ".join(["f32[8]{0} %p"] * 5)
    assert printed(module, "f.1") == (
        f"%f.1 = f32[8]{{0}} fusion({operands}, /*index=5*/f32[8]{{0}} %p), kind=kLoop, "
        "calls=%fused, control-predecessors={%p}"
    )
    assert printed(module, "f.1", Style(backend_config=True)) == (
        "f.1 = f32[8]{0} fusion(p, p, p, p, p, p), kind=kLoop, calls=fused, backend_config={}"
    )
    assert printed(module, "p") == "%p = f32[8]{0} parameter(0)"


@pytest.mark.parametrize(
    ("opcode", "fields", "expected"),
    [
        ("iota", "dimensions: 1", "iota(), iota_dimension=1"),
        (
            "slice",
            "slice_dimensions { limit: 4 stride: 1 } slice_dimensions { start: 1 limit: 9 "
            "stride: 2 }",
            "slice(), slice={[0:4:1], [1:9:2]}",
        ),
        (
            "pad",
            "padding_config { dimensions { edge_padding_low: 1 } dimensions { "
            "edge_padding_high: 2 interior_padding: 3 } }",
            "pad(), padding=1_0_0x0_2_3",
        ),
        (
            "dot",
            "dot_dimension_numbers { lhs_contracting_dimensions: 1 rhs_contracting_dimensions: 0 } "
            "precision_config { operand_precision: [HIGHEST, PRECISION_DEFAULT] "
            "algorithm: ALG_DOT_BF16_BF16_F32_X3 }",
            "dot(), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
            "operand_precision={highest,default}, algorithm=dot_bf16_bf16_f32_x3",
        ),
        (
            "convolution",
            "window { dimensions { size: 3 stride: 2 padding_low: 1 window_dilation: 1 "
            "base_dilation: 1 } } convolution_dimension_numbers { input_feature_dimension: 2 "
            "input_spatial_dimensions: 1 kernel_input_feature_dimension: 1 "
            "kernel_output_feature_dimension: 2 kernel_spatial_dimensions: 0 "
            "output_feature_dimension: 2 output_spatial_dimensions: 1 } feature_group_count: 4",
            "convolution(), window={size=3 stride=2 pad=1_0}, dim_labels=b0f_0io->b0f, "
            "feature_group_count=4",
        ),
        (
            "all-to-all",
            "channel_id: 7 iota_collective_device_list { num_replica_groups: 2 "
            "num_devices_per_group: 4 iota_reshape_dims: [4, 2] iota_transpose_perm: [1, 0] } "
            "dimensions: 1",
            "all-to-all(), channel_id=7, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={1}",
        ),
        (
            "all-gather",
            "mesh_axes_replica_group_list { mesh { axes { name: 'a' size: 2 } axes { name: 'b' "
            "size: 4 } } axes { mesh_axis_index: 1 sub_axis_info { pre_size: 2 size: 2 } } } "
            "dimensions: 0 use_global_device_ids: true",
            "all-gather(), replica_groups=mesh['a'=2,'b'=4] {'b':(2)2}, dimensions={0}, "
            "use_global_device_ids=true",
        ),
        (
            "collective-permute",
            "source_target_pairs { target: 1 } source_target_pairs { source: 1 }",
            "collective-permute(), source_target_pairs={{0,1},{1,0}}",
        ),
        (
            "custom-call",
            "custom_call_target: 'a\"b' constrain_layout: true operand_shapes_with_layout { "
            "element_type: F32 } custom_call_has_side_effect: true output_operand_aliasing { "
            "output_shape_index: 0 } custom_call_api_version: API_VERSION_TYPED_FFI",
            'custom-call(), custom_call_target="a\\"b", operand_layout_constraints={f32[]}, '
            "custom_call_has_side_effect=true, output_to_operand_aliasing={{0}: (0, {})}, "
            "api_version=API_VERSION_TYPED_FFI",
        ),
        (
            "triangular-solve",
            "triangular_solve_options { lower: true transpose_a: ADJOINT }",
            "triangular-solve(), lower=true, transpose_a=ADJOINT",
        ),
        ("infeed", "infeed_config: 'secret'", "infeed()"),
        ("topk", "k: 3 largest: true", "topk(), k=3, largest=true, is_stable=false"),
        (
            "copy-start",
            "cross_program_prefetch_index: 0",
            "copy-start(), cross_program_prefetch_index=0",
        ),
        ("all-reduce", "", "all-reduce(), replica_groups={}"),
        (
            "add",
            "sharding { type: REPLICATED } frontend_attributes { map { key: 'b' value: 'x' } "
            "map { key: 'a' value: '{\"n\": 1}' } }",
            'add(), sharding={replicated}, frontend_attributes={a={"n": 1},b="x"}',
        ),
        (
            "exponential",
            "result_accuracy { tolerance { atol: 1e-5 rtol: 0.01 ulps: 2 } }",
            "exponential(), result_accuracy={tolerance={atol=1e-05,rtol=0.01,ulps=2}}",
        ),
    ],
)
def test_an_opcode_has_its_own_attributes(opcode: str, fields: str, expected: str) -> None:
    module = (
        f'computations {{ id: 1 instructions {{ id: 1 name: "i" opcode: "{opcode}" {F32} '
        f"{fields} }} }}"
    )
    assert printed(module, "i") == f"%i = f32[] {expected}"


def test_a_while_names_its_condition_before_its_body() -> None:
    module = f"""
      computations {{ id: 1 name: "b" }} computations {{ id: 2 name: "c" }}
      computations {{ id: 3 instructions {{ id: 1 name: "w" opcode: "while" {F32}
        called_computation_ids: [1, 2] }} }}"""
    assert printed(module, "w") == "%w = f32[] while(), condition=%c, body=%b"


@pytest.mark.parametrize(
    ("extra", "start", "done"),
    [
        ("", "all-to-all-start(f32[8]{0} %x), replica_groups={{0,1}}", "all-to-all-done"),
        (
            f'instructions {{ id: 12 name: "n" opcode: "negate" {F32_8} operand_ids: 10 }}',
            "async-start(f32[8]{0} %x), calls=%wrapped",
            "async-done",
        ),
    ],
)
def test_an_asynchronous_operation_shows_what_it_wraps(extra: str, start: str, done: str) -> None:
    module = f"""
      computations {{ id: 1 name: "wrapped" root_id: 11
        instructions {{ id: 10 name: "q" opcode: "parameter" {F32_8} }}
        instructions {{ id: 11 name: "a" opcode: "all-to-all" {F32_8} operand_ids: 10
          replica_groups {{ replica_ids: [0, 1] }} }} {extra} }}
      computations {{ id: 2
        instructions {{ id: 1 name: "x" opcode: "parameter" {F32_8} }}
        instructions {{ id: 2 name: "s" opcode: "async-start" {F32_8} operand_ids: 1
          called_computation_ids: 1 }}
        instructions {{ id: 3 name: "d" opcode: "async-done" {F32_8} operand_ids: 2 }} }}"""
    assert printed(module, "s") == f"%s = f32[8]{{0}} {start}"
    assert printed(module, "d") == f"%d = f32[8]{{0}} {done}(f32[8]{{0}} %s)"


def test_a_comparison_says_its_order_only_where_it_is_not_the_usual() -> None:
    module = f"""computations {{ id: 1
      instructions {{ id: 1 name: "x" opcode: "parameter" {F32} }}
      instructions {{ id: 2 name: "c" opcode: "compare" {F32} operand_ids: [1, 1]
        comparison_direction: "LT" comparison_type: "FLOAT" }}
      instructions {{ id: 3 name: "t" opcode: "compare" {F32} operand_ids: [1, 1]
        comparison_direction: "LT" comparison_type: "FLOATTOTALORDER" }} }}"""
    assert printed(module, "c").endswith("direction=LT")
    assert printed(module, "t").endswith("direction=LT, order=TOTAL")


def test_bytes_are_escaped_as_in_c() -> None:
    assert c_escaped("a\n\"'\\é\x01") == "a\\n\\\"\\'\\\\\\303\\251\\001"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": "}"}', True),
        ("{}", True),
        ("{} ", True),
        (' \n{"a": 1}\t', True),
        ("{}{}", False),
        ("{", False),
        ("x{}", False),
    ],
)
def test_a_json_object_is_one_pair_of_braces(text: str, expected: bool) -> None:
    assert is_json_object(text) is expected


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ('opcode: "custom-call" custom_call_schedule: 9 custom_call_api_version: 77',
         "schedule=9, api_version=77"),
        ('opcode: "convolution" conv_kind: 9', "convolution_kind=9"),
        ('opcode: "rng" distribution: 9', "distribution=9"),
        ('opcode: "exponential" result_accuracy { mode: 9 }', "result_accuracy={mode=9}"),
        ('opcode: "copy" sharding { named_sharding { reduction_op: 7 unreduced_axes {} '
         'mesh { axes { name: "a" size: 2 } } } }', "sharding={mesh['a'=2], unreduced7}"),
        ('opcode: "copy" sharding { type: OTHER tile_assignment_dimensions: [-1, 2] '
         "last_tile_dims: MANUAL tile_assignment_devices: [1, 2] }",
         "sharding={devices=[-1,2]1,2 last_tile_dims={manual}}"),
        ('opcode: "copy" original_value { elements { shape_index: 1099511627776 } }',
         "origin={()}"),
    ],
)  # fmt: skip
def test_what_only_newer_or_damaged_programs_hold_is_shown_as_far_as_it_is_known(
    instruction: str, expected: str
) -> None:
    module = f'computations {{ id: 1 instructions {{ id: 1 name: "x" {F32_8} {instruction} }} }}'
    assert printed(module, "x").endswith(expected)
