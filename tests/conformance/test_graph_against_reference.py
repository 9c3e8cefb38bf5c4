"""Graphs as DOT have the boxes, clusters and lines of the reference's; colours are our own."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from podscope_analyzers.hlo import Program
from podscope_analyzers.hlo.choosing import required_node
from podscope_analyzers.hlo.graph.dot import dot_text
from podscope_analyzers.hlo.graph.neighbourhood import adjacent_names
from podscope_protos.v1 import hlo_pb2

Reference = Callable[..., str]
_BOX: Final = re.compile(
    r'^(\S+) \[label=<(.*?)>, shape=(\w+), tooltip="(.*?)", style="(.*?)",', re.S | re.M
)
_CLUSTER: Final = re.compile(r"^subgraph (\S+) \{.*?label = <(.*?)>;\nlabelloc", re.S | re.M)
_LINE: Final = re.compile(r"^(\S+) -> (\S+) \[(.*?)\];$", re.M)
_STYLESHEET: Final = re.compile(r"stylesheet=<\n.*?\n>\n", re.S)


def structure(dot: str) -> tuple[list[str], list[Any], list[str], list[Any]]:
    """Title, boxes, clusters, and lines between boxes by what stands in them."""
    dot = _STYLESHEET.sub("", dot)
    title = re.search(r"label = <(.*?)>;", dot)
    assert title is not None
    # Constants of several lines are on one line here, which DOT draws the same.
    boxes = {
        number: (re.sub(r"\s+", "", label), *more) for number, label, *more in _BOX.findall(dot)
    }
    clusters: dict[str, str] = dict(_CLUSTER.findall(dot))
    lines = sorted(
        (
            boxes.get(source, (source,)),
            boxes.get(target, (target,)),
            re.sub(r"cluster_\d+", lambda one: clusters.get(one[0], ""), how),
        )
        for source, target, how in _LINE.findall(dot)
    )
    # The callers of a computation have no order.
    words = sorted(re.split(r"[ ,]+|<[^>]*>", title[1]))
    return words, sorted(boxes.values()), sorted(clusters.values()), lines


def test_neighbourhoods_are_the_references(
    jax_programs: Path, xprof_graph_viewer: Reference
) -> None:
    compared = 0
    for file in sorted(jax_programs.glob("*.pb")):
        proto = hlo_pb2.HloProto()
        proto.hlo_module.ParseFromString(file.read_bytes())
        program = Program(1, proto)
        names = sorted(one.name for one in program.by_id.values())
        for width, name in enumerate(names[:: max(1, len(names) // 3)][:3], start=1):
            merged = compared % 3 == 1
            options = {"type": "graph", "format": "dot", "merge_fusion": int(merged)}
            expected = xprof_graph_viewer(proto, node_name=name, graph_width=width, **options)
            node = required_node(program, name, computations_first=True)
            got = dot_text(program, node, width, opens_fusions=not merged)
            assert structure(got) == structure(expected), f"{file.name} {name} {width}"
            compared += 1
    assert compared > 300


def test_neighbours_are_the_references(jax_programs: Path, xprof_graph_viewer: Reference) -> None:
    for file in sorted(jax_programs.glob("*.compiled.pb")):
        proto = hlo_pb2.HloProto()
        proto.hlo_module.ParseFromString(file.read_bytes())
        program = Program(1, proto)
        computations = {one.name for one in proto.hlo_module.computations}
        names = sorted({one.name for one in program.by_id.values()} - computations)
        for name in names[:: max(1, len(names) // 3)]:
            expected = json.loads(xprof_graph_viewer(proto, type="adj_nodes", node_name=name))
            node = required_node(program, name)
            assert isinstance(node, hlo_pb2.HloInstructionProto)
            operands, users = adjacent_names(program, node)
            got = {"operand_names": sorted(operands), "consumer_names": sorted(users)}
            assert got == {key: sorted(set(found)) for key, found in expected.items()}, name
