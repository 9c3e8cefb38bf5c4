import dataclasses
import gc
import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from podscope.cli import COMMANDS, main

# The library's tests also run where nothing but the library is installed.
with_agent = pytest.mark.skipif(
    importlib.util.find_spec("typer") is None, reason="podscope[agent] is not installed"
)


def run(*args: str, module: str = "podscope") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *args], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("module", ["podscope", "podscope.cli"])
def test_either_module_is_the_command(module: str) -> None:
    done = run("version", module=module)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("podscope ")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    listed = capsys.readouterr().out
    assert all(f"\n  {name} " in listed for name in [*COMMANDS, "version"])


def test_an_unknown_command_names_the_nearest_and_exits_2(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["captrue"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "podscope: no command 'captrue'; did you mean 'capture'?\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_only_commands_that_end_soon_seldom_look_for_garbage(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    module = types.ModuleType("podscope_command_of_a_test")
    module.app = lambda **_: seen.append(gc.get_threshold()[0])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    command = dataclasses.replace(COMMANDS[name], target=f"{module.__name__}:app")
    monkeypatch.setitem(COMMANDS, name, command)
    usual = gc.get_threshold()
    try:
        with pytest.raises(SystemExit):
            main([name])
    finally:
        gc.set_threshold(*usual)
    lasting = {"up", "simulate", "agent", "collector", "worker", "beat"}
    assert (seen == [usual[0]]) is (name in lasting)


def test_version_needs_no_server_stack() -> None:
    blocked = (
        "import sys\nfor name in ('typer', 'numpy', 'numba', 'fastapi'): sys.modules[name] = None\n"
    )
    code = blocked + "sys.argv = ['podscope', 'version']\nfrom podscope.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("podscope ")


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [("typer", ["simulate", "--hosts", "1"], "agent"), ("alembic", ["up"], "all")],
    ids=["on import", "on call"],
)
def test_a_command_whose_part_is_not_installed_says_which_extra_brings_it(
    package: str, command: list[str], extra: str
) -> None:
    code = (
        f"import sys\nsys.modules['{package}'] = None\n"
        f"from podscope.cli import main; main({command!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"pip install 'podscope[{extra}]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("simulate", "--hosts", "many"), "--hosts"),
        (("simulate", "--no-such-option"), "--no-such-option"),
        (("simulate", "surplus"), "surplus"),
    ],
)
@with_agent
def test_wrong_usage_of_a_command_is_one_line_and_exits_2(
    arguments: tuple[str, ...], part: str
) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert part in done.stderr
    assert "--help' tells more" in done.stderr


WRITE = ("simulate", "--hosts", "1", "--device", "cpu", "--steps", "1", "--write")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@with_agent
def test_a_reader_that_left_is_no_failure(unbuffered: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "podscope", *WRITE, str(tmp_path)],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@with_agent
def test_a_full_disk_behind_the_output_is_one_line(unbuffered: str, tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "podscope", *WRITE, str(tmp_path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr.startswith("podscope: No space left on device")
    assert done.stderr.count("\n") == 1
