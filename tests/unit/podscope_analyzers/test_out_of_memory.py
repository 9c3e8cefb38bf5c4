"""What runtimes say when memory runs out, and the report that is made of it."""

from typing import Any

import pytest

from podscope_analyzers.out_of_memory import read_message, tells_of_no_memory
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope, ToolResult
from podscope_protos.v1 import xplane_pb2

MIB = 1 << 20
GIB = 1 << 30
Stats = dict[str, int | str]

XLA = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12345678 bytes."
XLA_PLAIN = "RESOURCE_EXHAUSTED: Out of memory allocating 68719476736 bytes."
TPU_RUN = (
    "RESOURCE_EXHAUSTED: Attempting to reserve 4.00G at the bottom of memory. That was not "
    "possible. There are 3.50G free, 0B reserved, and 3.50G reservable."
)
TPU_COMPILE = (
    "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 17.25G of "
    "15.50G hbm. Exceeded hbm capacity by 1.75G."
)
TENSORFLOW = (
    "OOM when allocating tensor with shape[512,1024] and type float on /job:localhost/replica:0/"
    "task:0/device:GPU:0 by allocator GPU_0_bfc"
)
BFC = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.50GiB with freed_by_count=0."
TORCH = (
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 40.00 GiB of "
    "which 10.00 MiB is free. Including non-PyTorch memory, this process has 39.9 GiB memory in "
    "use. Of the allocated memory 38.50 GiB is allocated by PyTorch, and 300.00 MiB is reserved."
)
TORCH_CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 70368744177664 bytes. Error code 12 (Cannot allocate memory)"
)
NUMPY = "Unable to allocate 8.00 TiB for an array with shape (1048576, 1048576) and type float64"
TORCH_1 = (
    "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 16.00 GiB total capacity; 14.50 GiB "
    "already allocated; 512.00 MiB free; 14.75 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("text", "requested", "free", "used", "capacity"),
    [
        (XLA, 12345678, None, None, None),
        (XLA_PLAIN, 64 * GIB, None, None, None),
        (TPU_RUN, 4 * GIB, 7 * GIB // 2, None, None),
        (TPU_COMPILE, None, None, 69 * GIB // 4, 31 * GIB // 2),
        (TENSORFLOW, 2 * MIB, None, None, None),
        (BFC, 5 * GIB // 2, None, None, None),
        (TORCH, 20 * MIB, 10 * MIB, 77 * GIB // 2, 40 * GIB),
        (TORCH_CPU, 64 << 40, None, None, None),
        (NUMPY, 8 << 40, None, None, None),
        (TORCH_1, GIB, GIB // 2, 29 * GIB // 2, 16 * GIB),
    ],
)
def test_messages_are_read(
    text: str, requested: int | None, free: int | None, used: int | None, capacity: int | None
) -> None:
    assert tells_of_no_memory(text)
    found = read_message(text)
    assert (found.requested_bytes, found.free_bytes) == (requested, free)
    assert (found.used_bytes, found.capacity_bytes) == (used, capacity)


@pytest.mark.parametrize("text", [TENSORFLOW, BFC])
def test_the_allocator_is_read(text: str) -> None:
    assert read_message(text).allocator == "GPU_0_bfc"


@pytest.mark.parametrize(
    "text",
    [
        "$train.py:12 handle_out_of_memory",
        "an out of memory handler",
        "OutOfMemoryError",
        "RESOURCE_EXHAUSTED: quota of requests",
        "MemoryAllocation",
        "Tried to allocate 3 rooms",
        "",
    ],
)
def test_other_texts_are_no_such_message(text: str) -> None:
    assert not tells_of_no_memory(text)


@pytest.mark.parametrize("number", ["1" * 33, "1" * 3980, "1," * 40])
def test_a_long_run_of_digits_is_no_size(number: str) -> None:
    for text in (f"{number} bytes free", f"tried to allocate {number} bytes", number):
        found = read_message(f"out of memory. {text}")
        sizes = (found.requested_bytes, found.free_bytes, found.used_bytes, found.capacity_bytes)
        assert sizes == (None, None, None, None)
        assert not tells_of_no_memory(f"out of memory. {text}")


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0" * 31 + "7", 7),
        ("9,223,372,036,854,775,808", 1 << 63),
        ("4,096.", 4096),
        ("1." + "5" * 500, 2),
    ],
)
def test_sizes_up_to_the_longest_are_read(number: str, expected: int) -> None:
    found = read_message(f"Tried to allocate {number} bytes ({number}B free)")
    assert (found.requested_bytes, found.free_bytes) == (expected, expected)


def host(events: list[tuple[str, int, Stats]], errors: tuple[str, ...] = ()) -> HostPartial:
    space = xplane_pb2.XSpace(hostnames=["vm"], errors=errors)
    plane = space.planes.add(name="/host:CPU")
    line = plane.lines.add(id=1, name="python")
    names: dict[str, int] = {}
    ids: dict[str, int] = {}
    for name, offset_ps, values in events:
        key = names.setdefault(name, len(names) + 1)
        event = line.events.add(metadata_id=key, offset_ps=offset_ps)
        for stat_name, value in values.items():
            stat = event.stats.add(metadata_id=ids.setdefault(stat_name, len(ids) + 1))
            if isinstance(value, str):
                stat.str_value = value
            else:
                stat.int64_value = value
    for name, key in names.items():
        plane.event_metadata[key].id, plane.event_metadata[key].name = key, name
    for name, key in ids.items():
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
    return analyze_host(space.SerializeToString(), "h0")


def made(address: int, size: int, used: int, op_name: str, capacity: int = 1000) -> Stats:
    return {
        "allocator_name": "GPU_0_bfc",
        "bytes_allocated": used * MIB,
        "bytes_available": (capacity - used) * MIB,
        "requested_bytes": size * MIB,
        "allocation_bytes": size * MIB,
        "addr": address,
        "tf_op": op_name,
        "region_type": "temp",
        "shape": f"[{size}]",
    }


def filling(capacity: int = 1000) -> list[tuple[str, int, Stats]]:
    """300 MiB from before, then activations of 200 and twice 150, something of 100 in between."""
    return [
        ("MemoryAllocation", 10, made(1, 200, 500, "layer_0/activations", capacity)),
        ("MemoryAllocation", 20, made(2, 150, 650, "layer_1/activations", capacity)),
        ("MemoryAllocation", 30, made(3, 100, 750, "scratch", capacity)),
        ("MemoryDeallocation", 40, made(3, 100, 650, "", capacity)),
        ("MemoryAllocation", 50, made(4, 150, 800, "layer_1/activations", capacity)),
    ]


def failed(requested: int, free: int, **more: int | str) -> Stats:
    return {
        "allocator_name": "GPU_0_bfc",
        "requested_bytes": requested * MIB,
        "bytes_allocated": 800 * MIB,
        "bytes_available": free * MIB,
        "tf_op": "layer_2/matmul",
        **more,
    }


def profile(partial: HostPartial, **parameters: str) -> ToolResult:
    # Stored and read back, as the service does it.
    read = HostPartial.from_bytes(partial.to_bytes())
    read = read.with_part("allocations", partial.part_to_bytes("allocations"))
    return run_tool("memory_profile", [read], Scope(["h0"]), parameters)


def rows(result: ToolResult, table: str) -> list[dict[str, Any]]:
    found = result.tables[table]
    names = [column.id for column in found.columns]
    return [dict(zip(names, row, strict=True)) for row in found.rows]


def test_a_failed_allocation_says_what_was_asked_what_was_there_and_what_to_shrink() -> None:
    events = [*filling(), ("MemoryAllocationFailure", 60, failed(450, 200))]
    result = profile(host(events))
    report = result.result["out_of_memory"]
    assert report["kind"] == "failed_allocation"
    assert report["op_name"] == "layer_2/matmul"
    assert report["requested_bytes"] == 450 * MIB
    assert report["free_bytes"] == 200 * MIB
    assert report["used_bytes"] == 800 * MIB
    assert report["capacity_bytes"] == 1000 * MIB
    assert report["missing_bytes"] == 250 * MIB
    assert report["is_fragmented"] is False
    assert report["time_ms"] == pytest.approx(6e-8)
    assert [
        (row["op_name"], row["total_bytes"] // MIB, row["occurrences"], row["is_enough"])
        for row in rows(result, "to_shrink")
    ] == [
        ("allocated before the capture", 300, 1, True),
        ("layer_1/activations", 300, 2, True),
        ("layer_0/activations", 200, 1, True),
    ]
    assert any("rematerialisation" in text for text in report["advice"])
    assert len(set(report["advice"])) == len(report["advice"])


def test_what_nothing_says_of_a_failure_is_unknown() -> None:
    # PyTorch's profiler tells of a host's memory neither what is free nor a limit.
    failed: Stats = {"allocator_name": "cpu", "requested_bytes": 1 << 46, "bytes_allocated": MIB}
    found = run_tool(
        "memory_profile", [host([("MemoryAllocationFailure", 9000, failed)])], Scope(["h0"])
    )
    report: Any = found.result["out_of_memory"]
    assert (report["requested_bytes"], report["used_bytes"]) == (1 << 46, MIB)
    for name in ("free_bytes", "capacity_bytes", "missing_bytes"):
        assert report[name] is None, name
    # Nothing that is in use is as large.
    assert report["advice"][0].startswith("What was asked for is more than all")
    full = host([("MemoryAllocationFailure", 9000, {**failed, "bytes_available": 0})])
    told: Any = run_tool("memory_profile", [full], Scope(["h0"])).result["out_of_memory"]
    assert (told["free_bytes"], told["missing_bytes"]) == (0, 1 << 46)


def test_what_was_freed_before_the_failure_is_not_to_shrink() -> None:
    events = filling()
    events.insert(3, ("MemoryAllocationFailure", 35, failed(900, 250)))
    result = profile(host(events))
    names = {row["op_name"] for row in rows(result, "to_shrink")}
    assert "scratch" in names
    last = [row for row in rows(result, "to_shrink") if not row["is_enough"]]
    assert [row["cumulative_bytes"] // MIB for row in last] == [300, 500]


def test_enough_in_pieces_is_fragmentation() -> None:
    events = [*filling(), ("MemoryAllocationFailure", 60, failed(150, 200))]
    report = profile(host(events)).result["out_of_memory"]
    assert (report["is_fragmented"], report["missing_bytes"]) == (True, 0)
    assert "not in one piece" in report["advice"][0]


def test_what_a_caching_allocator_keeps_counts_as_free_for_fragmentation() -> None:
    """PyTorch's form: cached memory is not available, but is not in use either."""
    stats = failed(150, 100, bytes_cached=80 * MIB)
    report = profile(host([*filling(), ("[OutOfMemory]", 60, stats)])).result["out_of_memory"]
    assert (report["cached_bytes"], report["is_fragmented"]) == (80 * MIB, True)


def test_the_first_failure_is_reported_and_all_are_listed() -> None:
    events = [
        *filling(),
        ("MemoryAllocationFailure", 70, failed(10, 0)),
        ("MemoryAllocationFailure", 60, failed(450, 200)),
    ]
    result = profile(host(events))
    assert result.result["out_of_memory"]["requested_bytes"] == 450 * MIB
    assert [row["requested_bytes"] // MIB for row in rows(result, "shortages")] == [450, 10]


def test_a_message_among_the_captures_errors_is_reported() -> None:
    result = profile(host(filling(), errors=(BFC,)))
    report = result.result["out_of_memory"]
    assert (report["kind"], report["allocator"]) == ("reported", "GPU_0_bfc")
    assert report["message"] == BFC
    assert (report["requested_bytes"], report["free_bytes"]) == (5 * GIB // 2, 200 * MIB)
    assert report["time_ms"] is None
    assert sum(row["total_bytes"] for row in rows(result, "to_shrink")) == 800 * MIB


def test_a_message_without_any_allocator_is_reported_too() -> None:
    result = profile(host([], errors=(TPU_COMPILE,)))
    report = result.result["out_of_memory"]
    assert result.status == "ok"
    assert (report["allocator"], report["missing_bytes"]) == ("", 7 * GIB // 4)
    assert rows(result, "to_shrink") == []
    assert "memory_viewer" in report["advice"][0]


def test_an_error_traced_as_an_event_is_reported_at_its_time() -> None:
    report = profile(host([*filling(), (TORCH, 25, {})])).result["out_of_memory"]
    assert (report["kind"], report["requested_bytes"]) == ("reported", 20 * MIB)
    assert report["time_ms"] == pytest.approx(2.5e-8)


def test_an_allocator_that_is_nearly_full_is_reported() -> None:
    report = profile(host(filling(capacity=830))).result["out_of_memory"]
    assert (report["kind"], report["free_bytes"]) == ("nearly_full", 30 * MIB)
    assert profile(host(filling(capacity=850))).result["out_of_memory"] is None


def test_an_allocator_that_does_not_know_its_capacity_is_not_nearly_full() -> None:
    events = filling()
    for _, _, stats in events:
        del stats["bytes_available"]
    assert profile(host(events)).result["out_of_memory"] is None


def test_a_failure_of_another_allocator_is_left_out_when_one_is_chosen() -> None:
    cpu = {**made(9, 1, 1, "x"), "allocator_name": "cpu"}
    events = [
        *filling(),
        ("MemoryAllocation", 55, cpu),
        ("MemoryAllocationFailure", 60, failed(450, 200)),
    ]
    partial = host(events)
    assert profile(partial, allocator="cpu").result["out_of_memory"] is None
    assert profile(partial, allocator="GPU_0_bfc").result["out_of_memory"] is not None


def test_the_references_answer_knows_nothing_of_failures() -> None:
    plain: Any = run_tool_xprof("memory_profile", [host(filling())])
    events = [*filling(), ("MemoryAllocationFailure", 60, failed(450, 200))]
    assert run_tool_xprof("memory_profile", [host(events)]) == plain
