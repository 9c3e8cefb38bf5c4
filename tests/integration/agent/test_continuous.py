"""Continuous profiling of a whole host."""

import contextlib
from collections.abc import Iterator

import grpc
from tests.integration.agent.daemon import agent, answer_with, failure_of, profiler, xspace

from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire
from podscope_protos.v1.xplane_pb2 import XSpace


class Continuous:
    """A profiler server in continuous mode, as a stock one."""

    def __init__(self, space: bytes) -> None:
        self.space = space
        self.is_running = False

    def start(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        if self.is_running:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "A profiling session is already running.")
        self.is_running = True
        return b""

    def snapshot(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        self._require(context)
        return wire.ProfileResponse(xspace=self.space).SerializeToString()

    def stop(self, _body: bytes, context: grpc.ServicerContext) -> bytes:
        self._require(context)
        self.is_running = False
        return b""

    def _require(self, context: grpc.ServicerContext) -> None:
        if not self.is_running:
            text = "No continuous profiling session found."
            context.abort(grpc.StatusCode.NOT_FOUND, text)


@contextlib.contextmanager
def continuous(space: bytes) -> Iterator[tuple[Continuous, str]]:
    target = Continuous(space)
    methods_of = {
        "StartContinuousProfiling": target.start,
        "GetSnapshot": target.snapshot,
        "StopContinuousProfiling": target.stop,
    }
    with profiler(answer_with(space), **methods_of) as address:
        yield target, address


def test_continuous_profiling_is_relayed_and_a_target_without_it_costs_only_itself() -> None:
    none_found = (grpc.StatusCode.NOT_FOUND, "No continuous profiling session found.")
    with contextlib.ExitStack() as stack:
        one, first = stack.enter_context(continuous(xspace("/host:CPU")))
        two, second = stack.enter_context(continuous(xspace("/device:TPU:0", events=5)))
        old = stack.enter_context(profiler(answer_with(xspace())))
        running = stack.enter_context(agent(first, old, second))
        for path in (methods.GET_SNAPSHOT, methods.STOP_CONTINUOUS_PROFILING):
            assert failure_of(running, path) == none_found
        assert running.call(methods.START_CONTINUOUS_PROFILING, b"") == b""
        assert one.is_running
        assert two.is_running
        assert failure_of(running, methods.START_CONTINUOUS_PROFILING) == (
            grpc.StatusCode.ALREADY_EXISTS,
            "A profiling session is already running.",
        )
        answer = wire.ProfileResponse.FromString(running.call(methods.GET_SNAPSHOT, b""))
        space = XSpace.FromString(answer.xspace)
        assert [p.name for p in space.planes] == ["/host:CPU", "/device:TPU:0"]
        [warning] = space.warnings
        assert old in warning
        assert "UNIMPLEMENTED" in warning
        assert running.call(methods.STOP_CONTINUOUS_PROFILING, b"") == b""
        assert not one.is_running
        assert failure_of(running, methods.GET_SNAPSHOT) == none_found


def test_an_agent_that_stops_leaves_no_target_in_continuous_mode() -> None:
    with continuous(xspace()) as (target, address):
        with agent(address) as running:
            running.call(methods.START_CONTINUOUS_PROFILING, b"")
            assert target.is_running
        assert not target.is_running


def test_continuous_profiling_without_any_target_that_can_is_unimplemented() -> None:
    with profiler(answer_with(xspace())) as old, agent(old) as running:
        code, _ = failure_of(running, methods.START_CONTINUOUS_PROFILING)
    assert code is grpc.StatusCode.UNIMPLEMENTED
