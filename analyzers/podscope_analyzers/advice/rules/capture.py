"""Findings about the capture itself: what it lost."""

from podscope_analyzers.advice.metrics import CaptureMetrics
from podscope_analyzers.advice.rules.rule import Finding, Rule
from podscope_analyzers.losses import HOST_MISSING, UNKNOWN_COUNT
from podscope_analyzers.result import Evidence


def events_dropped(capture: CaptureMetrics, rule: Rule) -> Finding | None:
    """Parts of the capture were lost: events, buffers, whatever a host said."""
    losses = [loss for loss in capture.losses if loss.kind != HOST_MISSING]
    if len(losses) < rule.levels["medium"]:
        return None
    hosts = sorted({loss.host for loss in losses})
    count = sum(loss.count for loss in losses)
    kinds = ", ".join(sorted({loss.kind.replace("_", " ") for loss in losses}))
    unknown = any(loss.count == UNKNOWN_COUNT for loss in losses)
    how_many = f"at least {count:,}" if unknown else f"{count:,}"
    where = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts, {hosts[0]} among them"
    return Finding(
        "medium",
        f"The capture is not whole: {kinds} ({how_many}) on {where}. Times and counts are too low.",
        (
            Evidence("losses", len(losses), "", rule.levels["medium"]),
            Evidence("lost_count", count),
            Evidence("lossy_hosts", len(hosts)),
        ),
    )


def hosts_missing(capture: CaptureMetrics, rule: Rule) -> Finding | None:
    """Hosts failed, and are not in the result."""
    missing = capture.missing_hosts
    if len(missing) < rule.levels["medium"]:
        return None
    first = missing[0]
    return Finding(
        "medium",
        f"{len(missing)} of {capture.hosts + len(missing)} hosts are not in the result, "
        f"{first.host} among them ({first.reason}): one of them may be what the others wait for.",
        (Evidence("missing_hosts", len(missing), "", rule.levels["medium"]),),
    )
