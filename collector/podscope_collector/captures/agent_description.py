"""What an agent says of its host, as steps of a diagnosis."""

from podscope_collector.captures.diagnosis import CheckState, Diagnosis
from podscope_protos.v1 import agent_service_pb2 as own

_LITTLE_DISK = 1 << 30


def note_description(found: Diagnosis, described: own.DescribeResponse) -> None:
    """Add what the agent says to the diagnosis of its target."""
    _note_targets(found, described)
    if described.refusal:
        found.add(
            "budget",
            CheckState.FAILED,
            f"the agent would refuse a capture: {described.refusal}",
            "wait, free what it lacks, or change the agent's limits",
        )
    free = described.spool_free_bytes
    is_short = free < min(described.limits.spool_bytes, _LITTLE_DISK)
    found.add(
        "disk",
        CheckState.WARNING if is_short else CheckState.OK,
        f"{free / 2**30:.1f} GiB free for profiles",
        "free disk on the host, or give the agent another --spool-dir" if is_short else "",
    )
    step_s = described.step_time.seconds
    if step_s:
        found.add("steps", CheckState.OK, f"{step_s:.3g} s each")
    else:
        found.add("steps", CheckState.UNKNOWN, "unknown: no capture with --steps")


def _note_targets(found: Diagnosis, described: own.DescribeResponse) -> None:
    state = own.TargetDescription.State
    lost = [
        target
        for target in described.targets
        if target.state in {state.STATE_UNREACHABLE, state.STATE_INCOMPATIBLE}
    ]
    known = len(described.targets)
    if not known or len(lost) == known:
        why = f"; {lost[0].address}: {lost[0].detail}" if lost else ""
        found.add(
            "targets",
            CheckState.FAILED,
            f"the agent knows no process that can be captured{why}",
            "start the job's profiler server, or name it with --target",
        )
    elif lost:
        found.add(
            "targets",
            CheckState.WARNING,
            f"{len(lost)} of {known} processes cannot be captured; {lost[0].address}: "
            f"{lost[0].detail}",
            "see 'podscope agent targets' on the host",
        )
    else:
        found.add("targets", CheckState.OK, f"{known} process{'' if known == 1 else 'es'}")
