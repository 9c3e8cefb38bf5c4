"""What one capture records while it runs: spans by thread, appended without a lock."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple


class Span(NamedTuple):
    """A named span of one thread; times are of `time.perf_counter_ns`."""

    name: str
    start_ns: int
    end_ns: int
    metadata: Mapping[str, bool | int | float | str]


class Recording:
    """Spans of all threads since `start_ns`."""

    def __init__(self) -> None:
        self.start_ns = time.perf_counter_ns()
        self.start_unix_ns = time.time_ns()
        # list.append is atomic in CPython, and each thread has a list of its own.
        self.spans: defaultdict[int, list[Span]] = defaultdict(list)

    def add(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        metadata: Mapping[str, bool | int | float | str],
    ) -> None:
        """Keep one span of the calling thread."""
        self.spans[threading.get_ident()].append(Span(name, start_ns, end_ns, metadata))


active: Recording | None = None
"""The recording that spans go to; read by every annotation, so a plain module attribute."""
