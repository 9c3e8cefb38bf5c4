"""HLO modules as text equal what the reference prints of them, character by character."""

import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from podscope_analyzers.hlo import Program, read_programs
from podscope_analyzers.hlo.text import LONG, SHORT, Style, module_text
from podscope_analyzers.prepare import prepare
from podscope_analyzers.xspace import open_xspace
from podscope_protos.v1 import hlo_pb2

STYLES: tuple[tuple[dict[str, Any], Style], ...] = (
    ({"type": "short_txt"}, SHORT),
    ({"type": "long_txt"}, LONG),
    ({"type": "short_txt", "show_metadata": 1}, replace(SHORT, metadata=True)),
    ({"type": "long_txt", "show_metadata": 1}, replace(LONG, metadata=True)),
)
WRITTEN = sorted((Path(__file__).parent / "hlo").glob("*.hlo"))
WITH_PROGRAMS = ("jax_2mb", "jax_mh4", "mi300_conv08", "tf_jit", "tpu_inference_2")

Reference = Callable[..., str]


def different(proto: hlo_pb2.HloProto, reference: Reference) -> list[tuple[dict[str, Any], str]]:
    """Where the reference and we disagree on a program: the style, and our first other line."""
    found = []
    program = Program(1, proto)
    for options, style in STYLES:
        expected = reference(proto, **options).split("\n")
        got = module_text(program, style).split("\n")
        if expected != got:
            pairs = zip(expected, [*got, "nothing"], strict=False)
            line = next((f"{a} != {b}" for a, b in pairs if a != b), "more lines")
            found.append((options, line))
    return found


def programs_of(file: Path) -> list[Program]:
    return list(read_programs(prepare(open_xspace(file.read_bytes()))))


@pytest.mark.parametrize("capture", WITH_PROGRAMS)
def test_the_short_text_equals_the_stored_one(capture: str, reference_dir: Path) -> None:
    packed = (reference_dir / "golden" / capture / "graph_viewer_short_txt.txt.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    file = sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))[0]
    name = text.split()[1].removesuffix(",")
    ours = [module_text(one, SHORT) for one in programs_of(file) if one.module.name == name]
    assert text in ours


@pytest.mark.parametrize("capture", WITH_PROGRAMS)
def test_every_program_of_a_capture_prints_like_the_reference(
    capture: str, reference_dir: Path, xprof_graph_viewer: Reference
) -> None:
    for file in sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb")):
        for program in programs_of(file):
            assert different(program.proto, xprof_graph_viewer) == [], program.title


def test_programs_of_jax_print_like_the_reference(
    jax_programs: Path, xprof_graph_viewer: Reference
) -> None:
    files = sorted(jax_programs.glob("*.pb"))
    assert len(files) > 100
    for file in files:
        module = hlo_pb2.HloModuleProto.FromString(file.read_bytes())
        found = different(hlo_pb2.HloProto(hlo_module=module), xprof_graph_viewer)
        assert found == [], file.name


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.stem)
def test_written_modules_print_like_the_reference(
    file: Path, xprof_graph_viewer: Reference
) -> None:
    parse = pytest.importorskip("jaxlib._hlo").hlo_module_from_text
    serialised = parse(file.read_text()).as_serialized_hlo_module_proto()
    module = hlo_pb2.HloModuleProto.FromString(serialised)
    assert different(hlo_pb2.HloProto(hlo_module=module), xprof_graph_viewer) == []


def restored(module: hlo_pb2.HloModuleProto, rng: random.Random) -> None:
    """Store the instructions in another order: any in which operands come before their users."""
    for computation in module.computations:
        waiting = list(computation.instructions)
        stored: list[hlo_pb2.HloInstructionProto] = []
        done: set[int] = set()
        while waiting:
            ready = [
                one
                for one in waiting
                if done.issuperset(one.operand_ids) and done.issuperset(one.control_predecessor_ids)
            ]
            stored.append(rng.choice(ready))
            waiting.remove(stored[-1])
            done.add(stored[-1].id)
        del computation.instructions[:]
        computation.instructions.extend(stored)


def test_programs_stored_in_any_order_print_like_the_reference(
    jax_programs: Path, xprof_graph_viewer: Reference
) -> None:
    # Loops, whose computations call others, as frameworks besides JAX store them.
    files = [
        file
        for name in ("layers_gradient", "scan", "map", "while", "switch", "cholesky")
        for file in sorted(jax_programs.glob(f"{name}.compiled.pb"))
    ]
    # Those that nothing schedules, with instructions that nothing uses.
    files += [jax_programs / f"{name}.lowered.pb" for name in ("argmax", "map", "layers_gradient")]
    assert len(files) == 9
    for number, file in enumerate(files):
        module = hlo_pb2.HloModuleProto.FromString(file.read_bytes())
        restored(module, random.Random(number))
        found = different(hlo_pb2.HloProto(hlo_module=module), xprof_graph_viewer)
        assert found == [], file.name
