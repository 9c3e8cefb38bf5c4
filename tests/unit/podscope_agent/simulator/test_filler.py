"""Profiles of a size: filled up with events that are valid and that cost little to make."""

import pytest

from podscope_agent.simulator import Pod, build_xspace
from podscope_protos.v1 import xplane_pb2


@pytest.mark.parametrize("size", [80_000, 1_000_000])
def test_a_profile_has_the_size_that_was_asked_for_and_everything_it_had_before(size: int) -> None:
    plain = build_xspace(Pod("cpu", hosts=2, steps=1), 1)
    large = build_xspace(Pod("cpu", hosts=2, steps=1, host_bytes=size), 1)
    assert size - 20_000 < len(large) <= size
    before, after = xplane_pb2.XSpace.FromString(plain), xplane_pb2.XSpace.FromString(large)
    *kept, filler = after.planes
    assert kept == list(before.planes)
    assert filler.name == "/host:filler"
    (line,) = filler.lines
    assert {event.metadata_id for event in line.events} == set(filler.event_metadata)


def test_a_profile_that_is_larger_already_stays_as_it_is() -> None:
    pod = Pod("cpu", hosts=1, steps=1)
    assert build_xspace(Pod("cpu", hosts=1, steps=1, host_bytes=1)) == build_xspace(pod)
