"""The rule by which a result equals the reference's."""

import gzip
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
# Of a sentence's numbers those that were measured: `Section 3` and `TF2` are wording.
_MEASURED = re.compile(r"-?\d+\.\d+|-?\d+(?=\s*(?:%|percent\b|[munp]?s\b))")
_SENTENCE_WORDS = 5
# Where sentences for people stand: fields by their names, cells by the ids of their columns.
_SENTENCE_FIELD = re.compile(
    r"\.(?:\w+_conclusion|statement|\w+_statement|\w+_bottleneck|summary_nextstep|summary"
    r"|suggestion|warnings\[\d+\]|errors\[\d+\])$"
)
_SENTENCE_COLUMNS = frozenset({"link", "description", "message"})
_CELL = re.compile(r"\.c\[(\d+)\]\.v$")
# What the reference prints for an all-zero series when its accumulator divides by zero.
_NAN_TEXTS = frozenset({"-nan", "nan"})
_SMALLEST_DOUBLE = 2.2250738585072014e-308


class Differences(list[str]):
    """Every place where two results differ, as ``path: expected, got``."""


def differences(
    expected: Any,
    got: Any,
    *,
    ignore: Callable[[str], bool] = lambda _path: False,
) -> Differences:
    """Compare by the rule: numbers within 1e-9, names equal, sentences by their numbers.

    Whether a text is a sentence is told by its place, not by its look: an operation's expression,
    a kernel's signature and a call stack have many words too, and are names.

    Args:
        ignore: Whether a path (``[1].p.steptime_ms_average``) is left out of the comparison.
    """
    found = Differences()
    _compare(expected, got, "", (), ignore, found)
    return found


def _compare(
    expected: Any,
    got: Any,
    path: str,
    columns: Sequence[str],
    ignore: Callable[[str], bool],
    found: Differences,
) -> None:
    """Add to what was found; ``columns`` are the ids of the table that the path lies in."""
    if ignore(path):
        return
    match expected:
        case dict():
            if not isinstance(got, dict):
                found.append(f"{path}: expected an object, got {got!r:.200}")
                return
            if "cols" in expected:
                columns = [column["id"] for column in expected["cols"]]
            for key in sorted(expected.keys() | got.keys()):
                inner = f"{path}.{key}"
                if ignore(inner):
                    continue
                if key not in got:
                    found.append(f"{inner}: missing, expected {expected[key]!r:.200}")
                elif key not in expected:
                    found.append(f"{inner}: not expected, got {got[key]!r:.200}")
                else:
                    _compare(expected[key], got[key], inner, columns, ignore, found)
        case list():
            if not isinstance(got, list):
                found.append(f"{path}: expected a list, got {got!r:.200}")
                return
            if len(expected) != len(got):
                found.append(f"{path}: expected {len(expected)} items, got {len(got)}")
            for index, (one, other) in enumerate(zip(expected, got, strict=False)):
                _compare(one, other, f"{path}[{index}]", columns, ignore, found)
        case bool() | None:
            if got is not expected:
                found.append(f"{path}: expected {expected!r}, got {got!r}")
        case int() | float():
            is_number = isinstance(got, int | float) and not isinstance(got, bool)
            if not is_number or not _is_close(expected, got, 1e-9):
                found.append(f"{path}: expected {expected!r}, got {got!r}")
        case str():
            is_same = _is_same_sentence if _is_for_people(path, columns) else _is_same_text
            if not isinstance(got, str) or not is_same(expected, got):
                found.append(f"{path}: expected {expected!r:.300}, got {got!r:.300}")


def _is_for_people(path: str, columns: Sequence[str]) -> bool:
    cell = _CELL.search(path)
    if cell is not None:
        return int(cell[1]) < len(columns) and columns[int(cell[1])] in _SENTENCE_COLUMNS
    return _SENTENCE_FIELD.search(path) is not None


def _is_close(expected: float, got: float, tolerance: float) -> bool:
    if expected == _SMALLEST_DOUBLE:
        return math.isclose(got, 0.0, abs_tol=1e-300)
    return math.isclose(expected, got, rel_tol=tolerance)


def _is_same_sentence(expected: str, got: str) -> bool:
    """Sentences are in our own words: they have to be there, with the numbers measured."""
    if len(expected.split()) < _SENTENCE_WORDS:
        return _is_same_text(expected, got)
    theirs, ours = (sorted(map(float, _MEASURED.findall(text))) for text in (expected, got))
    return (
        len(got.split()) >= _SENTENCE_WORDS
        and len(theirs) == len(ours)
        and all(_is_close(one, other, 1e-6) for one, other in zip(theirs, ours, strict=True))
    )


def _is_same_text(expected: str, got: str) -> bool:
    if expected == got or (expected in _NAN_TEXTS and got in _NAN_TEXTS | {"0.0", "0.00"}):
        return True
    if _NUMBER.sub("#", expected) != _NUMBER.sub("#", got):
        return False
    # Text with rounded numbers in it, such as `13.4%` or a tooltip. Names hold only whole ones,
    # and say `1.10` where they do not mean `1.1`.
    return all(
        one == other
        or (_decimals(one) == _decimals(other) > 0 and _is_close(float(one), float(other), 1e-6))
        for one, other in zip(_NUMBER.findall(expected), _NUMBER.findall(got), strict=True)
    )


def _decimals(number: str) -> int:
    return len(number.partition(".")[2])


@pytest.fixture(scope="session")
def reference(reference_dir: Path) -> Callable[[str, str], Any]:
    """The reference's result of a tool on a capture."""

    def load(capture: str, tool: str) -> Any:
        path = reference_dir / "golden" / capture / f"{tool}.json.gz"
        return json.loads(gzip.decompress(path.read_bytes()))

    return load


@pytest.fixture(scope="session")
def xprof_graph_viewer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """What XProf's graph viewer answers for a program, as ``answer(hlo_proto, **options)``."""
    converter = pytest.importorskip("xprof.convert.raw_to_tool_data")
    folder = tmp_path_factory.mktemp("xprof_graph_viewer")
    capture = folder / "host.xplane.pb"
    capture.touch()

    def answer(proto: Any, **options: Any) -> str:
        # Where it keeps the programs of a capture that it has seen before.
        (folder / "program(1).hlo_proto.pb").write_bytes(proto.SerializeToString())
        wanted = {"module_name": "program(1)", **options}
        parameters = {"graph_viewer_options": wanted, "use_saved_result": False}
        found, _ = converter.xspace_to_tool_data([str(capture)], "graph_viewer", parameters)
        return found.decode() if isinstance(found, bytes) else str(found)

    return answer


@pytest.fixture(scope="session")
def jax_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that JAX compiled for eight devices."""
    pytest.importorskip("jax")
    folder = tmp_path_factory.mktemp("jax_programs")
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    script = Path(__file__).with_name("jax_programs.py")
    subprocess.run([sys.executable, script, folder], check=True, env=environment, timeout=300)
    return folder


@pytest.fixture(scope="session")
def compare() -> Callable[..., Differences]:
    """The comparison rule, as ``compare(expected, got, ignore=...) -> Differences``."""
    return differences
