"""The profiler's own request for one host of a capture."""

from typing import Final

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.keeping import Keeper
from podscope_collector.captures.request import CaptureRequest
from podscope_protos.v1 import profiler_service_pb2 as wire

MAX_EVENTS: Final = 1_000_000


def profile_request(
    request: CaptureRequest,
    keeper: Keeper,
    target: Target,
    host: str,
    duration_ms: int,
    start_ns: int,
) -> wire.ProfileRequest:
    """What is sent to one host.

    Args:
        request: The capture's.
        keeper: Knows the session and its storage.
        target: Whom it is sent to.
        host: Its name within the session.
        duration_ms: Of the window; longer than the request's after an empty attempt.
        start_ns: Unix time of the window's start by the host's clock; 0 for at once.
    """
    options = wire.ProfileOptions(
        # Version 0 would have the server replace all options by its defaults.
        version=1,
        include_dataset_ops=True,
        host_tracer_level=request.host_tracer_level,
        device_tracer_level=request.device_tracer_level,
        python_tracer_level=request.python_tracer_level,
        enable_hlo_proto=True,
        start_timestamp_ns=start_ns,
        duration_ms=duration_ms,
        repository_path=keeper.storage.root,
        session_id=keeper.session,
        override_hostname=host,
    )
    for key, given in request.advanced_configuration.items():
        slot = options.advanced_configuration[key]
        if isinstance(given, bool):
            slot.bool_value = given
        elif isinstance(given, int):
            slot.int64_value = given
        else:
            slot.string_value = given
    return wire.ProfileRequest(
        duration_ms=duration_ms,
        max_events=MAX_EVENTS,
        tools=["xplane.pb"],
        opts=options,
        # A server too old for emit_xspace writes a file here; on a shared folder that is
        # where we look for it.
        repository_root=keeper.repository_root,
        session_id=keeper.session,
        host_name=target.address,
        emit_xspace=True,
    )
