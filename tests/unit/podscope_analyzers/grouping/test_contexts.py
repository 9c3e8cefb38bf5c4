"""What links events of different threads."""

import numpy as np
import pytest
from tests.unit.podscope_analyzers.grouping.found_groups import HOST, SpaceMaker

from podscope_analyzers import XSpace
from podscope_analyzers.grouping.contexts import CONTEXT_STATS, LineContexts, line_contexts
from podscope_analyzers.grouping.event_types import node_types
from podscope_analyzers.prepare import prepare


def contexts_of(space: XSpace) -> LineContexts:
    plane = space.planes[0]
    columns = plane.lines[0].columns(CONTEXT_STATS & plane.stat_names)
    return line_contexts(node_types(plane.event_metadata.names)[columns.metadata], columns)


@pytest.mark.case("U1")
def test_batches_are_roots_above_requests(make_space: SpaceMaker) -> None:
    found = contexts_of(
        make_space({HOST: {"main": [("ProcessBatch", 0, 10), ("BatchingSessionRun", 20, 10)]}})
    )
    assert found.roots.values.tolist() == [2, 1]


@pytest.mark.case("U2")
@pytest.mark.parametrize(
    ("iterations", "equal"),
    [pytest.param((456, 456), True, id="equal"), pytest.param((456, 789), False, id="other")],
)
def test_an_executor_launches_what_has_its_iteration(
    make_space: SpaceMaker, iterations: tuple[int, int], equal: bool
) -> None:
    found = contexts_of(
        make_space(
            {
                HOST: {
                    "main": [
                        (
                            "ExecutorState::Process",
                            100,
                            100,
                            {"id": 123, "iter_num": iterations[0]},
                        ),
                        ("TpuExecuteOp", 200, 100, {"id": 123, "iter_num": iterations[1]}),
                    ]
                }
            }
        )
    )
    assert found.producer_types.values.tolist() == [1]
    assert found.consumer_types.values.tolist() == [1]
    assert (found.producer_ids.values[0] == found.consumer_ids.values[0]) == equal


@pytest.mark.case("U2")
def test_without_iterations_nothing_is_implied(make_space: SpaceMaker) -> None:
    found = contexts_of(
        make_space(
            {
                HOST: {
                    "main": [
                        ("ExecutorState::Process", 100, 100, {"id": 123}),
                        ("TpuExecuteOp", 200, 100, {"id": 123}),
                    ]
                }
            }
        )
    )
    assert not len(found.producer_types.events)
    assert not len(found.consumer_types.events)


@pytest.mark.case("U3")
def test_run_ids_of_the_host_are_cut_to_27_bits(make_space: SpaceMaker) -> None:
    found = contexts_of(
        make_space(
            {
                HOST: {
                    "main": [
                        ("DoEnqueueProgram", 0, 1, {"run_id": 582974244}),
                        ("CompleteCallbacks", 2, 1, {"run_id": 582974244}),
                        ("TpuExecuteOp", 4, 1, {"run_id": 46103332}),
                        ("DoEnqueueContinuationProgram", 6, 1),
                    ]
                }
            }
        )
    )
    assert found.run_ids.events.tolist() == [0, 1, 2]
    assert found.run_ids.values.tolist() == [46103332, 46103332, 46103332]


@pytest.mark.case("U4")
@pytest.mark.parametrize("reverse", [False, True])
def test_regions_lie_between_their_start_and_stop(make_space: SpaceMaker, reverse: bool) -> None:
    pairs = [(400, 500), (200, 300)] if reverse else [(200, 300)]
    events = [
        event
        for start, stop in pairs
        for event in (
            ("ThreadpoolListener::StartRegion", start, 0, {"_c": 123}),
            ("ThreadpoolListener::StopRegion", stop, 0, {"_c": 123}),
        )
    ]
    space = prepare(make_space({HOST: {"pool": events}}))
    plane = space.host_plane
    assert plane is not None
    columns = plane.lines[0].columns(("_c",))
    names = [plane.event_metadata.names[row] for row in columns.metadata]
    regions = [i for i, name in enumerate(names) if name == "ThreadpoolListener::Region"]
    expected = sorted(start for start, _ in pairs)
    assert columns.start_ps[regions].tolist() == expected
    assert columns.duration_ps[regions].tolist() == [100] * len(pairs)
    assert np.all(np.diff(columns.start_ps) >= 0)
    assert not columns.stat("_c").present()[regions].any()
    assert plane.lines[0].event_stats(regions[0]) == {}
