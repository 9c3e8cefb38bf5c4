"""What the service does with one file: every byte read, then its analyses."""

import json
from contextlib import suppress
from random import Random
from typing import Final

from podscope_analyzers.errors import AnalyzerError, ParameterError, XSpaceError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import Scope
from podscope_analyzers.xspace import verify

_PER_FILE: Final = 2


class WrongErrorError(Exception):
    """An error that does not say where it is."""


def analyze(raw: bytes, rng: Random, tools: int = _PER_FILE) -> str:
    """Verifies a file, prepares it, and asks some of the tools; the result, or an error's code.

    Raises:
        Exception: anything but the analyzers' own errors is a defect.
    """
    outcome = "result"
    for read in (_verified, _analyzed):
        try:
            read(raw, rng, tools)
        except XSpaceError as error:
            if error.offset < 0 or not str(error):
                msg = f"an error without a place: {error}"
                raise WrongErrorError(msg) from error
            outcome = error.code
        except AnalyzerError as error:
            outcome = error.code
    return outcome


def _verified(raw: bytes, rng: Random, tools: int) -> None:
    del rng, tools
    verify(raw)


def _analyzed(raw: bytes, rng: Random, tools: int) -> None:
    partial = analyze_host(raw, "host")
    # As it is stored; parts of it are stored beside it.
    HostPartial.from_bytes(partial.to_bytes())
    chosen = rng.sample(sorted(TOOLS), min(tools, len(TOOLS)))
    for name in chosen:
        result = run_tool(name, [partial], Scope(hosts=["host"]))
        # As strict readers of JSON take it: without NaN.
        json.dumps(result.to_json(), allow_nan=False)
        with suppress(ParameterError):
            # A page for a program says so when the capture carries none.
            json.dumps(run_tool_xprof(name, [partial]))
