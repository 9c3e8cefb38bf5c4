"""Names of framework operations."""

import pytest

from podscope_analyzers.op_names import (
    FrameworkOp,
    OpCategory,
    display_name,
    is_infeed_enqueue,
    is_outside_compilation,
    name_scopes,
    parse_op_name,
)

TF = OpCategory.TENSORFLOW
JAX = OpCategory.JAX
DATA = OpCategory.TF_DATA
UNKNOWN = OpCategory.UNKNOWN
INFEED = "input_pipeline_task0/while/body/_1/InfeedQueue/enqueue/1"


@pytest.mark.case(
    "B1", "B2", "B3", "B4", "B5", "B6", "B8", "B9", "B10", "B11", "B12", "B13", "B14", "B15"
)
@pytest.mark.parametrize(
    ("full_name", "category", "name", "op_type"),
    [
        pytest.param("OpName:OpType", TF, "OpName", "OpType", id="B1"),
        pytest.param("OpName:_InternalOpType", TF, "OpName", "_InternalOpType", id="B2"),
        pytest.param("Iterator::Batch", DATA, "Iterator::Batch", "Dataset", id="B3"),
        pytest.param("MyTraceMe", UNKNOWN, "MyTraceMe", "", id="B4-plain"),
        pytest.param("RunStep/Server:54635", UNKNOWN, "RunStep/Server:54635", "", id="B4-port"),
        pytest.param("XLA::StartProgram", UNKNOWN, "XLA::StartProgram", "", id="B4-scope"),
        pytest.param("SessionRun ", UNKNOWN, "SessionRun ", "", id="B5"),
        pytest.param(f"{INFEED}:InfeedEnqueueTuple", TF, INFEED, "InfeedEnqueueTuple", id="B6"),
        pytest.param("op_name:op_type", JAX, "op_name", "op_type", id="B8"),
        pytest.param("op_name/op_type:", JAX, "op_name/op_type", "op_type", id="B9"),
        pytest.param(
            "op_name/op_type[array=([])]:",
            JAX,
            "op_name/op_type[array=([])]",
            "op_type",
            id="B9-parameters",
        ),
        pytest.param("op_name:op_type[array=([])]", JAX, "op_name", "op_type", id="B10"),
        pytest.param("namescope/OpName_1:", TF, "namescope/OpName_1", "OpName", id="B11"),
        pytest.param("OpName_a:", TF, "OpName_a", "OpName_a", id="B12"),
        pytest.param(
            "scope-1/scope2/OpName:OpType", TF, "scope-1/scope2/OpName", "OpType", id="B13"
        ),
        pytest.param(
            "namescope.1/namespace__opname2d:namespace__opname2d",
            JAX,
            "namescope.1/namespace__opname2d",
            "namespace__opname2d",
            id="B14",
        ),
        pytest.param("path/to/name:OpType", TF, "path/to/name", "OpType", id="B15"),
        pytest.param(":", TF, "", "", id="a lone colon"),
        pytest.param("scope/:", TF, "scope/", "", id="no last component"),
        pytest.param("scope/_12:", TF, "scope/_12", "", id="a number alone"),
        pytest.param("Add_-1:", TF, "Add_-1", "Add", id="a negative number at the end"),
        pytest.param("Add_ +1\n:", TF, "Add_ +1\n", "Add", id="a number among blanks"),
        pytest.param("Add_- 1:", TF, "Add_- 1", "Add_- 1", id="a blank within the number"),
        pytest.param("Add_0x1:", TF, "Add_0x1", "Add_0x1", id="no decimal number"),
        pytest.param(f"Add_{2**63 - 1}:", TF, f"Add_{2**63 - 1}", "Add", id="the last integer"),
        pytest.param(f"Add_{2**63}:", TF, f"Add_{2**63}", f"Add_{2**63}", id="no integer"),
        pytest.param(f"Add_-{2**63}:", TF, f"Add_-{2**63}", "Add", id="the first integer"),
        pytest.param("A_" + "9" * 9999 + ":", TF, "A_" + "9" * 9999, "A_" + "9" * 9999, id="long"),
        pytest.param("a b:MatMul", UNKNOWN, "a b:MatMul", "", id="a blank in the name"),
        pytest.param("Iteratorx::Batch", UNKNOWN, "Iteratorx::Batch", "", id="not Iterator"),
        pytest.param("a:b\n", UNKNOWN, "a:b\n", "", id="a line break ends no type"),
    ],
)
def test_a_name_is_parsed_into_category_name_and_type(
    full_name: str, category: OpCategory, name: str, op_type: str
) -> None:
    assert parse_op_name(full_name) == FrameworkOp(category, name, op_type)


@pytest.mark.case("B7")
@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("MemcpyHToD", OpCategory.MEMCPY_HOST_TO_DEVICE),
        ("MemcpyDToH", OpCategory.MEMCPY_DEVICE_TO_HOST),
        ("MemcpyDToD", OpCategory.MEMCPY_DEVICE_TO_DEVICE),
        ("MemcpyHToH", OpCategory.MEMCPY_HOST_TO_HOST),
    ],
)
def test_copies_have_their_own_categories(text: str, category: OpCategory) -> None:
    assert parse_op_name(text) == FrameworkOp(category, text, text)
    assert parse_op_name(text.upper()).category == category
    assert parse_op_name(f"{text} of a tensor") == FrameworkOp(
        category, f"{text} of a tensor", text
    )


def test_other_spellings_of_copies_are_unknown() -> None:
    assert parse_op_name("MemcpyH2D").category == UNKNOWN


@pytest.mark.case("B3", "B4", "B5", "B15")
@pytest.mark.parametrize(
    ("full_name", "shown"),
    [
        pytest.param("Iterator::Batch::Map::TfRecord", "Iterator::TfRecord", id="B3-nested"),
        pytest.param("Iterator::Batch", "Iterator::Batch", id="B3"),
        pytest.param("MyTraceMe", "MyTraceMe", id="B4"),
        pytest.param("SessionRun ", "SessionRun", id="B5"),
        pytest.param("path/to/name:OpType", "OpType", id="B15"),
    ],
)
def test_an_event_is_shown_by_its_type_or_name(full_name: str, shown: str) -> None:
    assert display_name(parse_op_name(full_name)) == shown


@pytest.mark.case("B13")
def test_scopes_are_all_but_the_last_component() -> None:
    assert name_scopes(parse_op_name("scope-1/scope2/OpName:OpType").name) == ["scope-1", "scope2"]


@pytest.mark.case("B6")
def test_only_tensorflow_operations_enqueue_the_infeed() -> None:
    assert is_infeed_enqueue(parse_op_name(f"{INFEED}:InfeedEnqueueTuple"))
    assert not is_infeed_enqueue(parse_op_name("a/b:MatMul"))
    assert not is_infeed_enqueue(parse_op_name("InfeedEnqueueTuple"))


def test_host_transfers_are_outside_compilation() -> None:
    assert is_outside_compilation("a/b:XlaSendToHost", "")
    assert is_outside_compilation("x:Y", "%send-done.3 = ... is_host_transfer=true")
    assert not is_outside_compilation("x:Y", "%send-done.3 = ... is_host_transfer=false")
