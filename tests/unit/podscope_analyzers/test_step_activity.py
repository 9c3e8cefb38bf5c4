import numpy as np

from podscope_analyzers import open_xspace
from podscope_analyzers.prepare import prepare
from podscope_analyzers.states import pack_state, unpack_state
from podscope_analyzers.step_activity import StepActivity, step_activity
from podscope_protos.v1 import xplane_pb2

Event = tuple[str, int, int] | tuple[str, int, int, str]


def _space(lines: dict[str, list[Event]]) -> bytes:
    """A host plane; events are (name, start, duration[, hlo_op]) in picoseconds."""
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    plane.stat_metadata[1].id = 1
    plane.stat_metadata[1].name = "hlo_op"
    names: dict[str, int] = {}
    for index, (line_name, events) in enumerate(lines.items()):
        line = plane.lines.add(id=index, name=line_name)
        for name, start, duration, *operation in events:
            key = names.setdefault(name, len(names) + 1)
            plane.event_metadata[key].id = key
            plane.event_metadata[key].name = name
            event = line.events.add(metadata_id=key, offset_ps=start, duration_ps=duration)
            if operation:
                event.stats.add(metadata_id=1, str_value=operation[0])
    return space.SerializeToString()


def _activity(lines: dict[str, list[Event]], *steps: tuple[int, int]) -> StepActivity:
    begin = np.array([begin for begin, _ in steps], dtype=np.int64)
    end = np.array([begin + duration for begin, duration in steps], dtype=np.int64)
    return step_activity(prepare(open_xspace(_space(lines))), begin, end)


def _parts(activity: StepActivity) -> list[tuple[int, int, int, int]]:
    columns = (activity.compute_ps, activity.waiting_ps, activity.input_ps, activity.host_ps)
    return [tuple(int(c[i]) for c in columns) for i in range(len(activity.compute_ps))]  # type: ignore[misc]  # four columns


def test_a_step_is_split_into_computing_waiting_input_and_the_rest() -> None:
    activity = _activity(
        {
            "python": [("train", 0, 1000), ("load_batch", 10, 200), ("$job.py:1 batch", 20, 150)],
            "xla": [("dot.1", 300, 100, "dot.1"), ("all-reduce.3", 400, 500, "all-reduce.3")],
        },
        (0, 1000),
    )
    assert _parts(activity) == [(100, 500, 200, 200)]
    assert activity.phases == ("load_batch",)
    assert activity.phase_ps.tolist() == [[200]]


def test_a_collective_that_computation_hides_is_no_waiting() -> None:
    lines: dict[str, list[Event]] = {
        "python": [("train", 0, 1000)],
        "a": [("all-reduce-start.1", 100, 400, "all-reduce-start.1")],
        "b": [("dot.7", 200, 250, "dot.7")],
    }
    assert _parts(_activity(lines, (0, 1000))) == [(250, 150, 0, 600)]


def test_a_loop_around_a_collective_is_not_computing() -> None:
    lines: dict[str, list[Event]] = {
        "python": [("train", 0, 1000)],
        "a": [
            ("while.2", 0, 900, "while.2"),
            ("region_0", 10, 800, "region_0"),
            ("psum.3", 100, 600, "psum.3"),
        ],
        "b": [("call", 0, 900, "call")],
    }
    assert _parts(_activity(lines, (0, 1000))) == [(0, 600, 0, 400)]


def test_spans_are_cut_at_the_edges_of_the_steps() -> None:
    lines: dict[str, list[Event]] = {
        "python": [("train", 0, 100), ("train", 100, 100)],
        "a": [("all-gather.1", 50, 100, "all-gather.1")],
    }
    assert _parts(_activity(lines, (0, 100), (100, 100))) == [(0, 50, 0, 50), (0, 50, 0, 50)]


def test_a_users_annotation_called_like_a_collective_is_not_one() -> None:
    lines: dict[str, list[Event]] = {"python": [("train", 0, 100), ("send", 10, 50)]}
    assert _parts(_activity(lines, (0, 100))) == [(0, 0, 0, 100)]


def test_a_nccl_kernel_or_a_gloo_call_is_a_collective_without_an_hlo_operation() -> None:
    lines: dict[str, list[Event]] = {
        "python": [("train", 0, 100), ("gloo:all_reduce", 10, 50)],
        "stream": [("ncclDevKernel_AllReduce_Sum", 50, 30)],
    }
    assert _parts(_activity(lines, (0, 100))) == [(0, 70, 0, 30)]


def test_getting_the_next_element_of_a_dataset_is_input_at_any_depth() -> None:
    lines: dict[str, list[Event]] = {
        "python": [
            ("train", 0, 1000),
            ("TFE_Py_FastPathExecute_C", 10, 500),
            ("IteratorGetNextOp::DoCompute", 20, 400),
        ]
    }
    assert _parts(_activity(lines, (0, 1000))) == [(0, 0, 400, 600)]


def test_training_on_a_batch_is_not_input() -> None:
    lines: dict[str, list[Event]] = {"python": [("step 1", 0, 100), ("train_on_batch", 0, 90)]}
    assert _parts(_activity(lines, (0, 100))) == [(0, 0, 0, 100)]


def test_a_function_that_takes_as_long_as_a_step_is_not_its_marker() -> None:
    lines: dict[str, list[Event]] = {
        "python": [("$loop.py:3 run", 0, 100), ("train", 0, 100), ("a", 10, 20)]
    }
    assert _activity(lines, (0, 100)).phases == ("a",)


def test_functions_right_below_the_marker_are_phases_and_those_within_them_are_not() -> None:
    lines: dict[str, list[Event]] = {
        "python": [
            ("train", 0, 100),
            ("$data.py:1 load", 0, 30),
            ("$builtins len", 5, 10),
            ("forward", 40, 50),
            ("$model.py:8 call", 45, 40),
        ]
    }
    activity = _activity(lines, (0, 100))
    assert activity.phases == ("forward", "$data.py:1 load")
    assert activity.phase_ps.tolist() == [[50], [30]]


def test_phases_of_every_step_are_summed_by_name_the_longest_first() -> None:
    lines: dict[str, list[Event]] = {
        "python": [
            ("train", 0, 100),
            ("a", 0, 10),
            ("b", 20, 30),
            ("a", 60, 5),
            ("train", 100, 100),
            ("b", 110, 80),
            ("inner", 120, 10),
        ]
    }
    activity = _activity(lines, (0, 100), (100, 100))
    assert activity.phases == ("b", "a")
    assert activity.phase_ps.tolist() == [[30, 80], [15, 0]]


def test_a_host_without_a_host_plane_spends_its_steps_on_the_rest() -> None:
    space = open_xspace(xplane_pb2.XSpace(hostnames=["host"]).SerializeToString())
    activity = step_activity(prepare(space), np.array([0]), np.array([100]))
    assert _parts(activity) == [(0, 0, 0, 100)]
    assert activity.phases == ()


def test_an_activity_reads_back_as_it_was_stored() -> None:
    lines: dict[str, list[Event]] = {"python": [("train", 0, 100), ("a", 0, 10)]}
    activity = _activity(lines, (0, 100))
    read = StepActivity.from_state(unpack_state(pack_state(activity.to_state())))
    assert _parts(read) == _parts(activity)
    assert read.phases == activity.phases
    assert read.phase_ps.tolist() == activity.phase_ps.tolist()
