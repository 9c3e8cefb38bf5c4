import numpy as np
import pytest

from podscope_analyzers.inference_latency import Requests, latency
from podscope_analyzers.states import pack_state, unpack_state


def _requests(
    spans: list[tuple[int, int]], models: tuple[str, ...] = (), model: list[int] | None = None
) -> Requests:
    count = len(spans)
    return Requests(
        models=models,
        model=np.array(model if model is not None else [-1] * count, dtype=np.int64),
        begin_ps=np.array([begin for begin, _ in spans], dtype=np.int64),
        end_ps=np.array([end for _, end in spans], dtype=np.int64),
        device_ps=np.full(count, 100),
        write_ps=np.zeros(count, np.int64),
        read_ps=np.zeros(count, np.int64),
    )


def test_percentiles_are_elements_of_the_sorted_requests_and_the_average_is_last() -> None:
    index = np.arange(100)
    requests = Requests(
        models=(),
        model=np.full(100, -1),
        begin_ps=np.zeros(100, np.int64),
        end_ps=index * 10_000,
        device_ps=index * 1_000,
        write_ps=index * 1_000,
        read_ps=np.zeros(100, np.int64),
    )
    rows = latency(requests).rows
    assert [row.percentile for row in rows] == [50.0, 75.0, 90.0, 99.0, 99.9, None]
    median, worst, average = rows[0], rows[4], rows[5]
    for row, expected in (
        (median, (0.5, 0.4, 0.05, 0.05)),
        (worst, (0.99, 0.792, 0.099, 0.099)),
        (average, (0.495, 0.396, 0.0495, 0.0495)),
    ):
        got = (row.total_us, row.host_us, row.device_us, row.communication_us)
        assert got == pytest.approx(expected, abs=1e-9)


def test_throughput_is_summed_over_the_models() -> None:
    requests = _requests(
        [(1000, 2000), (3000, 4000), (2000, 3000), (4000, 5000)], ("A", "B"), [0, 0, 1, 1]
    )
    assert latency(requests).sessions_per_second == pytest.approx(2 * 666666666.6666666)


def test_without_model_names_all_requests_are_of_one_model() -> None:
    requests = _requests([(1000, 2000), (2000, 4000), (3000, 6000), (4000, 8000)])
    assert list(requests.by_model()) == ["ALL"]
    assert latency(requests).sessions_per_second == pytest.approx(571428571.4285715)


def test_no_requests_give_an_empty_table() -> None:
    assert latency(Requests.empty()).rows == ()
    assert latency(Requests.combine([])).sessions_per_second == 0


def test_equal_model_names_of_two_hosts_are_one_model() -> None:
    one = _requests([(0, 10), (0, 20)], ("A", "B"), [0, 1])
    other = _requests([(0, 30), (0, 40), (0, 50)], ("B", "C"), [0, 1, -1])
    rows = Requests.combine([one, other]).by_model()
    assert {name: len(found) for name, found in rows.items()} == {"A": 1, "B": 2, "C": 1}


def test_requests_read_back_as_they_were_stored() -> None:
    requests = _requests([(0, 10)], ("A",), [0])
    read = Requests.from_state(unpack_state(pack_state(requests.to_state())))
    assert read.models == ("A",)
    assert read.end_ps.tolist() == [10]
