"""What a look at a target found: every step of the way, and the fix of each that failed."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CheckState(StrEnum):
    """How one step went."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It could not be tried, or nobody can tell."""


class Verdict(StrEnum):
    """Whether a capture would work now."""

    READY = "ready"
    BUSY = "busy"
    NOT_READY = "not_ready"


class ServerKind(StrEnum):
    """Who listens."""

    AGENT = "podscope agent"
    LIBRARY = "podscope library"
    STOCK = "JAX or TensorFlow"
    """Both answer alike: what is loaded or recorded there has to tell."""
    JAX = "JAX"
    TENSORFLOW = "TensorFlow"
    TORCH_XLA = "PyTorch/XLA"
    TPU_WORKER = "TPU worker"
    OTHER_GRPC = "gRPC without a profiler"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """One step.

    Attributes:
        name: dns, tcp, grpc, service, health, monitor, port, busy, targets, budget, disk, steps,
            clock, probe.
        detail: What was found, one line.
        fix: What to do; empty when nothing has to be done.
    """

    name: str
    state: CheckState
    detail: str
    fix: str = ""

    def to_json(self) -> dict[str, str]:
        """As the API has it."""
        return {
            "name": self.name,
            "state": str(self.state),
            "detail": self.detail,
            "fix": self.fix,
        }


@dataclass
class Diagnosis:
    """What was found out about one target.

    Attributes:
        target: ``host:port``, or the item that could not be looked up.
        round_trip_ms: Of the fastest small call; None when there was none.
        clock_offset_ms: Its clock minus ours; None when it cannot be asked.
        clock_error_ms: The offset is right to within this.
    """

    target: str
    verdict: Verdict = Verdict.NOT_READY
    kind: ServerKind = ServerKind.UNKNOWN
    round_trip_ms: float | None = None
    clock_offset_ms: float | None = None
    clock_error_ms: float | None = None
    checks: list[Check] = field(default_factory=list)

    def add(self, name: str, state: CheckState, detail: str, fix: str = "") -> None:
        """Note a step."""
        self.checks.append(Check(name, state, detail, fix))

    def note_busy(self) -> None:
        """Another capture runs there."""
        self.verdict = Verdict.BUSY
        self.add(
            "busy",
            CheckState.WARNING,
            "another capture runs there now",
            "wait for its end; a capture with several attempts waits by itself",
        )

    def to_json(self) -> dict[str, Any]:
        """As the API has it."""
        return {
            "target": self.target,
            "verdict": str(self.verdict),
            "kind": str(self.kind),
            "round_trip_ms": self.round_trip_ms,
            "clock_offset_ms": self.clock_offset_ms,
            "clock_error_ms": self.clock_error_ms,
            "checks": [check.to_json() for check in self.checks],
        }


def unresolved(given: str, message: str) -> Diagnosis:
    """The diagnosis of a target that could not be looked up."""
    found = Diagnosis(given)
    found.add("lookup", CheckState.FAILED, message)
    return found
