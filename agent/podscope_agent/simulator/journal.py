"""What was asked of simulated hosts, a JSON line each: who captured whom, when, and at once."""

import json
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from podscope_agent.errors import SimulationError


class Journal:
    """A file of requests for profiles.

    Args:
        path: The file, which must not be there; lines are added when requests end.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("x", buffering=1)
        except OSError as error:
            msg = f"cannot write {path}: {error.strerror}; choose another --journal"
            raise SimulationError(msg) from error
        self._running: dict[int, int] = {}

    def request(self, host: int, session: str) -> "JournalEntry":
        """A request that begins with the block and ends with it."""
        return JournalEntry(self, host, session)

    def begun(self, host: int) -> int:
        """Count a request in; returns how many others run at this host."""
        others = self._running.get(host, 0)
        self._running[host] = others + 1
        return others

    def ended(self, host: int, line: dict[str, object]) -> None:
        """Count it out and write it down."""
        self._running[host] -= 1
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Write out everything."""
        self._file.close()


class JournalEntry:
    """One request."""

    def __init__(self, journal: Journal, host: int, session: str) -> None:
        self._journal, self._host, self._session = journal, host, session
        self._began_ns = self._others = 0

    def __enter__(self) -> Self:
        self._began_ns = time.time_ns()
        self._others = self._journal.begun(self._host)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        line: dict[str, object] = {
            "host": self._host,
            "session": self._session,
            "began_ns": self._began_ns,
            "ended_ns": time.time_ns(),
            "at_once": self._others,
            "ended_as": "answered" if kind is None else kind.__name__,
        }
        self._journal.ended(self._host, line)
