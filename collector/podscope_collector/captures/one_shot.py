"""One capture into a log folder, without a service: for callers outside of the collector."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from podscope_collector.agent_access import AgentAccess
from podscope_collector.captures.fanout import run_capture
from podscope_collector.captures.limits import FanoutLimits
from podscope_collector.captures.outcome import CaptureOutcome, HostUpdate
from podscope_collector.captures.request import CaptureRequest, parse_request
from podscope_collector.host_names import MAX_LENGTH, safe_host_name
from podscope_collector.settings import CollectorSettings
from podscope_collector.storage import Storage


def capture_to_folder(
    addresses: Sequence[str],
    logdir: str,
    options: Mapping[str, Any],
    access: Mapping[str, Any] | None = None,
) -> tuple[HostUpdate, ...]:
    """Profile hosts at once; return what became of each, in order.

    Files are named after the addresses, as stock clients name them.

    Args:
        addresses: ``host:port`` of each.
        logdir: Folder, ``s3://…`` or ``gs://…``.
        options: Fields of a capture request besides its targets.
        access: To agents: ``token``, ``tls`` and ``token_in_plain_text`` of ``AgentAccess``; None
            for what the settings name.

    Raises:
        CollectorError: the request makes no sense, or the folder cannot be written.
    """
    request = parse_request({"targets": list(addresses), **options})
    found: list[CaptureOutcome] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            found.append(asyncio.run(_capture(request, logdir, access)))
        except Exception as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    # The caller may be a notebook, whose thread has an event loop that runs.
    thread = threading.Thread(target=work, name="podscope-capture")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0].hosts


async def _capture(
    request: CaptureRequest, logdir: str, access: Mapping[str, Any] | None
) -> CaptureOutcome:
    storage = Storage(logdir)
    settings = CollectorSettings()
    targets = request.parsed_targets().targets
    return await run_capture(
        request,
        targets,
        storage,
        storage.new_session(),
        lambda _: None,
        host_names=[_file_name(target.address) for target in targets],
        limits=FanoutLimits.of(settings),
        agent_access=settings.agent_access() if access is None else AgentAccess(**access),
    )


def _file_name(address: str) -> str:
    name = address.replace(":", "_")
    return name if len(name) <= MAX_LENGTH else safe_host_name(address)
