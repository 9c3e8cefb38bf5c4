"""The command line in this process: what it printed, and how it ended."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from podscope.cli import main


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


Podscope = Callable[..., Ended]


@pytest.fixture
def podscope(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> Podscope:
    """Runs the command that the test's module is about, which its name says."""
    command = request.module.__name__.rpartition("test_")[2]

    def run(*args: object) -> Ended:
        with pytest.raises(SystemExit) as end:
            main([command, *map(str, args)])
        printed = capsys.readouterr()
        return Ended(int(end.value.code or 0), printed.out, printed.err)

    return run
