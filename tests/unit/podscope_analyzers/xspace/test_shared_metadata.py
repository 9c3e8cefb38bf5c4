from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from podscope_analyzers import XSpaceError, open_xspace
from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.host_databases import device_op_database
from podscope_analyzers.prepare import prepare
from podscope_protos.v1 import xplane_pb2

Plane = xplane_pb2.XPlane


def _core(space: xplane_pb2.XSpace, number: int, change: Callable[[Plane], None]) -> None:
    """A core of which operation 1 calls 3, and each operation runs once, ``number`` us long."""
    plane = space.planes.add(id=number, name=f"/device:TPU:{number}")
    for key, name in enumerate(("program_id", "symbol_id", "hlo_category", "tf_op"), 1):
        plane.stat_metadata[key].name = name
    for key in (1, 2, 3):
        about = plane.event_metadata[key]
        about.id, about.name, about.display_name = key, f"%op.{key}", f"op.{key}"
        about.stats.add(metadata_id=1, uint64_value=7)
        about.stats.add(metadata_id=2, uint64_value=key)
        about.stats.add(metadata_id=3, str_value="convolution")
        about.stats.add(metadata_id=4, str_value=f"layer/op_{key}:Op")
    plane.event_metadata[1].child_id.append(3)
    change(plane)
    line = plane.lines.add(id=1, name="XLA Ops", timestamp_ns=1000)
    for key in (1, 2):
        line.events.add(metadata_id=key, offset_ps=key * 10**8, duration_ps=number * 10**6)


def _nothing(plane: Plane) -> None:
    pass


def _space(*changes: Callable[[Plane], None]) -> bytes:
    space = xplane_pb2.XSpace()
    for number, change in enumerate(changes, 1):
        _core(space, number, change)
    # Maps are written in the order in which they were filled.
    return space.SerializeToString(deterministic=True)


def _rename(plane: Plane) -> None:
    plane.event_metadata[2].display_name = "op.9"


def _rename_a_stat(plane: Plane) -> None:
    plane.stat_metadata[4].name = "tf_no"


def _one_more(plane: Plane) -> None:
    plane.event_metadata[4].name = "more"


def _other_ids(plane: Plane) -> None:
    plane.event_metadata[5].CopyFrom(plane.event_metadata[2])
    del plane.event_metadata[2]


def test_planes_of_equal_metadata_have_one_table_and_others_their_own() -> None:
    space = open_xspace(
        _space(_nothing, _rename, _nothing, _rename_a_stat, _one_more, _other_ids, _rename)
    )
    tables = [plane.event_metadata for plane in space.planes]
    kinds = [next(i for i, one in enumerate(tables) if one is table) for table in tables]
    assert kinds == [0, 1, 0, 3, 4, 5, 1]
    assert [table.display_names[1] for table in tables[:3]] == ["op.2", "op.9", "op.2"]
    assert tables[3].stats(0)["tf_no"] == "layer/op_1:Op"


def test_what_is_made_of_a_table_is_made_once_for_the_same_rows() -> None:
    first, second = (plane.event_metadata for plane in open_xspace(_space(*[_nothing] * 2)).planes)
    made: list[list[int]] = []

    def make(rows: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> list[int]:
        made.append(rows.tolist())
        return made[-1]

    for rows in ([0, 1], [0, 1], [1, 0], [1, 0]):
        for table in (first, second):
            found = np.array(rows)
            assert table.made_of(found, "x", partial(make, found)) == rows
    assert made == [[0, 1], [1, 0]]


@pytest.mark.parametrize("change", [_nothing, _rename, _one_more])
def test_operations_of_equal_devices_are_those_of_each_alone(
    change: Callable[[Plane], None],
) -> None:
    together = device_op_database(prepare(open_xspace(_space(_nothing, change))), Programs({}))
    alone = [
        device_op_database(prepare(open_xspace(_space(only))), Programs({}))
        for only in (_nothing, change)
    ]
    # The second core of ``together`` runs twice as long as one alone.
    times = {
        name: [time for one in alone for time in _time(one, name)] for name in ("op.1", "op.2")
    }
    assert _time(together, "op.1") == [times["op.1"][0] + 2 * times["op.1"][1]]
    children = [
        together.text("name", row)
        for row in range(together.top_count, len(together))
        if together.text("provenance", row) == "layer/op_3:Op"
    ]
    assert children == ["op.3"]
    names = {together.text("name", row) for row in range(together.top_count)}
    assert names == {one.text("name", row) for one in alone for row in range(one.top_count)}


def _time(database: object, name: str) -> list[int]:
    from podscope_analyzers.op_metrics.database import OpDatabase

    assert isinstance(database, OpDatabase)
    return [
        int(database.column("time_ps")[row])
        for row in range(database.top_count)
        if database.text("name", row) == name
    ]


def test_a_damaged_copy_of_metadata_is_no_equal_one() -> None:
    raw = bytearray(_space(_nothing, _nothing))
    at = raw.rindex(b"convolution")
    raw[at] = 0xFF
    space = open_xspace(bytes(raw))
    assert space.planes[0].event_metadata.stats(0)["hlo_category"] == "convolution"
    with pytest.raises(XSpaceError, match="cannot be read"):
        space.planes[1].event_metadata.check()
