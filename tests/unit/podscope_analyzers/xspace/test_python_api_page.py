import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
PAGE = ROOT / "docs/reference/python-api.md"


def test_the_examples_of_the_python_api_page_give_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = PAGE.read_text()
    command = re.search(r"^podscope (simulate .*)$", page, re.MULTILINE)
    assert command is not None
    paths = [str(ROOT / folder) for folder in ("agent", "analyzers", "collector", "protos")]
    subprocess.run(
        [sys.executable, "-m", "podscope", *command[1].split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        timeout=120,
        capture_output=True,
    )
    monkeypatch.chdir(tmp_path)
    examples = "\n".join(re.findall(r"^```pycon\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    test = doctest.DocTestParser().get_doctest(examples, {}, "python-api.md", str(PAGE), 0)
    assert len(test.examples) > 25
    output: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert result.failed == 0, "".join(output)
