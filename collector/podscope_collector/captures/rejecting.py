"""A profile that turns out to be damaged when it is analysed: its host failed after all."""

import uuid
from datetime import datetime

from sqlalchemy.orm import Session

from podscope_collector.captures.models import Capture, CaptureHost
from podscope_collector.captures.progress import next_revision
from podscope_collector.captures.quorum import decide
from podscope_collector.captures.states import AnalysisState, CaptureState, HostState, ReasonCode


def reject_host(
    session: Session, host_id: uuid.UUID, problem: str, kept_in: str, now: datetime
) -> uuid.UUID | None:
    """Turn a host that is done into one that failed as corrupt; return the capture's id.

    The capture is decided anew, if it had ended: its quorum counts this host no longer.

    Args:
        session: In a transaction.
        host_id: Of the host's row.
        problem: What is wrong, and where.
        kept_in: Path below the storage's root that the profile is moved to.
        now: The time.
    """
    host = session.get(CaptureHost, host_id)
    if host is None or host.state is not HostState.DONE:
        return None
    revision = next_revision(session, host.capture_id)
    capture = session.get_one(Capture, host.capture_id)
    session.refresh(capture)
    session.refresh(host)
    capture.hosts_done -= 1
    capture.bytes -= host.bytes
    host.state, host.reason = HostState.FAILED, ReasonCode.CORRUPT
    host.message = f"{host.target} sent a damaged profile ({problem}); it is kept in {kept_in}"
    host.file = host.sha256 = None
    host.bytes = 0
    host.analysis_state, host.analysis_error = AnalysisState.FAILED, problem
    host.revision = revision
    if capture.finished_at is not None:
        if capture.state is not CaptureState.CANCELLED:
            capture.state = decide(capture.quorum, [one.state for one in capture.hosts])
        if capture.hosts_done == 0:
            capture.analysis_state = AnalysisState.FAILED
            capture.analysis_error = "every profile that came is damaged; see the hosts"
            capture.analysis_finished_at = now
    return host.capture_id
