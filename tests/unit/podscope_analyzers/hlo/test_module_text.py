"""Whole modules as text, by hand-worked cases of XLA's form."""

from dataclasses import replace

from google.protobuf import text_format

from podscope_analyzers.hlo import Program
from podscope_analyzers.hlo.payloads import put_back
from podscope_analyzers.hlo.text import LONG, SHORT, ModuleText, Style, module_text
from podscope_protos.v1 import hlo_pb2

SCALAR = "shape { element_type: F32 layout {} }"
PARAMETERS = (
    "program_shape { parameters { element_type: F32 layout {} } "
    'result { element_type: F32 layout {} } parameter_names: "p" }'
)
FRAMES = """stack_frame_index {
    file_names: ["unused.py", "it's.py"] function_names: ["f", "g"]
    file_locations { file_name_id: 1 function_name_id: 1 line: 9 }
    file_locations { file_name_id: 2 function_name_id: 1 line: 3 end_line: 4 column: 5
                     end_column: 6 }
    file_locations { file_name_id: 2 function_name_id: 2 line: 7 }
    stack_frames { file_location_id: 1 }
    stack_frames { file_location_id: 2 parent_frame_id: 4 }
    stack_frames { file_location_id: 2 parent_frame_id: 4 }
    stack_frames { file_location_id: 3 }
}"""


def printed(text: str, style: Style) -> str:
    module = text_format.Parse(text, hlo_pb2.HloModuleProto())
    return module_text(Program(1, hlo_pb2.HloProto(hlo_module=module)), style)


def computation(name: str, number: int, root: int, *instructions: str) -> str:
    inner = " ".join(f"instructions {{ {SCALAR} {one} }}" for one in instructions)
    return f'computations {{ name: "{name}" id: {number} root_id: {root} {PARAMETERS} {inner} }}'


PARAMETER = 'name: "p" opcode: "parameter" id: 1'


def test_callees_come_first_and_operands_before_their_users() -> None:
    main = computation(
        "main",
        1,
        4,
        'name: "sum" opcode: "add" id: 4 operand_ids: [3, 2]',
        'name: "called" opcode: "call" id: 3 operand_ids: 2 called_computation_ids: 2',
        'name: "x" opcode: "parameter" id: 2',
    )
    inner = computation("inner", 2, 11, 'name: "p" opcode: "parameter" id: 11')
    text = printed(
        f'name: "m" entry_computation_id: 1 {main} {inner} '
        "host_program_shape { parameters { element_type: F32 } result { element_type: F32 } }",
        SHORT,
    )
    assert text.split("\n") == [
        "HloModule m, entry_computation_layout={(f32[])->f32[]}",
        "",
        "inner {",
        "  ROOT p = f32[] parameter(0)",
        "}",
        "",
        "ENTRY main {",
        "  x = f32[] parameter(0)",
        "  called = f32[] call(x), to_apply=inner",
        "  ROOT sum = f32[] add(called, x)",
        "}",
        "",
        "",
    ]


def test_a_schedule_orders_the_instructions() -> None:
    main = computation(
        "main", 1, 3, PARAMETER, *(f'name: "n{i}" opcode: "negate" id: {i}' for i in (2, 3))
    )
    schedule = "schedule { sequences { key: 1 value { instruction_ids: [1, 3, 2] } } }"
    lines = printed(f'name: "m" {main} {schedule}', LONG).split("\n")
    assert lines[0] == "HloModule m, is_scheduled=true"
    assert [line.split(" = ")[0].split()[-1] for line in lines[3:6]] == ["%p", "%n3", "%n2"]
    assert lines[2] == "%main (p: f32[]) -> f32[] {"


def test_control_dependencies_are_walked_before_operands() -> None:
    main = computation(
        "main",
        1,
        4,
        PARAMETER,
        'name: "late" opcode: "negate" id: 2 operand_ids: 1',
        'name: "early" opcode: "negate" id: 3 operand_ids: 1',
        'name: "root" opcode: "negate" id: 4 operand_ids: 2 control_predecessor_ids: 3',
    )
    lines = printed(f'name: "m" {main}', LONG).split("\n")
    assert [line.split(" = ")[0].split()[-1] for line in lines[3:7]] == [
        "%p",
        "%early",
        "%late",
        "%root",
    ]
    assert lines[6].endswith("negate(%late), control-predecessors={%early}")


def test_frames_are_numbered_by_first_use_and_each_once() -> None:
    main = computation(
        "main",
        1,
        3,
        PARAMETER,
        'name: "a" opcode: "negate" id: 2 metadata { op_name: "x" stack_frame_id: 3 }',
        'name: "b" opcode: "negate" id: 3 metadata { stack_frame_id: 2 source_line: 8 }',
    )
    text = printed(f'name: "m" {main} {FRAMES}', replace(SHORT, metadata=True))
    assert text.split("\n")[2:24] == [
        "FileNames",
        '1 "it\\\'s.py"',
        "",
        "FunctionNames",
        '1 "g"',
        '2 "f"',
        "",
        "FileLocations",
        "1 {file_name_id=1 function_name_id=1 line=7 end_line=0 column=0 end_column=0}",
        "2 {file_name_id=1 function_name_id=2 line=3 end_line=4 column=5 end_column=6}",
        "",
        "StackFrames",
        "1 {file_location_id=1 parent_frame_id=1}",
        "2 {file_location_id=2 parent_frame_id=2}",
        "",
        "",
        "main {",
        "  p = f32[] parameter(0)",
        '  a = f32[] negate(), metadata={op_name="x" stack_frame_id=2}',
        "  ROOT b = f32[] negate(), metadata={source_line=8 stack_frame_id=2}",
        "}",
        "",
    ]


def test_frames_that_call_each_other_end() -> None:
    main = computation("main", 1, 1, f"{PARAMETER} metadata {{ stack_frame_id: 1 }}")
    frames = (
        "stack_frame_index { stack_frames { parent_frame_id: 2 } "
        "stack_frames { parent_frame_id: 1 } }"
    )
    text = printed(f'name: "m" {main} {frames}', replace(SHORT, metadata=True))
    assert "ROOT p = f32[] parameter(0), metadata={stack_frame_id=2}" in text


def test_what_an_asynchronous_call_stands_for_is_not_printed_again() -> None:
    main = computation(
        "main",
        1,
        3,
        PARAMETER,
        'name: "s" opcode: "async-start" id: 2 operand_ids: 1 called_computation_ids: 2',
        'name: "d" opcode: "async-done" id: 3 operand_ids: 2',
    )
    wrapped = computation(
        "wrapped",
        2,
        12,
        'name: "q" opcode: "parameter" id: 11',
        'name: "c" opcode: "custom-call" id: 12 operand_ids: 11 custom_call_target: "t"',
    )
    text = printed(f'name: "m" {main} {wrapped}', SHORT)
    assert 's = f32[] custom-call-start(p), custom_call_target="t"' in text
    assert "ROOT d = f32[] custom-call-done(s)" in text
    assert "wrapped" not in text


def test_large_constants_are_shown_in_full_text_only() -> None:
    numbers = ", ".join(map(str, range(12)))
    constant = (
        'computations { name: "main" id: 1 root_id: 1 instructions { name: "c" id: 1 '
        f'opcode: "constant" shape {{ element_type: S32 dimensions: 12 }} '
        f"literal {{ shape {{ element_type: S32 dimensions: 12 }} s32s: [{numbers}] }} }} }}"
    )
    assert "constant({...})" in printed(f'name: "m" {constant}', SHORT)
    assert f"constant({{{numbers}}})" in printed(f'name: "m" {constant}', LONG)


def test_aliases_and_donors_are_sorted() -> None:
    text = printed(
        """name: "m"
        input_output_alias { entries { output_shape_index: 1 parameter_number: 0 kind: MUST_ALIAS }
                             entries { output_shape_index: 0 parameter_number: 1 kind: MAY_ALIAS } }
        buffer_donor { entries { parameter_number: 2 parameter_shape_index: 1 } }""",
        SHORT,
    )
    assert text == (
        "HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, must-alias) }, "
        "buffer_donor={ (2, {1}) }\n\n"
    )


def test_computations_come_in_the_order_in_which_calls_are_stored() -> None:
    # Both ``main`` and ``body`` call two computations, the one that the root needs last first.
    def calling(name: str, number: int, first: int, second: int) -> str:
        at = 10 * number
        return computation(
            name,
            number,
            at + 4,
            f'name: "p{number}" opcode: "parameter" id: {at + 1}',
            f'name: "a{number}" opcode: "call" id: {at + 2} operand_ids: {at + 1} '
            f"called_computation_ids: {first}",
            f'name: "b{number}" opcode: "call" id: {at + 3} operand_ids: {at + 1} '
            f"called_computation_ids: {second}",
            f'name: "r{number}" opcode: "add" id: {at + 4} operand_ids: [{at + 3}, {at + 2}]',
        )

    leaves = " ".join(
        computation(name, number, 10 * number, f'name: "q" opcode: "parameter" id: {10 * number}')
        for name, number in (("of_main", 3), ("late", 4), ("early", 5))
    )
    module = f"{calling('main', 1, 3, 2)} {calling('body', 2, 4, 5)} {leaves}"
    text = printed(f'name: "m" entry_computation_id: 1 {module}', SHORT)
    opened = [line.split()[-2] for line in text.split("\n") if line.endswith("{")]
    # The root's operands, walked first to last, would give the opposite.
    assert opened == ["of_main", "late", "early", "body", "main"]


def test_any_part_of_a_text_is_that_part_of_the_whole() -> None:
    called = computation("inner", 1, 1, PARAMETER)
    call = 'name: "c" opcode: "call" id: 3 operand_ids: 2 called_computation_ids: 1'
    text = called + computation("main", 2, 3, 'name: "q" opcode: "parameter" id: 2', call)
    module = text_format.Parse(
        f'name: "m" entry_computation_id: 2 {text}', hlo_pb2.HloModuleProto()
    )
    for style in (SHORT, replace(LONG, metadata=True)):
        parts = ModuleText(Program(1, hlo_pb2.HloProto(hlo_module=module)), style)
        whole = list(parts.lines())
        assert len(parts) == len(whole) == 12
        for begin in range(len(whole) + 1):
            for end in range(begin, len(whole) + 1):
                assert list(parts.lines(begin, end)) == whole[begin:end]
        instruction = module.computations[1].instructions[1]
        assert "ROOT" in whole[parts.line_of(instruction) or 0]
        assert parts.line_of(hlo_pb2.HloInstructionProto(id=9)) is None


def test_notes_that_instructions_share_are_put_back() -> None:
    first = f'{PARAMETER} backend_config: "old" backend_config_payload {{ id: 1 }}'
    second = 'name: "q" opcode: "parameter" id: 2 backend_config_payload { value: "{}" }'
    third = 'name: "r" opcode: "negate" id: 3 metadata { metadata_payload { id: 0 } }'
    beyond = 'name: "s" opcode: "negate" id: 4 backend_config_payload { id: 7 }'
    main = computation("main", 1, 4, first, second, third, beyond)
    text = f'name: "m" payloads: ["x", "{{\\"k\\":1}}"] {main}'
    module = text_format.Parse(text, hlo_pb2.HloModuleProto())
    put_back(module)
    lines = module_text(
        Program(1, hlo_pb2.HloProto(hlo_module=module)), replace(SHORT, metadata=True)
    ).split("\n")
    assert lines[3:7] == [
        '  p = f32[] parameter(0), backend_config={"k":1}',
        "  q = f32[] parameter(0), backend_config={}",
        '  r = f32[] negate(), metadata={metadata_payload="x"}',
        "  ROOT s = f32[] negate()",
    ]
