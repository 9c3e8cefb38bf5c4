"""What happens to a file: every byte is read; it is analyzed and stored, or a tool is asked."""

import json
from contextlib import suppress
from random import Random
from typing import Final

from podscope_analyzers.errors import AnalyzerError, ParameterError, XSpaceError
from podscope_analyzers.partials import PARTS, HostPartial
from podscope_analyzers.pipeline import analyze_host, open_host, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope
from podscope_analyzers.xspace import verify

# Of so many files one is analyzed in full, as the service does; of the others one tool is asked,
# as the command does: a tool computes only what it needs, so that more files have their turn.
_STORED_ONE_OF: Final = 4
_TOOLS_OF_STORED: Final = 2


class WrongErrorError(Exception):
    """An error that does not say where it is."""


def analyze(raw: bytes, rng: Random, *, in_full: bool = False) -> str:
    """Verifies a file and analyzes it; the result, or an error's code.

    Args:
        raw: The file's bytes.
        rng: Chooses what is asked.
        in_full: Store it and ask every tool.

    Raises:
        Exception: anything but the analyzers' own errors is a defect.
    """
    outcome = "result"
    is_stored = in_full or rng.randrange(_STORED_ONE_OF) == 0
    chosen = rng.sample(sorted(TOOLS), _TOOLS_OF_STORED if is_stored else 1)
    if in_full:
        chosen = list(TOOLS)
    for read in (_verified, _stored if is_stored else _asked):
        try:
            read(raw, chosen)
        except XSpaceError as error:
            if error.offset < 0 or not str(error):
                msg = f"an error without a place: {error}"
                raise WrongErrorError(msg) from error
            outcome = error.code
        except AnalyzerError as error:
            outcome = error.code
    return outcome


def _verified(raw: bytes, tools: list[str]) -> None:
    del tools
    verify(raw)


def _stored(raw: bytes, tools: list[str]) -> None:
    partial = analyze_host(raw, "host")
    # As it is stored; parts of it are stored beside it.
    read_back = HostPartial.from_bytes(partial.to_bytes())
    for part in PARTS:
        read_back.with_part(part, partial.part_to_bytes(part))
    _ask(partial, tools)


def _asked(raw: bytes, tools: list[str]) -> None:
    _ask(open_host(raw, "host"), tools)


def _ask(partial: HostPartial, tools: list[str]) -> None:
    for name in tools:
        result = run_tool(name, [partial], Scope(hosts=["host"]))
        # As strict readers of JSON take it: without NaN.
        json.dumps(result.to_json(), allow_nan=False)
        with suppress(ParameterError):
            # A page for a program says so when the capture carries none.
            json.dumps(run_tool_xprof(name, [partial]))
