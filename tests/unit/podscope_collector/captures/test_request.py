from typing import Any

import pytest

from podscope_collector.captures.advanced import ADVANCED_OPTIONS, from_text
from podscope_collector.captures.request import (
    CaptureRequest,
    parse_request,
    parse_stored_request,
)
from podscope_collector.errors import RequestError


def test_only_targets_are_needed_and_the_rest_has_defaults() -> None:
    request = parse_request({"targets": "grpc://w0:9999,w1:9999"})
    assert [target.address for target in request.parsed_targets().targets] == ["w0:9999", "w1:9999"]
    assert (request.duration_ms, request.attempts, request.quorum) == (2000, 3, "any")
    assert (
        request.host_tracer_level,
        request.device_tracer_level,
        request.python_tracer_level,
    ) == (2, 1, 0)


def test_a_synchronized_capture_starts_at_an_instant_of_its_own_or_the_one_that_is_given() -> None:
    assert parse_request({"targets": "w0:1", "synchronized": True}).delay_ms == 1000
    assert parse_request({"targets": "w0:1", "synchronized": True, "delay_ms": 70}).delay_ms == 70
    assert parse_request({"targets": "w0:1"}).delay_ms == 0


def test_a_window_of_steps_is_bounded_by_a_minute_or_by_the_duration_that_is_given() -> None:
    assert parse_request({"targets": "w0:1", "steps": 5}).duration_ms == 60_000
    assert parse_request({"targets": "w0:1", "steps": 5, "duration_ms": 9}).duration_ms == 9
    assert parse_request({"targets": "w0:1", "steps": None}).duration_ms == 2000


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"duration_ms": 0}, "duration_ms 0 is out of range; it must be from 1 to 3,600,000"),
        ({"duration_ms": 36_000_000}, "1 ms to 1 hour"),
        ({"duration_ms": -5}, "from 1 to 3,600,000"),
        ({"duration_ms": "2s"}, "duration_ms: "),
        ({"duration_ms": True}, "duration_ms: "),
        ({"duration_ms": 1.5}, "duration_ms: "),
        ({"trigger": "whim"}, "trigger: Input should be 'manual', 'alert' or 'api'"),
        ({"steps": 0}, "steps 0 is out of range"),
        ({"steps": 10**6}, "from 1 to 100,000"),
        ({"steps": "10"}, "steps: "),
        ({"attempts": 0}, "attempts 0 is out of range"),
        ({"delay_ms": -1}, "delay_ms -1 is out of range"),
        ({"expected_host_bytes": 0}, "expected_host_bytes 0 is out of range"),
        ({"expected_host_bytes": 2**31}, "1 byte to 2 GiB"),
        ({"synchronized": 1}, "synchronized: "),
        ({"requested_by": "a\nb"}, "requested_by has at most 200 characters"),
        ({"quorum": "most"}, "write all, any, a number of hosts or 1% to 100%"),
        ({"quorum": "0%"}, "quorum '0%'"),
        ({"quorum": "101%"}, "quorum '101%'"),
        ({"quorum": "2"}, "asks for more hosts than the 1"),
        ({"duration": 5}, "'duration' is unknown; did you mean 'duration_ms'?"),
        ({"host_tracer_level": -1}, "host_tracer_level -1 is out of range; it must be from 0 to 3"),
        ({"host_tracer_level": 4}, "host_tracer_level 4 is out of range"),
        ({"host_tracer_level": True}, "host_tracer_level: "),
        ({"device_tracer_level": -1}, "device_tracer_level: "),
        ({"python_tracer_level": 3}, "python_tracer_level 3 is out of range"),
        ({"targets": "w0"}, "target 1 ('w0'): it has no port"),
        ({"targets": 5}, "targets must be a text or a list of texts"),
        ({"targets": []}, "the target list is empty"),
        ({"labels": {"": "x"}}, "label ''"),
        ({"labels": {"a": "b\x00"}}, "cannot be printed"),
        (
            {"advanced_configuration": {"tpu_trace_mod": "TRACE_ONLY_XLA"}},
            "did you mean 'tpu_trace_mode'?",
        ),
        ({"advanced_configuration": {"tpu_perf_counters": 1}}, "must be true or false"),
        ({"advanced_configuration": {"max_trace_buffers": True}}, "must be a whole number"),
        ({"advanced_configuration": {"max_trace_buffers": 2**63}}, "64 bits"),
        ({"advanced_configuration": {"tpu_trace_mode": 3}}, "must be a text"),
        ({"advanced_configuration": {"tpu_trace_mode": ["x"]}}, "must be a text"),
        ({"advanced_configuration": {"max_trace_buffers": 1.5}}, "must be a whole number"),
        ({"advanced_configuration": {"override_hostnames": "a,b"}}, "called by their targets"),
        ({"advanced_configuration": ["x"]}, "an object of options and their values"),
    ],
)
def test_a_wrong_field_is_one_line_that_says_what_it_may_be(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError) as caught:
        parse_request({"targets": "w0:9999"} | fields)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.http_status == 422


def test_a_request_survives_its_json() -> None:
    request = parse_request(
        {
            "targets": ["w[0-1]:9999", "x:1, y:2"],
            "quorum": "50%",
            "steps": 10,
            "advanced_configuration": {"tpu_perf_counters": True, "max_trace_buffers": 7},
            "labels": {"run": "llm-7b"},
        }
    )
    assert CaptureRequest.model_validate_json(request.model_dump_json()) == request
    assert len(request.parsed_targets().targets) == 4


def test_a_stored_request_with_higher_tracer_levels_is_read_with_the_highest() -> None:
    stored = {"targets": "w0:1", "host_tracer_level": 4, "python_tracer_level": 3}
    request = parse_stored_request(stored)
    assert (request.host_tracer_level, request.python_tracer_level) == (3, 2)
    kept = parse_request({"targets": "w0:1", "host_tracer_level": 1, "python_tracer_level": 0})
    assert parse_stored_request(kept.model_dump(mode="json")) == kept
    with pytest.raises(RequestError, match="duration_ms 0 is out of range"):
        parse_stored_request({**stored, "duration_ms": 0})


def test_every_advanced_option_can_be_typed_on_a_command_line() -> None:
    typed = {bool: ("yes", True), int: ("0x10", 16), str: ("abc", "abc")}
    for key, kind in ADVANCED_OPTIONS.items():
        text, expected = typed[kind]
        assert from_text(key, text) == expected
    with pytest.raises(ValueError, match="whole number"):
        from_text("max_trace_buffers", "many")
    with pytest.raises(ValueError, match="true or false"):
        from_text("tpu_perf_counters", "maybe")
