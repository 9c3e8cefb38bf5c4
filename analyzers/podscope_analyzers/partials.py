"""What one host contributes to the results of its capture, small enough to keep.

A capture's results are made from its hosts' partials alone: a late host adds its own, nothing is
decoded again, and the order in which hosts arrive does not matter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from podscope_analyzers.allocations import Allocations
from podscope_analyzers.core_details import CoreDetails
from podscope_analyzers.errors import PartialError
from podscope_analyzers.gpu_kernels import KernelDatabase
from podscope_analyzers.hlo.programs import Programs
from podscope_analyzers.inference_latency import Requests
from podscope_analyzers.op_metrics.database import OpDatabase
from podscope_analyzers.peaks import PerfEnv
from podscope_analyzers.result import Loss
from podscope_analyzers.run_environment import RunEnvironment
from podscope_analyzers.states import MAX_UNPACKED_BYTES, pack_state, unpack_state
from podscope_analyzers.step_activity import StepActivity
from podscope_analyzers.steps import StepDatabase
from podscope_analyzers.summary import HostSummary
from podscope_analyzers.tf_data.pipelines import TfDataStats

PARTIAL_VERSION: Final = 4
PART_VERSION: Final = 1


@dataclass(frozen=True)
class HostPartial:
    """The stats of one host.

    Attributes:
        host: Its name in the capture: its file's name.
        hostname: What its XSpace says.
        steps: All of them, incomplete ones too: a tool that wants none of these drops them.
        activity: What the host's threads did in the steps, column i for step i.
        cores: What is known of its TPU cores, by plane id.
        summary: Its few figures for lists and metrics.
        programs: Its HLO programs. A part, as are all fields below: stored apart from the rest,
            since only few tools need it, and None when it was not read back.
        allocations: What its allocators recorded.
    """

    host: str
    hostname: str
    run_environment: RunEnvironment
    perf_env: PerfEnv
    host_ops: OpDatabase
    device_ops: OpDatabase
    host_execution: OpDatabase
    steps: StepDatabase
    activity: StepActivity
    kernels: KernelDatabase
    requests: Requests
    tf_data: TfDataStats
    cores: Mapping[int, CoreDetails]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    losses: tuple[Loss, ...]
    summary: HostSummary
    programs: Programs | None = None
    allocations: Allocations | None = None

    def part_to_bytes(self, name: str) -> bytes:
        """One of ``PARTS`` as a compressed block of its own.

        Raises:
            PartialError: this partial was read back without it.
        """
        part = getattr(self, name)
        if part is None:
            msg = f"{self.host}: the partial result was read without its {name}"
            raise PartialError(msg)
        # Large and rarely read: the time of a better compression is not won back.
        return pack_state({"part_version": PART_VERSION, name: part.to_state()}, level=1)

    def without_parts(self) -> Self:
        """The same partial without its parts, which take most of its memory."""
        nothing: dict[str, Any] = dict.fromkeys(PARTS)
        return replace(self, **nothing)

    def with_part(self, name: str, packed: bytes, *, max_bytes: int = MAX_UNPACKED_BYTES) -> Self:
        """The same partial with a part that ``part_to_bytes`` wrote.

        Raises:
            PartialError: the bytes are damaged, foreign, too large, or of another version.
        """
        state = unpack_state(packed, max_bytes=max_bytes)
        try:
            if state["part_version"] != PART_VERSION:
                msg = f"version {state['part_version']}, not {PART_VERSION}"
                raise ValueError(msg)
            return replace(self, **{name: PARTS[name].from_state(state[name])})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            msg = f"the stored {name} are damaged ({error}); analyze the capture again"
            raise PartialError(msg) from error

    def to_bytes(self) -> bytes:
        """The partial as one compressed block; see ``states`` for the format."""
        return pack_state(
            {
                "partial_version": PARTIAL_VERSION,
                "host": self.host,
                "hostname": self.hostname,
                **{name: getattr(self, name).to_state() for name in _SECTIONS},
                "cores": {core: details.to_state() for core, details in self.cores.items()},
                "errors": list(self.errors),
                "warnings": list(self.warnings),
                "losses": [vars(loss) for loss in self.losses],
            }
        )

    @classmethod
    def from_bytes(cls, packed: bytes, *, max_bytes: int = MAX_UNPACKED_BYTES) -> Self:
        """The partial that ``to_bytes`` wrote.

        Raises:
            PartialError: the bytes are damaged, foreign, too large, or of another version.
        """
        state = unpack_state(packed, max_bytes=max_bytes)
        version = state.get("partial_version")
        if version != PARTIAL_VERSION:
            is_newer = isinstance(version, int) and version > PARTIAL_VERSION
            advice = "upgrade podscope, or analyze" if is_newer else "analyze"
            msg = (
                f"the partial result has version {version}, this podscope reads "
                f"{PARTIAL_VERSION}; {advice} the capture again"
            )
            raise PartialError(msg)
        try:
            return cls._from_state(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            msg = f"the partial result is damaged ({error}); analyze the capture again"
            raise PartialError(msg) from error

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        sections = {name: kind.from_state(state[name]) for name, kind in _SECTIONS.items()}
        return cls(
            host=str(state["host"]),
            hostname=str(state["hostname"]),
            cores={int(k): CoreDetails.from_state(v) for k, v in state["cores"].items()},
            errors=tuple(state["errors"]),
            warnings=tuple(state["warnings"]),
            losses=tuple(Loss(**loss) for loss in state["losses"]),
            **sections,
        )


_SECTIONS: Final[Mapping[str, Any]] = {
    "run_environment": RunEnvironment,
    "perf_env": PerfEnv,
    "host_ops": OpDatabase,
    "device_ops": OpDatabase,
    "host_execution": OpDatabase,
    "steps": StepDatabase,
    "activity": StepActivity,
    "kernels": KernelDatabase,
    "requests": Requests,
    "tf_data": TfDataStats,
    "summary": HostSummary,
}
"""The parts that store themselves, by attribute; each has ``to_state`` and ``from_state``."""

PARTS: Final[Mapping[str, Any]] = {"programs": Programs, "allocations": Allocations}
"""What is stored in files of its own, by attribute; the tools that need one name it."""
