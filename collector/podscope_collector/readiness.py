"""Whether captures can be taken: database, broker, workers, storage of heartbeats."""

from podscope_collector import schema
from podscope_collector.errors import CollectorError, NotReadyError
from podscope_collector.runtime import Runtime
from podscope_collector.work.queues import ANALYZE, CAPTURE, MAINTENANCE
from podscope_collector.work.services import silent_queues

_NEEDED = (CAPTURE, ANALYZE, MAINTENANCE)


def check_ready(runtime: Runtime) -> None:
    """Raise when captures cannot be taken now.

    A heartbeat message that came out of each queue proves broker, scheduler and workers at
    once: that a process runs does not say that it consumes.

    Raises:
        NotReadyError: says what is missing.
    """
    try:
        schema.check(runtime.database)
    except CollectorError as error:
        raise NotReadyError(str(error)) from error
    with runtime.database.reading() as session:
        silent = silent_queues(session, _NEEDED, runtime.clock(), runtime.settings.heartbeat_window)
    if silent:
        message = (
            f"no worker consumes {', '.join(silent)}: start 'podscope worker' and "
            "'podscope beat', and check that the broker is reachable"
        )
        raise NotReadyError(message)
