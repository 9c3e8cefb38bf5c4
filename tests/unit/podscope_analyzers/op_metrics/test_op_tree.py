"""Trees of operations: what stands below what."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.host_databases import device_op_database
from podscope_analyzers.op_metrics.op_tree import Node, OpTree, scopes
from podscope_analyzers.prepared import PreparedSpace

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]


def tree(make_planes: MakePlanes, grouping: str, *ops: tuple[str, str, int, str]) -> OpTree:
    """Of operations (name, category, program, framework name), one after the other."""
    metadata, events = {}, []
    for number, (name, category, program, framework) in enumerate(ops, start=1):
        stats = {
            "program_id": program,
            "symbol_id": number,
            "hlo_category": category,
            "tf_op": framework,
        }
        metadata[name] = {"stats": stats}
        events.append((name, 100 * number, 10))
    plane = {"name": "/device:TPU:0", "metadata": metadata, "lines": {"XLA Ops": events}}
    database = device_op_database(make_planes([plane]), Programs({}))
    return OpTree(database, cast("Any", grouping), {1: "main", 2: "other"}, own=False)


def names(node: Node) -> list[str]:
    return [child.name for child in node.children.values()]


@pytest.mark.case("2.O35")
def test_categories_of_a_program_stand_side_by_side(make_planes: MakePlanes) -> None:
    found = tree(make_planes, "category", ("add", "fusion", 1, ""), ("dot", "convolution", 1, ""))
    assert names(found.root) == ["fusion", "convolution"]


@pytest.mark.case("2.O36")
def test_programs_stand_side_by_side(make_planes: MakePlanes) -> None:
    found = tree(make_planes, "program", ("add", "fusion", 1, ""), ("dot", "fusion", 2, ""))
    assert names(found.root) == ["main", "other"]


@pytest.mark.case("2.O37")
def test_what_a_sparse_core_did_stands_below_the_operation_that_asked(
    make_planes: MakePlanes,
) -> None:
    link = {"offload_core_id": ("uint", 0), "tc_offload_start_id": 5}
    about = {"stats": {"program_id": 1, "symbol_id": 1, "hlo_category": "fusion"}}
    tensor_core = {
        "name": "/device:TPU:0",
        "metadata": {"fusion_tc": about},
        "lines": {"XLA Ops": [("fusion_tc", 0, 50, link)]},
    }
    sparse_core = {
        "name": "/device:TPU:0 SparseCore 0",
        "metadata": {"gather_sc": {"stats": {"program_id": 1, "symbol_id": 2}}},
        "lines": {
            "Sparse Core Modules": [("module", 0, 100, link)],
            "Sparse Core Ops": [("gather_sc", 0, 10)],
        },
    }
    database = device_op_database(make_planes([tensor_core, sparse_core]), Programs({}))
    node = OpTree(database, "category", {}, own=False).root
    for name in ("fusion", "fusion_tc", "fusion_tc"):
        (node,) = [child for child in node.children.values() if child.name == name]
    assert "gather_sc" in names(node)


@pytest.mark.case("2.O38")
def test_scopes_make_a_tree(make_planes: MakePlanes) -> None:
    found = tree(
        make_planes,
        "provenance",
        ("conv1", "fusion", 1, "layer1/block1/conv1"),
        ("conv2", "fusion", 1, "layer1/block1/conv2"),
        ("dense", "fusion", 1, "layer2/dense"),
    )
    (main,) = found.root.children.values()
    assert (main.name, names(main)) == ("main", ["layer1", "layer2"])
    (block,) = next(iter(main.children.values())).children.values()
    assert (block.name, names(block)) == ("block1", ["conv1", "conv2"])


@pytest.mark.case("2.O39")
@pytest.mark.parametrize(
    ("provenance", "count"), [("my_op1/my_op2/my_op3:xyz", 3), ("my_op", 1), ("", 0)]
)
def test_a_framework_name_has_parts(provenance: str, count: int) -> None:
    assert len(scopes(provenance)) == count
