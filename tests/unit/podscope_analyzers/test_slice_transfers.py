"""Transfers between slices, worked by hand."""

from collections.abc import Sequence
from typing import Any

import pytest

from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope, ToolResult
from podscope_analyzers.slice_transfers import bytes_over_network, group_size
from podscope_protos.v1 import hlo_pb2, xplane_pb2

US = 1_000_000
RENDEZVOUS = "_xla_host_transfer_rendezvous"
TRANSFER_TYPE = "_xla_megascale_transfer_type"
CATEGORIES = {
    "send": "host send",
    "recv": "host recv",
    "send-done": "host send-done",
    "recv-done": "host recv-done",
}
Op = tuple[str, float, float]
ONE_CALL: list[Op] = [
    ("send.1", 100, 5),
    ("fusion.1", 110, 90),
    ("recv.1", 205, 2),
    ("send-done.1", 210, 10),
    ("recv-done.1", 230, 40),
]


def endpoints(count: int) -> bytes:
    """A collective's description with one group of so many cores."""
    group = b"".join(bytes([0x0A, 4, 8, i, 16, i]) for i in range(count))
    return bytes([0x08, 4, 0x12, len(group)]) + group


def program(kind: str, elements: int) -> bytes:
    proto = hlo_pb2.HloProto(hlo_module=hlo_pb2.HloModuleProto(name="jit_f"))
    computation = proto.hlo_module.computations.add(name="main", id=1)
    for number, (name, opcode, channel) in enumerate(
        [
            ("send.1", "send", 5),
            ("fusion.1", "fusion", 0),
            ("recv.1", "recv", 6),
            ("send-done.1", "send-done", 5),
            ("recv-done.1", "recv-done", 6),
        ],
        start=1,
    ):
        one = computation.instructions.add(name=name, opcode=opcode, id=number, channel_id=channel)
        if opcode in ("send", "recv"):
            one.frontend_attributes.map[RENDEZVOUS] = "gradients"
            one.frontend_attributes.map[TRANSFER_TYPE] = kind
            one.shape.element_type = hlo_pb2.TUPLE
            one.shape.tuple_shapes.add(element_type=hlo_pb2.F32, dimensions=[elements])
            one.shape.tuple_shapes.add(element_type=hlo_pb2.TOKEN)
    return proto.SerializeToString()


def host(
    ops: Sequence[Op],
    name: str = "h0",
    *,
    kind: str = "ALL_GATHER",
    cores: int = 4,
    run_us: int = 10_000,
    planes: Sequence[str] = ("/device:TPU:0",),
    step_us: int = 0,
) -> HostPartial:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    for plane_name in planes:
        add_core(space.planes.add(name=plane_name, id=1), ops, cores, run_us)
        for step in range(run_us // step_us if step_us else 0):
            add_step(space.planes[-1], step, step * step_us, step_us)
    metadata = space.planes.add(name="/host:metadata", id=9)
    metadata.stat_metadata[1].id, metadata.stat_metadata[1].name = 1, "Hlo Proto"
    entry = metadata.event_metadata[7]
    entry.id, entry.name = 7, "jit_f(7)"
    entry.stats.add(metadata_id=1).bytes_value = program(kind, 1024)
    threads = space.planes.add(name="/host:CPU", id=10)
    threads.event_metadata[1].id, threads.event_metadata[1].name = 1, "MegaScale: transfer"
    threads.lines.add(name="thread", id=1).events.add(metadata_id=1, duration_ps=10)
    partial = analyze_host(space.SerializeToString(), name)
    # Stored and read back, as the service does it.
    return HostPartial.from_bytes(partial.to_bytes())


def add_core(plane: xplane_pb2.XPlane, ops: Sequence[Op], cores: int, run_us: int) -> None:
    for number, stat in enumerate(
        ("program_id", "hlo_category", "dcn_collective_info", "symbol_id"), start=1
    ):
        plane.stat_metadata[number].id, plane.stat_metadata[number].name = number, stat
    runs, line = plane.lines.add(name="XLA Modules", id=1), plane.lines.add(name="XLA Ops", id=2)
    plane.event_metadata[1].id, plane.event_metadata[1].name = 1, "jit_f(7)"
    runs.events.add(metadata_id=1, duration_ps=run_us * US)
    keys: dict[str, int] = {}
    for op, begin, duration in ops:
        key = keys.setdefault(op, len(keys) + 2)
        if key not in plane.event_metadata:
            entry = plane.event_metadata[key]
            entry.id, entry.name, entry.display_name = key, f"%{op} = f32[]", op
            opcode = op.rpartition(".")[0]
            entry.stats.add(metadata_id=1).int64_value = 7
            entry.stats.add(metadata_id=4).int64_value = key
            entry.stats.add(metadata_id=2).str_value = CATEGORIES.get(opcode, opcode)
            if opcode == "send":
                entry.stats.add(metadata_id=3).bytes_value = endpoints(cores)
        line.events.add(metadata_id=key, offset_ps=int(begin * US), duration_ps=int(duration * US))


def add_step(plane: xplane_pb2.XPlane, step: int, begin_us: int, duration_us: int) -> None:
    if not step:
        plane.lines.add(name="Steps", id=3)
    key = 1000 + step
    plane.event_metadata[key].id, plane.event_metadata[key].name = key, str(step)
    plane.lines[-1].events.add(
        metadata_id=key, offset_ps=begin_us * US, duration_ps=duration_us * US
    )


def training(name: str, compute: float, wait: float, kind: str = "ALL_REDUCE") -> HostPartial:
    """Five steps of 1 ms: so much computation between the transfers, so much waiting at the end."""
    ops = [
        *(("send.1", 0, 10), ("recv.1", 10, 10), ("send-done.1", 20, 20)),
        *(("fusion.1", 40, compute), ("recv-done.1", 40 + compute, wait)),
    ]
    steps = [
        (op, 1000 * step + begin, duration) for step in range(5) for op, begin, duration in ops
    ]
    return host(steps, name, kind=kind, run_us=5000, step_us=1000)


def breakdown(partial: HostPartial) -> dict[str, float]:
    found: Any = run_tool("overview_page", [partial], Scope([partial.host])).result["breakdown"]
    return {one["category"]: one["ratio"] for one in found if one["ratio"]}


def advice(*partials: HostPartial) -> dict[str, str]:
    found = run_tool("overview_page", partials, Scope([one.host for one in partials])).advice
    return {one.code: one.message for one in found}


def shown(*partials: HostPartial) -> ToolResult:
    return run_tool("megascale_stats", partials, Scope([one.host for one in partials]))


def rows(result: ToolResult, table: str = "collectives") -> list[dict[str, Any]]:
    found = result.tables[table]
    names = [column.id for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def reference(*partials: HostPartial) -> list[list[Any]]:
    found: Any = run_tool_xprof("megascale_stats", partials)
    return [[cell["v"] for cell in row["c"]] for row in found[0]["rows"]]


def test_slack_is_the_time_between_send_and_recv_done_that_was_not_spent_in_transfers() -> None:
    (row,) = rows(shown(host(ONE_CALL)))
    assert (row["rendezvous"], row["transfer_type"]) == ("gradients", "ALL_GATHER")
    assert (row["send_op"], row["recv_op"]) == ("send.1", "recv-done.1")
    assert row["slack_us"] == 230 - 100 - (5 + 2 + 10)
    assert row["observed_us"] == 270 - 100
    assert row["stall_us"] == 5 + 2 + 10 + 40
    assert [row[f"{part}_us"] for part in ("send", "recv", "send_done", "recv_done")] == [
        5,
        2,
        10,
        40,
    ]
    assert row["sent_bytes"] == 3 * 4096 // 4
    assert row["required_bytes_per_second"] == pytest.approx(3072 / 113e-6)


def test_occurrences_are_averaged_and_their_stalls_summed() -> None:
    later = [(op, begin + 1000, duration + 1) for op, begin, duration in ONE_CALL]
    (row,) = rows(shown(host([*ONE_CALL, *later])))
    assert (row["occurrences"], row["stall_us"], row["total_stall_us"]) == (2, 59, 118)
    assert row["slack_us"] == pytest.approx((113 + 110) / 2)


def test_hosts_and_cores_add_up_and_each_host_is_listed() -> None:
    one = host(ONE_CALL, "a")
    two = host(ONE_CALL, "b", planes=("/device:TPU:0", "/device:TPU:1"))
    result = shown(one, two)
    (row,) = rows(result)
    assert (row["hosts"], row["occurrences"]) == (2, 3)
    assert [(found["host"], found["occurrences"]) for found in rows(result, "by_host")] == [
        ("a", 1),
        ("b", 2),
    ]
    # The reference looks at each host's first core.
    assert reference(one, two)[0][13] == 2


def test_a_wait_without_a_send_is_no_occurrence_of_ours() -> None:
    again = [(op, begin + 1000, duration) for op, begin, duration in ONE_CALL[2:]]
    (row,) = rows(shown(host([*ONE_CALL, *again])))
    assert row["occurrences"] == 1
    assert reference(host([*ONE_CALL, *again]))[0][13] == 2


def test_what_is_outside_of_a_programs_run_does_not_count() -> None:
    result = shown(host(ONE_CALL, run_us=220))
    assert result.status == "empty"
    assert [reason.code for reason in result.reasons] == ["no_slice_transfers"]


def test_transfers_that_overlap_have_no_slack_and_require_no_rate() -> None:
    busy: list[Op] = [
        ("send.1", 100, 50),
        ("recv.1", 160, 30),
        ("send-done.1", 195, 30),
        ("recv-done.1", 205, 40),
    ]
    (row,) = rows(shown(host(busy)))
    assert (row["slack_us"], row["required_bytes_per_second"]) == (-5, None)
    # Unsigned nanoseconds there.
    assert reference(host(busy))[0][4] == pytest.approx((2**64 - 5000) / 1e6)


def test_the_references_table_has_whole_microseconds() -> None:
    found: Any = run_tool_xprof("megascale_stats", [host(ONE_CALL)])
    cells = found[0]["rows"][0]["c"]
    assert [cell["v"] for cell in cells[4:14]] == [
        0.113, "-", 0.17, 0.005, 0.01, 0, 0.04, 0.057, 0.057, 1,
    ]  # fmt: skip
    assert cells[14] == {"v": 3072.0, "f": "3.0K"}
    assert cells[15]["v"] == pytest.approx(3072 * 8 / 113_000)


@pytest.mark.parametrize(
    ("kind", "cores", "expected"),
    [
        ("ONE_TO_ONE", 1, 1000),
        ("ALL_GATHER", 4, 750),
        ("ALL_REDUCE", 4, 1500),
        ("ALL_TO_ALL", 4, 750),
        ("REDUCE_SCATTER", 4, 3000),
        ("ALL_GATHER", 0, 0),
        ("RAGGED_ALL_TO_ALL", 4, 0),
    ],
)
def test_bytes_over_the_network_are_by_type(kind: str, cores: int, expected: int) -> None:
    assert bytes_over_network(kind, cores, 1000) == expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [(endpoints(3), 3), (endpoints(2) + bytes([0x1A, 0]), 1), (b"", 0), (b"\xff\xff", 0)],
)
def test_the_size_of_a_group_is_read(info: bytes, expected: int) -> None:
    assert group_size(info) == expected


def test_waiting_for_another_slice_is_a_collective_and_no_input() -> None:
    partial = training("h0", compute=540, wait=410)
    assert breakdown(partial) == pytest.approx(
        {"device_compute": 0.54, "collectives": 0.45, "other": 0.01}, abs=1e-9
    )
    assert set(advice(partial)) & {"communication_bound", "input_bound", "outside_compilation"} == {
        "communication_bound"
    }


def test_transfers_of_no_collective_stay_input_and_output() -> None:
    partial = training("h0", compute=540, wait=410, kind="")
    assert breakdown(partial) == pytest.approx(
        {"device_compute": 0.54, "input": 0.42, "output": 0.03, "other": 0.01}, abs=1e-9
    )
    assert "communication_bound" not in advice(partial)


def test_the_host_that_other_slices_wait_for_is_the_late_one() -> None:
    hosts = [
        training(name, compute, 950 - compute)
        for name, compute in [("a", 400), ("b", 900), ("c", 400)]
    ]
    assert advice(*hosts)["straggler"].startswith(
        "The other hosts wait for b: it is 0.50 ms late in a typical step"
    )
