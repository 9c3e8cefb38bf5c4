"""Instructions as text equal those of the reference's module texts."""

import gzip
from pathlib import Path

import pytest

from podscope_analyzers.hlo import read_programs
from podscope_analyzers.hlo.text import Printer, Style
from podscope_analyzers.prepare import prepare
from podscope_analyzers.xspace import open_xspace

SHORT = Style(backend_config=True, configs=True)


@pytest.mark.parametrize(
    "capture", ["jax_2mb", "jax_mh4", "mi300_conv08", "tf_jit", "tpu_inference_2"]
)
def test_every_line_of_the_module_is_one_of_ours(capture: str, reference_dir: Path) -> None:
    packed = (reference_dir / "golden" / capture / "graph_viewer_short_txt.txt.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    module = text.split()[1].removesuffix(",")
    file = sorted((reference_dir / "profiles" / capture).rglob("*.xplane.pb"))[0]
    ours = {
        Printer(program, SHORT).instruction(proto)
        for program in read_programs(prepare(open_xspace(file.read_bytes())))
        if program.module.name == module
        for proto in program.by_id.values()
    }
    lines = [line.strip().removeprefix("ROOT ") for line in text.splitlines() if line[:2] == "  "]
    assert len(lines) > 10
    assert [line for line in lines if line not in ours] == []
