"""Fixtures that every kind of test shares."""

import contextlib
import os
import re
import tomllib
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

# What a machine may lack; a laptop skips such a test with its reason, CI must not.
_LACKING = re.compile(
    r"could not import|^(Skipped: )?"
    r"(no (PostgreSQL|Redis|empty Redis|Chromium)\b|the web pages are not built)"
)
ROOT = Path(__file__).resolve().parents[1]

# The library's own tests run without it on further versions of Python.
with contextlib.suppress(ImportError):
    from hypothesis import HealthCheck, settings

    # How long an example takes is the machine's affair.
    settings.register_profile(
        "podscope", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("podscope")


def _cases() -> dict[str, str]:
    """What each conformance case is about, by its identifier."""
    sections: Mapping[str, Mapping[str, str]] = tomllib.loads(
        (ROOT / "tests/conformance/cases.toml").read_text()
    )
    return {
        case: title
        for section, cases in sections.items()
        if section != "left_out"
        for case, title in cases.items()
    }


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note of every test which cases it is for; the note travels with its report."""
    known = _cases()
    for item in items:
        for mark in item.iter_markers("case"):
            for case in mark.args:
                if case not in known:
                    problem = f"{item.nodeid}: tests/conformance/cases.toml has no case {case}"
                    raise pytest.UsageError(problem)
                item.user_properties.append(("case", case))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show, for every conformance case that tests of this run are for, which and how they went."""
    found: dict[str, dict[str, str]] = {}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed", "xpassed"):
        for report in terminalreporter.stats.get(outcome, ()):
            for name, case in getattr(report, "user_properties", ()):
                if name == "case":
                    found.setdefault(case, {})[report.nodeid] = outcome
    if not found:
        return
    terminalreporter.section("conformance cases")
    for case, title in _cases().items():
        if case in found:
            outcomes = sorted(set(found[case].values()))
            names = sorted({node.split("::")[-1].split("[")[0] for node in found[case]})
            line = f"{case:6} {'/'.join(outcomes):8} {title}: {', '.join(names)}"
            terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, fail where a test would be skipped for want of a service or a framework."""
    report = yield
    if report.skipped and os.environ.get("CI") and call.excinfo is not None:
        reason = str(call.excinfo.value)
        if _LACKING.search(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} needs what CI must have: {reason}"
    return report


def _reference_dir() -> Path | None:
    """The folder of reference captures, when there is one on this machine."""
    configured = os.environ.get("PODSCOPE_REFERENCE_DIR")
    folder = Path(configured) if configured else ROOT.parent / "shared"
    return folder if (folder / "golden").is_dir() else None


@pytest.fixture(scope="session")
def reference_dir() -> Path:
    """Folder with ``profiles/`` (real captures) and ``golden/`` (the reference's results)."""
    folder = _reference_dir()
    if folder is None:
        pytest.skip("no reference captures here; set PODSCOPE_REFERENCE_DIR to their folder")
    return folder
