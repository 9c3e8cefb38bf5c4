"""The combined state of a pod: hosts are merged into it in any order and grouping."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from podscope_agent.simulator import Pod, build_xspace
from podscope_analyzers import pod_state
from podscope_analyzers.errors import PartialError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, combine, run_on_stats
from podscope_analyzers.pod_state import PodState
from podscope_analyzers.registry import TOOLS
from podscope_analyzers.result import MissingHost, Scope
from podscope_analyzers.summary import summarize_hosts
from podscope_protos.v1 import xplane_pb2

PODS = {
    "cpu": Pod("cpu", hosts=4, steps=7, slow_host=2, input_bound=0.3),
    "tpu-v5e": Pod("tpu-v5e", hosts=4, steps=4, slow_host=1),
    "gpu-h100": Pod("gpu-h100", hosts=3, steps=6, slow_host=0),
}
MULTI_HOST = [tool for tool in TOOLS.values() if tool.scope != "host"]
Hosts = Mapping[str, Sequence[HostPartial]]
_settings = settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def hosts() -> Hosts:
    """The partials of every pod, as they are read back from where they are kept."""
    found = {
        device: [
            HostPartial.from_bytes(
                analyze_host(build_xspace(pod, host), f"{device}-{host}").to_bytes()
            )
            for host in range(pod.hosts)
        ]
        for device, pod in PODS.items()
    }
    # A capture of unlike hosts.
    found["mixed"] = [one for partials in found.values() for one in partials[:2]]
    # One of whose hosts began to record late.
    late = late_host(PODS["tpu-v5e"], 3)
    found["late"] = [*found["tpu-v5e"][:3], HostPartial.from_bytes(late.to_bytes())]
    return found


def late_host(pod: Pod, host: int) -> HostPartial:
    """A host whose devices recorded nothing but the last of four steps."""
    space = xplane_pb2.XSpace.FromString(build_xspace(pod, host))
    for plane in space.planes:
        if plane.name.startswith("/device:"):
            for line in plane.lines:
                kept = [event for event in line.events if event.offset_ps > line_end(line) * 3 // 4]
                del line.events[:]
                line.events.extend(kept)
    return analyze_host(space.SerializeToString(), f"{pod.device}-{host}")


def line_end(line: xplane_pb2.XLine) -> int:
    return max((event.offset_ps + event.duration_ps for event in line.events), default=0)


def documents(stats: Mapping[bool, Any], names: Sequence[str]) -> dict[str, str]:
    """What every tool answers, as the bytes that clients get."""
    scope = Scope(sorted(names), missing_hosts=[MissingHost("zz", "deadline")])
    found = {"summary": json.dumps(summarize_hosts(stats[False]).to_json())}
    for tool in MULTI_HOST:
        of_tool = stats[tool.keeps_incomplete_steps]
        result = run_on_stats(tool, of_tool, scope, {})
        tables = {name: table.to_json() for name, table in result.tables.items()}
        found[tool.name] = json.dumps([result.to_json(), tables, tool.xprof_json(of_tool, {})])
    return found


def of_partials(partials: Sequence[HostPartial]) -> dict[str, str]:
    stats = {keep: combine(partials, keep_incomplete_steps=keep) for keep in (False, True)}
    return documents(stats, [one.host for one in partials])


def of_state(state: PodState) -> dict[str, str]:
    stats = {keep: state.stats(keep_incomplete_steps=keep) for keep in (False, True)}
    return documents(stats, [one.host for one in state.hosts])


def with_digests(partials: Sequence[HostPartial]) -> list[tuple[HostPartial, str]]:
    return [(one, f"digest of {one.host}") for one in partials]


@pytest.mark.parametrize("device", [*PODS, "late", "mixed"])
def test_any_order_and_grouping_gives_the_documents_of_all_hosts_at_once(
    hosts: Hosts, device: str
) -> None:
    partials = hosts[device]
    expected = of_partials(partials)

    @_settings
    @given(st.permutations(partials), st.sets(st.integers(1, len(partials) - 1)))
    def check(order: list[HostPartial], cuts: set[int]) -> None:
        stored: list[bytes] = []
        bounds = [0, *sorted(cuts), len(order)]
        for first, last in pairwise(bounds):
            # As another process reads it back for the next late host.
            state = PodState(stored).with_hosts(with_digests(order[first:last]))
            stored.append(bytes(state.newest))
        assert of_state(PodState(stored)) == expected

    check()


@pytest.mark.parametrize("device", PODS)
def test_one_host_gives_the_documents_of_its_partial(hosts: Hosts, device: str) -> None:
    one = hosts[device][1]

    assert of_state(PodState.of(with_digests([one]))) == of_partials([one])


def test_every_stage_gives_the_documents_of_the_hosts_so_far(hosts: Hosts) -> None:
    partials = hosts["cpu"]
    state = PodState.of(with_digests(partials[2:]))
    for at in (0, 1):
        state = state.with_hosts(with_digests([partials[at]]))
        assert of_state(state) == of_partials([*partials[2:], *partials[: at + 1]])


def test_the_state_says_which_partials_it_holds(hosts: Hosts) -> None:
    state = PodState.of(with_digests(hosts["cpu"][:2])).with_hosts([(hosts["cpu"][3], "other")])

    assert [(host.host, host.digest) for host in state.hosts] == [
        ("cpu-0", "digest of cpu-0"),
        ("cpu-1", "digest of cpu-1"),
        ("cpu-3", "other"),
    ]
    assert state.segments == 2


def test_a_host_is_not_merged_twice(hosts: Hosts) -> None:
    state = PodState.of(with_digests(hosts["cpu"][:2]))

    with pytest.raises(PartialError, match="cpu-1 is already"):
        state.with_hosts(with_digests(hosts["cpu"][1:]))


def test_an_empty_state_has_no_hosts() -> None:
    assert len(PodState.of([]).stats().hosts) == 0


def test_segments_of_another_version_are_refused(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = PodState.of(with_digests(hosts["cpu"][:2]))
    monkeypatch.setattr(pod_state, "POD_STATE_VERSION", pod_state.POD_STATE_VERSION + 1)

    with pytest.raises(PartialError, match="made again"):
        PodState([state.newest])


def test_a_missing_segment_is_noticed(hosts: Hosts) -> None:
    state = PodState.of(with_digests(hosts["cpu"][:2]))
    late = state.with_hosts(with_digests(hosts["cpu"][2:]))

    with pytest.raises(PartialError, match="lacks a segment"):
        PodState([late.newest])


@_settings
@given(st.data())
def test_damaged_segments_are_noticed(hosts: Hosts, data: st.DataObject) -> None:
    """In memory: each block is checked when it is read."""
    packed = bytearray(PodState.of(with_digests(hosts["tpu-v5e"][:2])).newest)
    if data.draw(st.booleans()):
        damaged = bytes(packed[: data.draw(st.integers(0, len(packed) - 1))])
        with pytest.raises(PartialError):
            PodState([damaged])
        return
    expected = of_partials(hosts["tpu-v5e"][:2])
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(PartialError):
        # What is between the blocks is of no account.
        assert of_state(PodState([bytes(packed)])) == expected


def test_a_mapped_file_is_read_in_place(hosts: Hosts, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(PodState.of(with_digests(hosts["gpu-h100"])).newest)
    with path.open("rb") as file:
        mapped = mmap(file.fileno(), 0, access=ACCESS_READ)

    assert of_state(PodState([mapped])) == of_partials(hosts["gpu-h100"])
