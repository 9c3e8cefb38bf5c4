"""All lookups of a capture at once, within one time limit, with a short memory."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic

import structlog

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.lookups import DnsLookup, Lookup, PodLookup
from podscope_collector.captures.resolving.dns import look_up_dns
from podscope_collector.captures.resolving.errors import LookupFailed
from podscope_collector.captures.resolving.found import Found, LeftOut, Resolution, Unresolved
from podscope_collector.captures.resolving.kubernetes import look_up_pods
from podscope_collector.captures.resolving.tpu import look_up_tpu
from podscope_collector.captures.targets import TargetList
from podscope_collector.settings import CollectorSettings

log = structlog.get_logger(__name__)

_MAX_THREADS = 16
_MAX_REMEMBERED = 1000


class Resolver:
    """Looks up targets; keeps what it found for ``resolve_cache``. Safe to share by threads."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._remembered: dict[str, tuple[float, Found]] = {}

    def resolve(self, wanted: TargetList) -> Resolution:
        """Every target of the list; a lookup that fails costs only itself."""
        results = self._look_up_all(wanted.lookups)
        found: dict[str, Target] = {target.address.lower(): target for target in wanted.targets}
        unresolved: list[Unresolved] = []
        left_out: list[LeftOut] = []
        for lookup, result in zip(wanted.lookups, results, strict=True):
            if isinstance(result, LookupFailed):
                unresolved.append(Unresolved(lookup.given, str(result)))
                continue
            left_out += result.left_out
            for target in result.targets:
                found.setdefault(target.address.lower(), target)
        return Resolution(tuple(found.values()), tuple(unresolved), tuple(left_out))

    def _look_up_all(self, lookups: Sequence[Lookup]) -> list[Found | LookupFailed]:
        if not lookups:
            return []
        timeout_s = self._settings.resolve_timeout.total_seconds()
        pool = ThreadPoolExecutor(min(len(lookups), _MAX_THREADS), thread_name_prefix="lookup")
        try:
            futures = [pool.submit(self._look_up, lookup) for lookup in lookups]
            wait(futures, timeout=timeout_s)
            return [_outcome(future, timeout_s) for future in futures]
        finally:
            # A resolver that hangs keeps its thread, not the capture.
            pool.shutdown(wait=False, cancel_futures=True)

    def _look_up(self, lookup: Lookup) -> Found:
        with self._lock:
            until, found = self._remembered.get(lookup.given, (0.0, None))
            if found is not None and monotonic() < until:
                return found
        match lookup:
            case DnsLookup():
                found = look_up_dns(lookup)
            case PodLookup():
                found = look_up_pods(lookup, self._settings)
            case _:
                found = look_up_tpu(lookup, self._settings)
        until = monotonic() + self._settings.resolve_cache.total_seconds()
        with self._lock:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[lookup.given] = (until, found)
        return found


def _outcome(future: Future[Found], timeout_s: float) -> Found | LookupFailed:
    if not future.done():
        return LookupFailed(f"the lookup takes longer than {timeout_s:g} s")
    error = future.exception()
    if error is None:
        return future.result()
    if isinstance(error, LookupFailed):
        return error
    # What nobody expected in an answer costs this lookup, not the capture.
    log.error("lookup_failed", exc_info=error)
    return LookupFailed(f"unexpected {type(error).__name__}: {error}; please report this")
