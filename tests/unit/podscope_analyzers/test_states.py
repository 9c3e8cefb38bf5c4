import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.errors import PartialError
from podscope_analyzers.states import pack_state, unpack_state

_SCALARS = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False)
_STATES = st.dictionaries(
    st.text(),
    st.recursive(
        _SCALARS | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
        max_leaves=20,
    ),
)


@given(_STATES)
def test_every_state_reads_back_as_it_was(state: dict[str, object]) -> None:
    assert unpack_state(pack_state(state)) == state


@pytest.mark.parametrize(
    "dtype", ["bool", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_arrays_keep_their_type_shape_and_values(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype="i8").astype(dtype).reshape(shape)
    state = unpack_state(pack_state({"before": b"odd", "array": array, "after": array}))
    for name in ("array", "after"):
        read = state[name]
        assert read.dtype == array.dtype
        assert read.shape == shape
        assert np.array_equal(read, array)


def test_a_state_of_a_newer_podscope_is_refused_with_advice() -> None:
    packed = bytearray(pack_state({"a": 1}))
    struct.pack_into("<I", packed, 16, 999)
    with pytest.raises(PartialError, match=r"format 999.*upgrade podscope") as caught:
        unpack_state(bytes(packed))
    # Who takes it for an older one makes it again, and undoes the newer podscope's work.
    assert caught.value.is_newer


def test_foreign_bytes_are_refused() -> None:
    with pytest.raises(PartialError, match="not a partial result"):
        unpack_state(b"\x80\x04\x95" + b"x" * 100)


@given(st.data())
def test_any_truncation_is_refused(data: st.DataObject) -> None:
    packed = pack_state({"names": ["a", "b"], "array": np.arange(100)})
    length = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(PartialError):
        unpack_state(packed[:length])


@given(st.data())
def test_a_flipped_byte_gives_a_partial_error_or_a_state(data: st.DataObject) -> None:
    packed = bytearray(pack_state({"names": ["a", "b"], "array": np.arange(100)}))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        unpack_state(bytes(packed))
    except PartialError:
        return


def test_a_small_block_that_unpacks_to_too_much_is_refused_before_it_is_unpacked() -> None:
    bomb = pack_state({"zeros": np.zeros(10_000_000, dtype="u1")})
    assert len(bomb) < 100_000
    with pytest.raises(PartialError, match="more than the limit"):
        unpack_state(bomb, max_bytes=1_000_000)


def test_a_block_that_hides_its_true_size_is_refused() -> None:
    packed = bytearray(pack_state({"zeros": np.zeros(1_000_000, dtype="u1")}))
    struct.pack_into("<Q", packed, 28, 8)
    with pytest.raises(PartialError, match="does not hold"):
        unpack_state(bytes(packed))


def test_an_array_outside_the_block_is_refused() -> None:
    header = b'{"a":{"$a":[0,"<i8",[1000000000]]}}'
    packed = struct.pack("<16sIQQ", b"PODSCOPE-STATE\0\0", 1, len(header), 0) + zlib.compress(
        header
    )
    with pytest.raises(PartialError, match="lies outside"):
        unpack_state(packed)


def test_an_array_of_objects_is_refused_when_written_and_when_read() -> None:
    with pytest.raises(TypeError):
        pack_state({"a": np.array([object()])})
    header = b'{"a":{"$a":[0,"|O",[0]]}}'
    packed = struct.pack("<16sIQQ", b"PODSCOPE-STATE\0\0", 1, len(header), 0) + zlib.compress(
        header
    )
    with pytest.raises(PartialError, match="array type"):
        unpack_state(packed)
