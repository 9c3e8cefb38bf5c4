import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_collector.captures.response import ResponseError, unwrap
from podscope_protos.v1.profiler_service_pb2 import ProfileResponse, ProfileToolData


@given(st.binary(min_size=1), st.booleans())
def test_xspace_and_flag_come_out_as_they_went_in(xspace: bytes, is_empty: bool) -> None:
    answer = unwrap(ProfileResponse(xspace=xspace, empty_trace=is_empty).SerializeToString())
    assert answer.xspace == xspace
    assert answer.is_empty is is_empty


def test_the_xspace_is_a_view_and_no_copy() -> None:
    message = ProfileResponse(xspace=bytes(1000)).SerializeToString()
    view = unwrap(message).xspace
    assert isinstance(view, memoryview)
    assert view.obj is message


def test_the_two_bytes_of_a_stock_server_mean_empty() -> None:
    assert unwrap(b"\x38\x01").is_empty
    assert unwrap(b"") == unwrap(b"\x38\x00")
    assert unwrap(b"").xspace is None


def test_tool_data_is_taken_when_the_field_is_unset() -> None:
    tool = ProfileToolData(name="xplane.pb", data=b"abc")
    other = ProfileToolData(name="trace.json", data=b"def")
    assert unwrap(ProfileResponse(tool_data=[other, tool]).SerializeToString()).xspace == b"abc"
    assert unwrap(ProfileResponse(tool_data=[other]).SerializeToString()).xspace is None
    both = ProfileResponse(tool_data=[tool], xspace=b"xyz").SerializeToString()
    assert unwrap(both).xspace == b"xyz"


def test_a_repeated_xspace_is_merged_by_joining() -> None:
    message = ProfileResponse(xspace=b"ab").SerializeToString()
    assert unwrap(message + message).xspace == b"abab"


@given(st.binary())
def test_any_bytes_give_an_answer_or_a_response_error(message: bytes) -> None:
    with contextlib.suppress(ResponseError):
        answer = unwrap(message)
        assert answer.xspace is None or len(answer.xspace) <= len(message)


@given(st.data())
def test_a_cut_message_is_an_error(data: st.DataObject) -> None:
    message = ProfileResponse(xspace=bytes(range(200))).SerializeToString()
    cut = data.draw(st.integers(1, len(message) - 1))
    with pytest.raises(ResponseError):
        unwrap(message[:cut])
