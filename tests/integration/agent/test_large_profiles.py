"""Profiles above what one message can hold."""

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.integration.agent.daemon import (
    Agent,
    agent,
    answer_with,
    fetched,
    padded,
    profiled,
    profiler,
    status,
)

from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2 as own
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace


def test_a_profile_too_large_for_one_message_is_split_by_process_and_nothing_is_lost() -> None:
    spaces = [padded(f"/host:{name}", 40_000) for name in "abc"]
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(profiler(answer_with(space))) for space in spaces]
        running = stack.enter_context(agent(*targets, max_message_bytes="100000"))
        response, metadata = profiled(running)
        (kept,) = (text for key, text in metadata if key == "podscope-kept")
        third = fetched(running, kept)
        as_xspace, _ = profiled(running, emit_xspace=True)
    first, second = response.tool_data
    assert first.name == "xplane.pb"
    assert second.name.startswith("process-")
    assert second.name.endswith(".xplane.pb")
    parts = [XSpace.FromString(part) for part in (first.data, second.data, third)]
    assert [part.planes[0].name for part in parts] == ["/host:a", "/host:b", "/host:c"]
    assert [len(part.planes[0].lines[0].events) for part in parts] == [2, 2, 2]
    assert kept in parts[0].warnings[-1]
    assert XSpace.FromString(as_xspace.xspace).planes[0].name == "/host:a"
    assert [tool.name for tool in as_xspace.tool_data] == [second.name]


def test_files_of_a_profile_that_is_too_large_are_written_by_process(tmp_path: Path) -> None:
    spaces = [padded(f"/host:{name}", 40_000) for name in "abc"]
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(profiler(answer_with(space))) for space in spaces]
        settings = {"max_message_bytes": "100000", "allow_root": str(tmp_path)}
        running = stack.enter_context(agent(*targets, **settings))
        response, metadata = profiled(running, repository_root=str(tmp_path))
    assert response == wire.ProfileResponse()
    files = [Path(text) for key, text in metadata if key == "podscope-path"]
    assert sorted(files) == sorted((tmp_path / "s").iterdir())
    assert files[0].name == "h_1.xplane.pb"
    assert all(file.name.startswith("h_1.process-") for file in files[1:])
    names = [XSpace.FromString(file.read_bytes()).planes[0].name for file in files]
    assert names == ["/host:a", "/host:b", "/host:c"]


def captured(running: Agent, **more: Any) -> own.CaptureResponse:
    request = wire.ProfileRequest(session_id="s", host_name="h:1", **more).SerializeToString()
    body = own.CaptureRequest(
        capture_id="c", profile_request=request, wait=True, write_to_repository=bool(more)
    )
    answer = running.call(methods.AGENT_CAPTURE, body.SerializeToString())
    return own.CaptureResponse.FromString(answer)


def test_a_collector_gets_such_a_profile_by_process_however_it_comes(tmp_path: Path) -> None:
    spaces = [padded(f"/host:{name}", 1_500_000) for name in "abc"]
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(profiler(answer_with(space))) for space in spaces]
        settings = {"max_message_bytes": "2000000", "allow_root": str(tmp_path)}
        running = stack.enter_context(agent(*targets, **settings))
        kept = captured(running)
        fetched_parts = [fetched(running, "c", part) for part in range(3)]
        with pytest.raises(grpc.RpcError) as failure:
            fetched(running, "c", 3)
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(profiler(answer_with(space))) for space in spaces]
        running = stack.enter_context(agent(*targets, **settings))
        written = captured(running, repository_root=str(tmp_path))
    assert status(failure)[0] is grpc.StatusCode.OUT_OF_RANGE
    files = [Path(path) for path in (written.path, *(part.path for part in written.more_parts))]
    assert sorted(files) == sorted((tmp_path / "s").iterdir())
    for ended, contents in (
        (kept, fetched_parts),
        (written, [file.read_bytes() for file in files]),
    ):
        parts = [XSpace.FromString(content) for content in contents]
        assert [part.planes[0].name for part in parts] == ["/host:a", "/host:b", "/host:c"]
        told = [(ended.size_bytes, ended.sha256)]
        told += [(part.size_bytes, part.sha256) for part in ended.more_parts]
        assert told == [(len(one), hashlib.sha256(one).hexdigest()) for one in contents]
        assert ended.cost.bytes == sum(map(len, contents))


def test_a_profile_that_no_answer_can_hold_is_refused_with_the_way_to_it() -> None:
    space = padded("/host:a", 40_000)
    with profiler(answer_with(space)) as target:
        with agent(target, max_message_bytes="20000") as running:
            with pytest.raises(grpc.RpcError) as failure:
                running.profile()
            code, details = status(failure)
            kept = str(details).split("'")[1]
            assert fetched(running, kept) == space
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.slow
def test_three_hundred_megabytes_pass_through() -> None:
    space = padded("/host:CPU", 300_000_000)
    with profiler(answer_with(space)) as target, agent(target) as running:
        request = wire.ProfileRequest(emit_xspace=True).SerializeToString()
        answer = wire.ProfileResponse.FromString(running.call(methods.PROFILE, request, 120))
        assert answer.xspace == space
        assert running.profile().xspace == space
