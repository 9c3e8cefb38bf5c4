import os
import subprocess
import sys
from pathlib import Path

import pytest

from podscope.cli import main
from podscope_agent.simulator import Pod, write_pod
from podscope_analyzers.kernels import image
from podscope_analyzers.registry import TOOLS
from podscope_collector.cli.analyze_arguments import Arguments, Format, parse_arguments

ROOT = Path(__file__).resolve().parents[4]


def test_arguments_are_taken_in_any_order_and_both_spellings() -> None:
    given = ["--tool=t", "runs", "--param", "a=1", "--param=b=2", "--format", "csv", "--table", "x"]
    assert parse_arguments(given, "p") == Arguments(
        "runs", "t", None, None, ("a=1", "b=2"), Format.CSV, "x"
    )
    assert parse_arguments(["runs", "--host", "h", "--run", "r"], "p") == Arguments(
        "runs", None, "h", "r", (), Format.TABLE, None
    )


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "path"),
        (["a", "b"], "b"),
        (["a", "--tol", "x"], "--tol"),
        (["a", "--tool"], "--tool"),
        (["a", "--format", "xml"], "xml"),
    ],
)
def test_arguments_that_are_not_understood_are_named_with_the_way_to_help(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["analyze", *given])
    printed = capsys.readouterr()
    assert end.value.code == 2
    assert printed.out == ""
    assert told in printed.err
    assert printed.err.startswith("podscope: ")
    assert printed.err.endswith("'podscope analyze --help' tells more\n")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("asked", ["-h", "--help"])
def test_help_lists_every_option_and_tool(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["analyze", asked])
    printed = capsys.readouterr().out
    assert not end.value.code
    for name in (*TOOLS, "--tool", "--host", "--run", "--param", "--format", "--table"):
        assert name in printed


def test_a_document_is_printed_without_loading_what_only_other_commands_need(
    tmp_path: Path,
) -> None:
    list(write_pod(Pod(device="cpu", hosts=1, steps=3, seed=1), tmp_path))
    code = (
        "import sys\n"
        "from podscope.cli import main\n"
        "try:\n"
        f"    main(['analyze', {str(tmp_path)!r}, '--tool', 'framework_op_stats',"
        " '--format', 'json'])\n"
        "finally:\n"
        "    sys.stderr.write(' '.join(sorted(sys.modules)))\n"
    )
    paths = [str(ROOT / part) for part in ("agent", "analyzers", "collector", "protos")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # The first process of a machine compiles.
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=250,
            check=True,
        )
    loaded = set(done.stderr.split())
    heavy = {"typer", "pydantic", "rich", "sqlalchemy", "fastapi", "celery", "importlib.metadata"}
    if image.is_supported():
        heavy |= {"numba", "llvmlite"}
    assert not loaded & heavy
