"""What a failed RPC means: a table from gRPC status to reason, next step and advice."""

from dataclasses import dataclass
from enum import StrEnum

import grpc

from podscope_collector.captures.states import ReasonCode
from podscope_protos.methods import BUSY_DETAILS


class NextStep(StrEnum):
    """What is done with the host after a failed attempt."""

    STOP = "stop"
    RETRY = "retry"
    WAIT = "wait"
    """Another capture runs: try again when it may have ended."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one attempt failed.

    Attributes:
        reason: From the closed list.
        step: What to do next.
        message: What happened and what the user can do, one line.
        grpc_code: Name of the status, when there was an RPC.
    """

    reason: ReasonCode
    step: NextStep
    message: str
    grpc_code: str | None = None


_SERVE = "start its profiler server (jax.profiler.start_server(port)) or correct the port"

# The details are matched in lower case, first row first; they are the only place where gRPC
# tells a refused connection from a name that does not resolve.
_UNAVAILABLE: tuple[tuple[tuple[str, ...], ReasonCode, str], ...] = (
    (
        ("connection refused",),
        ReasonCode.REFUSED,
        f"nothing listens at {{address}}; {_SERVE}",
    ),
    (
        ("dns resolution failed", "name resolution", "domain name not found", "c-ares"),
        ReasonCode.UNREACHABLE,
        "the name '{host}' does not resolve; check its spelling and the DNS of this machine",
    ),
    (
        ("http/1", "http1", "settings frame", "trying to connect an http"),
        ReasonCode.UNREACHABLE,
        "{address} answers, but speaks no gRPC; is this the port of the profiler?",
    ),
    (
        ("no route to host", "network is unreachable", "host is down"),
        ReasonCode.UNREACHABLE,
        "no way leads to {address}; check the network and its policies",
    ),
    (
        ("connection reset", "socket closed", "broken pipe", "goaway", "connection closed", "eof"),
        ReasonCode.RESET,
        "{address} broke the connection; did its process end or restart?",
    ),
    (
        ("timed out", "timeout"),
        ReasonCode.UNREACHABLE,
        "{address} does not answer; check the address, firewalls and network policies",
    ),
)


def classify(
    code: grpc.StatusCode,
    details: str | None,
    *,
    address: str,
    host: str,
    waited_s: float,
    why_no_token: str | None = None,
) -> Failure:
    """Reason, next step and advice for the status of a ``Profile`` call.

    Args:
        code: As the call ended.
        details: Its text; peers choose it, so it is only shown cut and on one line.
        address: ``host:port`` of the peer.
        host: The host alone.
        waited_s: The deadline that the call had.
        why_no_token: Why the token was kept back from it.
    """
    text = " ".join((details or "").split())[:200]
    low = text.lower()
    name = code.name

    def failure(reason: ReasonCode, step: NextStep, message: str) -> Failure:
        return Failure(reason, step, message, name)

    if code is grpc.StatusCode.UNAVAILABLE:
        for words, reason, advice in _UNAVAILABLE:
            if any(word in low for word in words):
                message = advice.format(address=address, host=host)
                return failure(reason, NextStep.RETRY, message)
        return failure(
            ReasonCode.UNREACHABLE, NextStep.RETRY, f"{address} cannot be reached ({text})"
        )
    busy = code is grpc.StatusCode.INTERNAL and BUSY_DETAILS.rstrip(".").lower() in low
    if busy or code is grpc.StatusCode.ALREADY_EXISTS:
        return failure(
            ReasonCode.BUSY,
            NextStep.WAIT,
            f"another capture runs at {address}; try again when it has ended",
        )
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return failure(
            ReasonCode.UNIMPLEMENTED,
            NextStep.STOP,
            f"{address} is a gRPC server without a profiler; {_SERVE}",
        )
    if code in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
        return failure(
            ReasonCode.UNAUTHENTICATED,
            NextStep.STOP,
            why_no_token or f"{address} denies the capture ({text}); give it the right credentials",
        )
    if code in {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.FAILED_PRECONDITION,
    }:
        return failure(
            ReasonCode.INVALID_ARGUMENT,
            NextStep.STOP,
            f"{address} rejects the options of the request ({text})",
        )
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return failure(
            ReasonCode.DEADLINE,
            NextStep.STOP,
            f"{address} gave no profile within {waited_s:g} s; shorten the capture, lower the "
            "tracer levels or raise the timeout",
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in low:
        return failure(
            ReasonCode.TOO_LARGE,
            NextStep.STOP,
            f"the profile of {address} exceeds 2 GiB; shorten the capture or lower the levels",
        )
    broken = (
        code is grpc.StatusCode.CANCELLED
        or "rst_stream" in low
        or (code is grpc.StatusCode.UNKNOWN and "stream removed" in low)
        or "connection reset" in low
    )
    if broken:
        return failure(
            ReasonCode.RESET,
            NextStep.RETRY,
            f"{address} broke off the answer; did its process end or restart?",
        )
    return failure(ReasonCode.INTERNAL, NextStep.RETRY, f"{address} failed: {text or name}")


def pause_s(failure: Failure, attempt: int, duration_s: float, random_unit: float) -> float:
    """Seconds to wait before the next attempt.

    Args:
        failure: What ended the last attempt.
        attempt: Its number, from 1.
        duration_s: Length of the capture window: another capture is likely as long as ours.
        random_unit: 0 to 1; spreads hosts that failed together.
    """
    base = max(0.5, duration_s) if failure.step is NextStep.WAIT else 0.25
    return float(min(30.0, base * 2 ** (attempt - 1)) * (0.6 + 0.8 * random_unit))
