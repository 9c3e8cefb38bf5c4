import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.pieces import Pieces
from podscope_agent.responses import profile_response, room_for, xspace_of_response
from podscope_protos.v1 import profiler_service_pb2 as wire

names = st.text(st.characters(codec="ascii"), max_size=30)


@given(
    st.none() | st.lists(st.binary(max_size=200), max_size=4),
    st.lists(st.tuples(names, st.lists(st.binary(max_size=200), max_size=3)), max_size=3),
    st.booleans(),
)
def test_a_response_is_what_protobuf_makes_of_it(
    xspace: list[bytes] | None, tools: list[tuple[str, list[bytes]]], is_empty: bool
) -> None:
    response = profile_response(
        None if xspace is None else Pieces(xspace),
        [(name, Pieces(parts)) for name, parts in tools],
        is_empty=is_empty,
    )
    parsed = wire.ProfileResponse.FromString(response)
    assert parsed.empty_trace == is_empty
    assert parsed.xspace == b"".join(xspace or [])
    assert [(t.name, t.data) for t in parsed.tool_data] == [(n, b"".join(p)) for n, p in tools]
    assert bytes(xspace_of_response(response)) == parsed.xspace
    whole = [Pieces(parts) for _, parts in tools] + ([Pieces(xspace)] if xspace else [])
    assert len(response) <= sum(room_for(pieces) for pieces in whole) + 44 * len(tools) + 8


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff", b"\x42\x7f", b"\x07"])
def test_garbage_is_no_response(garbage: bytes) -> None:
    with pytest.raises(MalformedXSpaceError):
        xspace_of_response(garbage)


def test_a_response_without_a_profile_is_empty() -> None:
    assert bytes(xspace_of_response(b"")) == b""
    assert profile_response(None) == b""
    assert profile_response(None, is_empty=True) == b"\x38\x01"
