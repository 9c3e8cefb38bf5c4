"""The generic cost of programs equals what XLA itself reports to JAX, operand by operand."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from podscope_analyzers.hlo import Program
from podscope_analyzers.hlo.generic_analysis import GenericAnalysis
from podscope_protos.v1 import hlo_pb2

WRITTEN: Final = sorted((Path(__file__).parent / "hlo").glob("*.hlo"))


def ours(module: bytes) -> dict[str, float]:
    """Our sums over the entry computation by XLA's keys."""
    proto = hlo_pb2.HloProto(hlo_module=hlo_pb2.HloModuleProto.FromString(module))
    totals = GenericAnalysis(Program(1, proto)).program()
    assert totals is not None
    found = {
        "flops": totals.flops,
        "transcendentals": totals.transcendentals,
        "bytes accessed": totals.bytes,
    }
    places = {"out": totals.output} | {str(i): part for i, part in enumerate(totals.operands)}
    for name, part in places.items():
        for at, size in part.items():
            found[f"bytes accessed{name}{{{','.join(map(str, at))}}}"] = size
    return found


def wanted(reported: dict[str, Any]) -> dict[str, float]:
    keys = ("flops", "transcendentals", "bytes accessed")
    return {key: value for key, value in reported.items() if key.startswith(keys)}


def assert_equal(got: dict[str, float], expected: dict[str, float], label: str) -> None:
    for key, value in expected.items():
        assert got.get(key, 0.0) == pytest.approx(value, rel=1e-6), (label, key)


def test_programs_of_jax_cost_what_xla_says(jax_programs: Path) -> None:
    files = sorted(jax_programs.glob("*.pb"))
    with_flops = 0
    for file in files:
        expected = wanted(json.loads(file.with_suffix(".json").read_text()))
        assert_equal(ours(file.read_bytes()), expected, file.name)
        with_flops += expected.get("flops", 0) > 0
    assert with_flops > 100


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.stem)
def test_written_modules_cost_what_xla_says(file: Path) -> None:
    parse = pytest.importorskip("jaxlib._hlo").hlo_module_from_text
    library = pytest.importorskip("jaxlib._jax")
    client = pytest.importorskip("jax").devices("cpu")[0].client
    module = parse(file.read_text())
    expected = wanted(dict(library.hlo_module_cost_analysis(client, module)))
    assert_equal(ours(module.as_serialized_hlo_module_proto()), expected, file.stem)
