"""What can be captured on this host: given, registered by the processes themselves, or pods."""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import grpc
import grpc.aio
import psutil

from podscope_agent.processes import owners_of_ports, port_of, shared_port_text
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

_PROBE_TIMEOUT_S: Final = 2.0
_FRESH_S: Final = 2.0
"""Who asks twice within this gets the same answer, so that asking costs the targets nothing."""


class TargetState(StrEnum):
    """Whether a target can be captured now."""

    READY = "ready"
    BUSY = "busy"
    UNREACHABLE = "unreachable"
    INCOMPATIBLE = "incompatible"
    """Something listens, and it is no profiler server."""


@dataclass(frozen=True)
class KnownTarget:
    """A profiler server.

    Attributes:
        address: ``host:port``.
        source: ``static``, ``registered`` or ``kubernetes``.
        pid: Its process, by this host's numbers; 0 when it is not known.
        labels: What it says of itself: job, run, rank; or its pod.
        started_at_ns: When it registered; 0 when it is not known.
        step_time_s: How long its steps take, as it says itself; None when it does not.
        state: None until it was looked at.
        detail: Why it is not ready.
    """

    address: str
    source: str = "static"
    pid: int = 0
    framework: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    started_at_ns: int = 0
    step_time_s: float | None = None
    state: TargetState | None = None
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """As ``/targets`` and ``--json`` show it."""
        return {
            "address": self.address,
            "state": None if self.state is None else str(self.state),
            "detail": self.detail,
            "source": self.source,
            "pid": self.pid or None,
            "framework": self.framework or None,
            "labels": dict(self.labels),
            "started_at_ns": self.started_at_ns or None,
        }


class TargetInventory:
    """Every target of the host; an address that two sources name is one target.

    Args:
        static: Addresses from the settings.
    """

    def __init__(self, static: Iterable[str] = ()) -> None:
        self._static = tuple(KnownTarget(address) for address in static)
        self._found: dict[str, dict[str, KnownTarget]] = {"registered": {}, "kubernetes": {}}
        self._looked_at = 0.0
        self._states: dict[str, tuple[TargetState, str]] = {}

    @property
    def targets(self) -> tuple[KnownTarget, ...]:
        """Those that are known now; what a process says of itself wins over the settings.

        A process may be known by several addresses of this host (a pod on the host's network
        that also registered); it is captured once.
        """
        known = {_place(target.address): target for target in self._static}
        for source in ("kubernetes", "registered"):
            # A copy: the metrics' thread asks while the event loop adds and removes.
            known.update({_place(t.address): t for t in list(self._found[source].values())})
        return tuple(known.values())

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where they are."""
        return tuple(target.address for target in self.targets)

    @property
    def step_time_s(self) -> float | None:
        """How long a step of the slowest process takes; None when no process says it."""
        told = (target.step_time_s for target in self.targets)
        return max((seconds for seconds in told if seconds is not None), default=None)

    def put(self, key: str, target: KnownTarget) -> None:
        """Add a registered target under a key of its own."""
        self._found[target.source][key] = target

    def drop(self, source: str, key: str) -> None:
        """Forget a target."""
        self._found[source].pop(key, None)

    def replace_all(self, source: str, targets: Sequence[KnownTarget]) -> None:
        """Take over what a source knows now."""
        self._found[source] = {target.address: target for target in targets}

    def count_states(self) -> dict[str, int]:
        """How many targets were in each state when they were looked at last."""
        counts = dict.fromkeys((*(str(state) for state in TargetState), "unknown"), 0)
        for target in self.targets:
            state, _ = self._states.get(target.address, ("unknown", ""))
            counts[str(state)] += 1
        return counts

    async def examined(
        self, channel_of: Callable[[str], grpc.aio.Channel], *, is_busy: bool
    ) -> tuple[KnownTarget, ...]:
        """The targets with their states, at most some seconds old.

        Args:
            channel_of: The channel to an address.
            is_busy: A capture of all of them runs; they are not disturbed.
        """
        targets = self.targets
        if is_busy:
            return tuple(
                replace(target, state=TargetState.BUSY, detail="a capture of this agent runs")
                for target in targets
            )
        states = self._states
        if time.monotonic() - self._looked_at >= _FRESH_S or any(
            target.address not in states for target in targets
        ):
            found = await asyncio.gather(*(_probe(channel_of(t.address)) for t in targets))
            # Nobody else's until all is known: who asks meanwhile has other targets, perhaps.
            states = {t.address: state for t, state in zip(targets, found, strict=True)}
            owners = await asyncio.to_thread(owners_of_ports)
            for address, (state, detail) in states.items():
                pids = owners.get(port_of(address), ())
                if len(pids) > 1:
                    told = [detail, shared_port_text(address, pids)]
                    states[address] = (state, "; ".join(filter(None, told)))
            self._states, self._looked_at = states, time.monotonic()
        examined = []
        for target in targets:
            state, detail = states[target.address]
            examined.append(replace(target, state=state, detail=detail))
        return tuple(examined)


def is_own_host(address: str) -> bool:
    """Whether ``host:port`` names this host."""
    host = address.rpartition(":")[0].strip("[]")
    return host in _own_addresses() or host == socket.gethostname()


def _place(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return ("here" if host.strip("[]") in _own_addresses() else host, port)


@lru_cache(maxsize=1)
def _own_addresses() -> frozenset[str]:
    found = {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
    }
    return frozenset({"localhost", "127.0.0.1", "::1", *found})


async def _probe(channel: grpc.aio.Channel) -> tuple[TargetState, str]:
    """Ask for the end of a session that never was: every profiler server says yes to that."""
    body = wire.TerminateRequest(session_id=f"podscope-{secrets.token_hex(8)}").SerializeToString()
    method = channel.unary_unary(
        methods.TERMINATE, request_serializer=bytes, response_deserializer=bytes
    )
    try:
        await method(body, timeout=_PROBE_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            return TargetState.INCOMPATIBLE, "a gRPC server without a profiler listens there"
        text = " ".join((error.details() or error.code().name).split())[:200]
        return TargetState.UNREACHABLE, text
    return TargetState.READY, ""
