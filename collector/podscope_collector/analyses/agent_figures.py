"""Tells a host's agent what the analysis of its capture found, for the agent's live metrics."""

from typing import Any, Final

import grpc
import structlog

from podscope_collector.agent_access import AgentAccess
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own

log = structlog.get_logger()

THROUGH_AGENT: Final = frozenset({"stream", "direct"})
"""How profiles come from agents; stock servers have nobody to tell."""
_TIMEOUT_S: Final = 2.0


def report_figures(
    target: str,
    summary: dict[str, Any],
    captured_at_ns: int,
    access: AgentAccess | None = None,
) -> bool:
    """Push the figures of one host; an agent that is gone or older costs nothing but a log line.

    Args:
        target: The agent's ``host:port``.
        summary: As ``jobs.analyze_stored_host`` makes it.
        captured_at_ns: When the capture began, Unix time.
        access: For an agent that serves TLS or asks for a token.

    Returns:
        Whether the agent took them.
    """
    request = own.ReportFiguresRequest(
        device_kind=summary["device_type"] or "", captured_at_ns=captured_at_ns
    )
    for name in ("duty_cycle_ratio", "flops_per_second", "peak_flops_per_second"):
        if summary[name] is not None:
            setattr(request, name, summary[name])
    if summary["step_time_ms"] is not None:
        request.step_time_seconds = summary["step_time_ms"] / 1000
    options = (("grpc.enable_http_proxy", 0),)
    access = access or AgentAccess()
    token, tls = access.token_for(target), access.tls
    sent = () if token is None else (("authorization", f"Bearer {token}"),)
    with (
        grpc.insecure_channel(target, options=options)
        if tls is None
        else grpc.secure_channel(target, tls, options=options)
    ) as channel:
        method = channel.unary_unary(
            methods.AGENT_REPORT_FIGURES, request_serializer=bytes, response_deserializer=bytes
        )
        try:
            answer = method(request.SerializeToString(), timeout=_TIMEOUT_S, metadata=sent)
        except grpc.RpcError as error:
            log.info("figures_not_reported", target=target, status=error.code().name)
            return False
    return own.ReportFiguresResponse.FromString(answer).was_taken
