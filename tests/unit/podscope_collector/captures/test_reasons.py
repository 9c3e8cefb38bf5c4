import grpc
import pytest

from podscope_collector.captures.reasons import Failure, NextStep, classify, pause_s
from podscope_collector.captures.states import ReasonCode

Code = grpc.StatusCode


def failure(code: grpc.StatusCode, details: str) -> Failure:
    return classify(code, details, address="w0:9999", host="w0", waited_s=62.2)


def test_a_deadline_is_told_as_it_was() -> None:
    message = failure(Code.DEADLINE_EXCEEDED, "").message
    assert "gave no profile within 62.2 s" in message


@pytest.mark.parametrize(
    ("code", "details", "reason", "step"),
    [
        (Code.INTERNAL, "Another profiling session active.", ReasonCode.BUSY, NextStep.WAIT),
        (Code.ALREADY_EXISTS, "A session is running.", ReasonCode.BUSY, NextStep.WAIT),
        (Code.INTERNAL, "/proc/nope; No such file", ReasonCode.INTERNAL, NextStep.RETRY),
        (Code.INTERNAL, "Received RST_STREAM with code 2", ReasonCode.RESET, NextStep.RETRY),
        (Code.UNKNOWN, "Stream removed", ReasonCode.RESET, NextStep.RETRY),
        (Code.UNIMPLEMENTED, "", ReasonCode.UNIMPLEMENTED, NextStep.STOP),
        (Code.INVALID_ARGUMENT, "level", ReasonCode.INVALID_ARGUMENT, NextStep.STOP),
        (Code.UNAUTHENTICATED, "token", ReasonCode.UNAUTHENTICATED, NextStep.STOP),
        (Code.PERMISSION_DENIED, "no", ReasonCode.UNAUTHENTICATED, NextStep.STOP),
        (Code.DEADLINE_EXCEEDED, "", ReasonCode.DEADLINE, NextStep.STOP),
        (
            Code.RESOURCE_EXHAUSTED,
            "Received message larger than max",
            ReasonCode.TOO_LARGE,
            NextStep.STOP,
        ),
        (Code.CANCELLED, "", ReasonCode.RESET, NextStep.RETRY),
        (Code.UNAVAILABLE, "connect: Connection refused", ReasonCode.REFUSED, NextStep.RETRY),
        (Code.UNAVAILABLE, "DNS resolution failed", ReasonCode.UNREACHABLE, NextStep.RETRY),
        (Code.UNAVAILABLE, "No route to host", ReasonCode.UNREACHABLE, NextStep.RETRY),
        (Code.UNAVAILABLE, "Socket closed", ReasonCode.RESET, NextStep.RETRY),
        (Code.UNAVAILABLE, "something new", ReasonCode.UNREACHABLE, NextStep.RETRY),
    ],
)
def test_a_status_has_a_reason_and_a_next_step(
    code: grpc.StatusCode, details: str, reason: ReasonCode, step: NextStep
) -> None:
    found = failure(code, details)
    assert (found.reason, found.step, found.grpc_code) == (reason, step, code.name)
    assert "w0" in found.message


def test_refused_unresolved_and_unrouted_read_differently() -> None:
    texts = {
        failure(Code.UNAVAILABLE, details).message
        for details in ("Connection refused", "DNS resolution failed", "No route to host", "http1")
    }
    assert len(texts) == 4


def test_the_text_of_a_peer_is_cut_to_one_line() -> None:
    message = failure(Code.INTERNAL, "a\nb" * 1000).message
    assert "\n" not in message
    assert len(message) < 300


def test_pauses_double_are_spread_and_bounded() -> None:
    retry = Failure(ReasonCode.REFUSED, NextStep.RETRY, "")
    assert pause_s(retry, 1, 2, 0.5) == pytest.approx(0.25)
    assert pause_s(retry, 3, 2, 0.5) == pytest.approx(1.0)
    assert pause_s(retry, 1, 2, 0) < pause_s(retry, 1, 2, 1)
    assert pause_s(retry, 20, 2, 1) <= 42


def test_a_busy_host_is_given_as_long_as_a_capture_takes() -> None:
    busy = Failure(ReasonCode.BUSY, NextStep.WAIT, "")
    assert pause_s(busy, 1, 4, 0.5) == pytest.approx(4)
    assert pause_s(busy, 2, 4, 0.5) == pytest.approx(8)
