"""Programs whose numbers do not fit together cost themselves their texts, not the host its ops."""

import json
from typing import Any

import pytest
from google.protobuf import text_format

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope
from podscope_protos.v1 import hlo_pb2, xplane_pb2

F32 = "shape { element_type: F32 dimensions: 8 layout { minor_to_major: 0 } }"
MOST = (1 << 63) - 1
SOUND = f'instructions {{ id: 1 name: "sound" opcode: "after-all" {F32} }}'
DAMAGED = {
    "tiles of negative sizes": f"""opcode: "copy" {F32} sharding {{ type: OTHER
        tile_assignment_dimensions: [-2, -2] tile_assignment_devices: [0, 1, 2, 3]
        last_tile_dims: [MANUAL, REPLICATED] }}""",
    "an iota of negative sizes": f"""opcode: "copy" {F32} sharding {{ type: OTHER
        tile_assignment_dimensions: [2, 2] iota_reshape_dims: [-2, -2]
        iota_transpose_perm: [1, 0] last_tile_dims: [MANUAL, REPLICATED] }}""",
    "a shape of negative sizes": 'opcode: "sort" operand_ids: 2 '
    "shape { element_type: F32 dimensions: [-8] layout { minor_to_major: 5 } }",
    "more elements than a column holds": 'opcode: "negate" operand_ids: 2 shape { element_type: '
    f"F32 dimensions: [{MOST}, {MOST}] layout {{ minor_to_major: [1, 0] }} }}",
    "groups by axes that the mesh does not have": f"""opcode: "all-reduce" {F32} operand_ids: 2
        mesh_axes_replica_group_list {{ axes {{ mesh_axis_index: 9 }} }}""",
    "groups of negative sizes": f"""opcode: "all-gather" {F32} operand_ids: 2
        iota_collective_device_list {{ num_replica_groups: -3 num_devices_per_group: -7
        iota_reshape_dims: [-4, 0] iota_transpose_perm: [5] }}""",
    "groups of different sizes": f"""opcode: "reduce-scatter" {F32} operand_ids: 2
        replica_groups {{ replica_ids: [0, 1] }} replica_groups {{ replica_ids: [-1] }}
        replica_groups {{}} dimensions: 9""",
    "a constant of a type that has no values": """opcode: "constant"
        shape { element_type: TOKEN } literal { shape { element_type: TOKEN } }""",
    "a choice between nothing": f'opcode: "conditional" {F32} operand_ids: 2',
    "operands that are not there": f'opcode: "dot" {F32} operand_ids: [77, 78]',
    "a fusion in itself": f'opcode: "fusion" fusion_kind: "kLoop" {F32} called_computation_ids: 1',
}


def program(instructions: str) -> bytes:
    text = f'hlo_module {{ name: "m" computations {{ id: 1 root_id: 2 {instructions} }} }}'
    return text_format.Parse(text, hlo_pb2.HloProto()).SerializeToString()


def host(device: str, instructions: str) -> HostPartial:
    """A run of ``odd`` in a damaged program, and of ``sound`` in another one."""
    space = xplane_pb2.XSpace(hostnames=["h0"])
    metadata, plane = space.planes.add(name="/host:metadata"), space.planes.add(name=device)
    metadata.stat_metadata[1].id, metadata.stat_metadata[1].name = 1, "Hlo Proto"
    for key, raw in ((1, program(instructions)), (2, program(SOUND))):
        one = metadata.event_metadata[key]
        one.id, one.name = key, f"m({key})"
        one.stats.add(metadata_id=1, bytes_value=raw)
    for key, name in enumerate(("hlo_op", "program_id", "hlo_category", "symbol_id"), start=1):
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    line = plane.lines.add(id=1, name="XLA Ops")
    for key, name in ((1, "odd"), (2, "sound")):
        described = plane.event_metadata[key]
        described.id, described.name = key, name
        event = line.events.add(metadata_id=key, offset_ps=key * 1000, duration_ps=900)
        if device == "/device:TPU:0":
            described.stats.add(metadata_id=2, uint64_value=key)
            described.stats.add(metadata_id=3, str_value="loop fusion")
            described.stats.add(metadata_id=4, uint64_value=key)
        else:
            event.stats.add(metadata_id=1, str_value=name)
            event.stats.add(metadata_id=2, uint64_value=key)
    return analyze_host(space.SerializeToString(), "h0")


@pytest.mark.parametrize("fields", DAMAGED.values(), ids=DAMAGED.keys())
@pytest.mark.parametrize("device", ["/device:GPU:0", "/device:TPU:0"])
def test_a_damaged_program_leaves_the_host_its_operations(device: str, fields: str) -> None:
    given = f"""instructions {{ id: 1 name: "odd" {fields} }}
        instructions {{ id: 2 name: "p" opcode: "parameter"
        shape {{ element_type: F32 dimensions: -8 layout {{}} }} }}"""
    partial = host(device, given)
    ops = partial.device_ops
    names = ops.text_column("name")
    times = dict(zip(names, ops.column("self_time_ps").tolist(), strict=True))
    assert times["sound"] == 900
    assert "odd" in names
    if device == "/device:GPU:0":
        assert times["odd"] == 900
        assert ops.text("long_name", names.index("sound")) == "%sound = f32[8]{0} after-all()"
    for tool in TOOLS:
        result: Any = run_tool(tool, [partial], Scope(["h0"])).to_json()
        assert json.loads(json.dumps(result))["tool"] == tool


def test_an_instruction_of_an_impossible_size_has_a_text_and_no_cost() -> None:
    shape = f"element_type: F32 dimensions: [{MOST}, {MOST}] layout {{ minor_to_major: [1, 0] }}"
    ops = host(
        "/device:GPU:0",
        f"""instructions {{ id: 1 name: "odd" opcode: "negate" operand_ids: 2
        shape {{ {shape} }} }} instructions {{ id: 2 name: "p" opcode: "parameter" {F32} }}""",
    ).device_ops
    row = ops.text_column("name").index("odd")
    text = f"%odd = f32[{MOST},{MOST}]{{1,0}} negate(f32[8]{{0}} %p)"
    assert ops.text("long_name", row) == text
    assert (ops.column("flops")[row], ops.column("bytes_accessed")[row]) == (0, 0)


def test_below_an_operation_are_no_more_than_the_programs_instructions() -> None:
    """Each of three fusions is in itself and in the others: without an end there are no ends."""
    fusions = [
        f'instructions {{ id: {at} name: "{name}" opcode: "fusion" fusion_kind: "kLoop" {F32} '
        "called_computation_ids: [1, 1, 1] }"
        for at, name in enumerate(("odd", "second", "third"), start=1)
    ]
    ops = host("/device:TPU:0", " ".join(fusions)).device_ops
    below = [name for name in ops.text_column("name") if name in ("odd", "second", "third")]
    assert len(below) == 1 + 3
