"""What one host contributes to the results of its capture, small enough to keep.

A capture's results are made from its hosts' partials alone: a late host adds its own, nothing is
decoded again, and the order in which hosts arrive does not matter.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from podscope_analyzers.errors import PartialError
from podscope_analyzers.states import MAX_UNPACKED_BYTES, pack_state, unpack_state

if TYPE_CHECKING:
    from podscope_analyzers.allocations import Allocations
    from podscope_analyzers.annotations import Annotations
    from podscope_analyzers.core_details import CoreDetails
    from podscope_analyzers.counters import Counters
    from podscope_analyzers.gpu_kernels import KernelDatabase
    from podscope_analyzers.hlo.programs import Programs
    from podscope_analyzers.host_facts import HostFacts
    from podscope_analyzers.inference import InferenceStats
    from podscope_analyzers.op_metrics.database import OpDatabase
    from podscope_analyzers.peaks import PerfEnv
    from podscope_analyzers.result import Loss
    from podscope_analyzers.run_environment import RunEnvironment
    from podscope_analyzers.slice_transfers import SliceTransfers
    from podscope_analyzers.step_activity import StepActivity
    from podscope_analyzers.steps import StepDatabase
    from podscope_analyzers.summary import HostSummary
    from podscope_analyzers.tf_data.loaders import Loaders
    from podscope_analyzers.tf_data.pipelines import TfDataStats

PARTIAL_VERSION: Final = 19
PART_VERSION: Final = 3


@dataclass(frozen=True)
class HostPartial:
    """The stats of one host.

    Attributes:
        host: Its name in the capture: its file's name.
        hostname: What its XSpace says.
        steps: All of them, incomplete ones too: a tool that wants none of these drops them.
        activity: What the host's threads did in the steps, column i for step i.
        loaders: Its loaders that are no tf.data.
        slice_transfers: What its TPU cores sent to other slices.
        cores: What is known of its TPU cores, by plane id.
        facts: What advice rests on beside the stats.
        program_titles: ``module(program id)`` of its programs, by unsigned id.
        summary: Its few figures for lists and metrics.
        programs: Its HLO programs. A part, as are all fields below: stored apart from the rest,
            since only few tools need it, and None when it was not read back.
        allocations: What its allocators recorded.
        counters: Values of its devices' hardware counters.
    """

    host: str
    hostname: str
    run_environment: "RunEnvironment"
    perf_env: "PerfEnv"
    host_ops: "OpDatabase"
    device_ops: "OpDatabase"
    host_execution: "OpDatabase"
    steps: "StepDatabase"
    activity: "StepActivity"
    kernels: "KernelDatabase"
    inference: "InferenceStats"
    annotations: "Annotations"
    tf_data: "TfDataStats"
    loaders: "Loaders"
    slice_transfers: "SliceTransfers"
    cores: "Mapping[int, CoreDetails]"
    program_titles: Mapping[int, str]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    losses: "tuple[Loss, ...]"
    facts: "HostFacts"
    summary: "HostSummary"
    programs: "Programs | None" = None
    allocations: "Allocations | None" = None
    counters: "Counters | None" = None

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
        version = state.get("part_version")
        if version != PART_VERSION:
            what = f"what is stored of the {name}"
            raise _other_version(what, version, PART_VERSION)
        try:
            return replace(self, **{name: _kind(PARTS[name]).from_state(state[name])})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            msg = f"the stored {name} are damaged ({error}); analyze the capture again"
            raise PartialError(msg, is_lasting=True) from error

    def to_bytes(self) -> bytes:
        """The partial as one compressed block; see ``states`` for the format."""
        return pack_state(
            {
                "partial_version": PARTIAL_VERSION,
                "host": self.host,
                **{name: getattr(self, name).to_state() for name in SECTIONS},
                **self.plain_state(),
            }
        )

    def plain_state(self) -> dict[str, Any]:
        """What is no section: plain values that ``from_plain`` reads back."""
        return {
            "hostname": self.hostname,
            "program_titles": dict(self.program_titles),
            "cores": {core: details.to_state() for core, details in self.cores.items()},
            "errors": list(self.errors),
            "warnings": list(self.warnings),
            "losses": [vars(loss) for loss in self.losses],
        }

    @classmethod
    def from_bytes(cls, packed: bytes, *, max_bytes: int = MAX_UNPACKED_BYTES) -> Self:
        """The partial that ``to_bytes`` wrote.

        Raises:
            PartialError: the bytes are damaged, foreign, too large, or of another version.
        """
        state = unpack_state(packed, max_bytes=max_bytes)
        version = state.get("partial_version")
        if version != PARTIAL_VERSION:
            what = "the partial result"
            raise _other_version(what, version, PARTIAL_VERSION)
        try:
            return cls._from_state(state)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            msg = f"the partial result is damaged ({error}); analyze the capture again"
            raise PartialError(msg, is_lasting=True) from error

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        sections = {name: section_kind(name).from_state(state[name]) for name in SECTIONS}
        plain = {name: from_plain(name, state[name]) for name in PLAIN}
        return cls(host=str(state["host"]), **plain, **sections)


def _other_version(what: str, version: object, known: int) -> PartialError:
    is_newer = isinstance(version, int) and version > known
    advice = "upgrade podscope, or analyze" if is_newer else "analyze"
    msg = f"{what} has version {version}, this podscope reads {known}; {advice} the capture again"
    return PartialError(msg, is_newer=is_newer)


PLAIN: Final = ("hostname", "program_titles", "cores", "errors", "warnings", "losses")
"""What a partial holds beside its host's name, ``SECTIONS`` and ``PARTS``."""


def from_plain(name: str, state: Any) -> Any:
    """One of ``PLAIN`` out of what ``plain_state`` gave."""
    from podscope_analyzers.core_details import CoreDetails
    from podscope_analyzers.result import Loss

    match name:
        case "hostname":
            return str(state)
        case "program_titles":
            return {int(k): str(v) for k, v in state.items()}
        case "cores":
            return {int(k): CoreDetails.from_state(v) for k, v in state.items()}
        case "losses":
            return tuple(Loss(**loss) for loss in state)
    return tuple(state)


# Modules are loaded when a section is read back, and not where it is only written.
SECTIONS: Final[Mapping[str, str]] = {
    "run_environment": "run_environment:RunEnvironment",
    "perf_env": "peaks:PerfEnv",
    "host_ops": "op_metrics.database:OpDatabase",
    "device_ops": "op_metrics.database:OpDatabase",
    "host_execution": "op_metrics.database:OpDatabase",
    "steps": "steps:StepDatabase",
    "activity": "step_activity:StepActivity",
    "kernels": "gpu_kernels:KernelDatabase",
    "inference": "inference:InferenceStats",
    "annotations": "annotations:Annotations",
    "tf_data": "tf_data.pipelines:TfDataStats",
    "loaders": "tf_data.loaders:Loaders",
    "slice_transfers": "slice_transfers:SliceTransfers",
    "facts": "host_facts:HostFacts",
    "summary": "summary:HostSummary",
}
"""The kinds of what stores itself, by attribute; each has ``to_state`` and ``from_state``."""

PARTS: Final[Mapping[str, str]] = {
    "programs": "hlo.programs:Programs",
    "allocations": "allocations:Allocations",
    "counters": "counters:Counters",
}
"""What is stored in files of its own, by attribute; the tools that need one name it."""


def section_kind(name: str) -> Any:
    """What one of ``SECTIONS`` is; it has ``to_state`` and ``from_state``."""
    return _kind(SECTIONS[name])


@cache
def _kind(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
