"""Sessions that the doctor opens on a profiler server, and what their answers tell of it."""

import secrets
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from podscope_collector.captures.diagnosis import ServerKind
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace

PROBE_MS: Final = 100
# A server that is too old for `emit_xspace` writes a file, below its own folder if it is not told
# another. Nobody can make a folder here.
_NOWHERE: Final = "/dev/null/podscope-doctor"
_CPU: Final = wire.ProfileOptions.DeviceType.CPU
_JAX_EVENTS: Final = ("PjitFunction(", "CommonPjRt", "PjRtCpu", "TfrtCpu")
_TENSORFLOW_EVENTS: Final = ("EagerExecute", "FunctionRun", "ExecutorState::", "tf.")


def empty_session() -> wire.ProfileRequest:
    """A session of no length and without a tracer: it records nothing, and a busy server says so.

    A profiler opens one session at a time, whoever asks; nothing else of stock servers tells
    whether one is open.
    """
    request = _request(0)
    request.opts.device_type = _CPU
    return request


def probe_session() -> wire.ProfileRequest:
    """A short capture of little detail."""
    request = _request(PROBE_MS)
    request.opts.host_tracer_level = 1
    request.opts.device_tracer_level = 1
    return request


def _request(duration_ms: int) -> wire.ProfileRequest:
    request = wire.ProfileRequest(
        duration_ms=duration_ms,
        # Of its own: a session that ended must not be taken for the next.
        session_id=f"podscope-doctor-{secrets.token_hex(8)}",
        host_name="podscope-doctor",
        repository_root=_NOWHERE,
        emit_xspace=True,
        tools=["xplane.pb"],
    )
    request.opts.version = 1
    request.opts.duration_ms = duration_ms
    return request


def framework_by_libraries(libraries: str) -> ServerKind | None:
    """Whose profiler a process serves, by what it has loaded; None when that leaves a choice."""
    found = [
        kind
        for kind, word in (
            (ServerKind.TORCH_XLA, "/_XLAC."),
            (ServerKind.JAX, "/jaxlib/"),
            (ServerKind.TENSORFLOW, "/tensorflow/"),
        )
        if word in libraries
    ]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the profile of a probe tells of where it was recorded.

    Attributes:
        framework: Whose profiler it was; None when no event tells.
        process: Of which process; None where the profiler does not tell.
    """

    framework: ServerKind | None
    process: int | None


def read_recorded(profile: bytes | memoryview | None) -> Recorded | None:
    """What a serialised XSpace tells; None when it is none. Takes longer the larger it is."""
    try:
        space = XSpace.FromString(bytes(profile or b""))
    except DecodeError:
        return None
    return Recorded(framework_by_events(space), recorded_process(space))


def framework_by_events(space: XSpace) -> ServerKind | None:
    """Whose profiler recorded a profile, by the names of its events; None when none tells."""
    for plane in space.planes:
        for event in plane.event_metadata.values():
            if event.name.startswith(_JAX_EVENTS):
                return ServerKind.JAX
            if event.name.startswith(_TENSORFLOW_EVENTS):
                return ServerKind.TENSORFLOW
    return None


def recorded_process(space: XSpace) -> int | None:
    """The process that a profile is of; None where the profiler does not tell."""
    for plane in space.planes:
        names = {key: found.name for key, found in plane.stat_metadata.items()}
        for stat in plane.stats:
            if names.get(stat.metadata_id) == "process_id":
                return int(stat.int64_value or stat.uint64_value) or None
    return None
