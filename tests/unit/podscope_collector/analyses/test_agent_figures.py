from concurrent import futures
from typing import Any

import grpc
import pytest

from podscope_collector.analyses.agent_figures import report_figures
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own

SUMMARY: dict[str, Any] = {
    "device_type": "TPU v5 lite",
    "step_count": 3,
    "step_time_ms": 90.5,
    "duty_cycle_ratio": 0.0,
    "flops_per_second": None,
    "peak_flops_per_second": 197e12,
}


def test_what_the_analysis_found_reaches_the_agent_and_what_it_did_not_find_does_not() -> None:
    got: list[own.ReportFiguresRequest] = []

    def take(body: bytes, _context: grpc.ServicerContext) -> bytes:
        got.append(own.ReportFiguresRequest.FromString(body))
        return own.ReportFiguresResponse(was_taken=True).SerializeToString()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    handlers = {"ReportFigures": grpc.unary_unary_rpc_method_handler(take)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(methods.AGENT_SERVICE, handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert report_figures(f"127.0.0.1:{port}", SUMMARY, 42)
    server.stop(None).wait()
    [request] = got
    assert request.step_time_seconds == pytest.approx(0.0905)
    assert request.HasField("duty_cycle_ratio")
    assert not request.HasField("flops_per_second")
    assert (request.device_kind, request.captured_at_ns) == ("TPU v5 lite", 42)


def test_an_agent_that_is_gone_or_older_costs_nothing() -> None:
    assert not report_figures("127.0.0.1:1", SUMMARY, 42)
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    assert not report_figures(f"127.0.0.1:{port}", SUMMARY, 42)
    server.stop(None).wait()
