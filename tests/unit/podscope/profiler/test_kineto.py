"""A Kineto trace as an XSpace: what the tools make of it."""

import copy
from typing import Any

import pytest

from podscope.profiler.frameworks.kineto import xspace_of
from podscope_analyzers.pipeline import analyze_host, run_tool
from podscope_analyzers.result import Scope, ToolResult
from podscope_protos.v1.xplane_pb2 import XPlane, XSpace

# Two training steps on one GPU, with the structure of a trace that PyTorch exports.
HOST_THREAD, BACKWARD_THREAD, PROCESS = 4100, 4177, 4100
BASE_NS = 1_790_857_026_000_000_000
# Relative to the base, in microseconds, as Kineto counts.
START_US = 4_391_833_074_000.0


def _span(kind: str, name: str, at: float, length: float, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": kind,
        "name": name,
        "pid": PROCESS,
        "tid": HOST_THREAD,
        "ts": START_US + at,
        "dur": length,
        "args": args,
    }


def _on_gpu(kind: str, name: str, at: float, length: float, **args: Any) -> dict[str, Any]:
    return {
        **_span(kind, name, at, length, **{"device": 0, "context": 1, "stream": 7, **args}),
        "pid": 0,
        "tid": args.get("stream", 7),
    }


def _memory(at: float, size: int, allocated: int, reserved: int, address: int) -> dict[str, Any]:
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": PROCESS,
        "tid": HOST_THREAD,
        "ts": START_US + at,
        "args": {
            "Total Reserved": reserved,
            "Total Allocated": allocated,
            "Bytes": size,
            "Addr": address,
            "Device Id": 0,
            "Device Type": 1,
        },
    }


def _step(number: int, at: float) -> list[dict[str, Any]]:
    first = 100 * number
    return [
        _span("user_annotation", f"ProfilerStep#{number}", at, 1000.0, **{"External id": first}),
        _span(
            "cpu_op",
            "aten::to",
            at + 50,
            40.0,
            **{"External id": first + 1},
        ),
        _span("cuda_runtime", "cudaMemcpyAsync", at + 60, 20.0, correlation=first + 1, device=0),
        _on_gpu(
            "gpu_memcpy",
            "Memcpy HtoD (Pinned -> Device)",
            at + 100,
            50.0,
            **{"External id": first + 1, "correlation": first + 1, "bytes": 4096, "stream": 13},
        ),
        _span(
            "cpu_op",
            "aten::mm",
            at + 200,
            100.0,
            **{
                "External id": first + 2,
                "Input Dims": [[32, 64], [64, 16]],
                "Input type": ["c10::Half", "c10::Half"],
            },
        ),
        _span("cuda_runtime", "cudaLaunchKernel", at + 250, 10.0, correlation=first + 2, device=0),
        _on_gpu(
            "kernel",
            "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn",
            at + 300,
            400.0,
            **{
                "External id": first + 2,
                "correlation": first + 2,
                "registers per thread": 128,
                "shared memory": 49152,
                "grid": [4, 2, 1],
                "block": [128, 1, 1],
                "est. achieved occupancy %": 25,
            },
        ),
        _span("cuda_driver", "cuMemsetD8Async", at + 720, 5.0, correlation=first + 3, device=0),
        _on_gpu(
            "gpu_memset",
            "Memset (Device)",
            at + 750,
            10.0,
            **{"External id": 0, "correlation": first + 3, "bytes": 512},
        ),
    ]


TRACE: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [
        {
            "id": 0,
            "name": "NVIDIA A100-SXM4-40GB",
            "totalGlobalMem": 40_000_000_000,
            "computeMajor": 8,
            "computeMinor": 0,
            "numSms": 108,
        }
    ],
    "host_name": "node-3",
    "baseTimeNanoseconds": BASE_NS,
    "traceEvents": [
        {
            "ph": "M",
            "name": "thread_name",
            "ts": START_US,
            "pid": PROCESS,
            "tid": HOST_THREAD,
            "args": {"name": "thread 4100 (python)"},
        },
        *_step(1, 0.0),
        *_step(2, 1500.0),
        {
            **_span("cpu_op", "autograd::engine::evaluate_function: MmBackward0", 600.0, 90.0),
            "tid": BACKWARD_THREAD,
        },
        _memory(210.0, 1024, 5120, 8192, 0x7000),
        _memory(280.0, -4096, 1024, 8192, 0x6000),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": START_US},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "x"},
        {"name": "process_name", "ph": "M", "pid": "", "args": {}},
    ],
}


def plane(space: XSpace, name: str) -> XPlane:
    [found] = [plane for plane in space.planes if plane.name == name]
    return found


def stats(owner: XPlane, given: Any) -> dict[str, Any]:
    found = {}
    for stat in given:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind)
        if kind == "ref_value":
            value = owner.stat_metadata[value].name
        found[owner.stat_metadata[stat.metadata_id].name] = value
    return found


def events(owner: XPlane, name: str) -> list[tuple[int, int, dict[str, Any]]]:
    """Start and duration in nanoseconds, and stats, of the events of a name."""
    return [
        (event.offset_ps // 1000, event.duration_ps // 1000, stats(owner, event.stats))
        for line in owner.lines
        for event in line.events
        if owner.event_metadata[event.metadata_id].name == name
    ]


def tool(name: str) -> ToolResult:
    partial = analyze_host(xspace_of(TRACE), "node-3")
    return run_tool(name, [partial], Scope(["node-3"]))


def rows(result: ToolResult, table: str) -> list[dict[str, Any]]:
    found = result.tables[table]
    keys = [column.id for column in found.columns]
    return [dict(zip(keys, row, strict=True)) for row in found.rows]


SPACE = XSpace.FromString(xspace_of(TRACE))


def test_operators_go_to_their_threads_and_kernels_to_their_streams() -> None:
    host = plane(SPACE, "/host:CPU")
    assert {line.id: line.name for line in host.lines} == {
        4100: "thread 4100 (python)",
        4177: "thread 4177",
    }
    device = plane(SPACE, "/device:GPU:0")
    assert {line.id: line.name for line in device.lines} == {
        7: "Stream #7(Compute,Memset)",
        13: "Stream #13(MemcpyHtoD)",
    }
    assert SPACE.hostnames == ["node-3"]
    task = plane(SPACE, "Task Environment")
    assert stats(task, task.stats) == {
        "profile_start_time": BASE_NS + int(START_US * 1000),
        "profile_stop_time": BASE_NS + int((START_US + 2500) * 1000),
    }


def test_a_kernel_is_tied_to_its_launch_and_to_its_operator() -> None:
    device = plane(SPACE, "/device:GPU:0")
    kernels = events(device, "ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn")
    assert kernels == [
        (
            begin,
            400_000,
            {
                "correlation_id": correlation,
                "tf_op": "aten::mm",
                "kernel_details": "regs:128 static_shared:49152 dynamic_shared:0"
                " grid:4,2,1 block:128,1,1 occ_pct:25",
            },
        )
        for begin, correlation in ((300_000, 102), (1_800_000, 202))
    ]
    launches = events(plane(SPACE, "/host:CPU"), "cudaLaunchKernel")
    assert [kept["correlation_id"] for _, _, kept in launches] == [102, 202]
    copies = events(device, "MemcpyHToD")
    assert [kept["memcpy_details"].split("\n")[0] for _, _, kept in copies] == [
        "num_bytes:4096"
    ] * 2


def test_kernel_stats_show_the_launch_and_the_tensor_core() -> None:
    [kernel] = rows(tool("kernel_stats"), "kernels")
    assert kernel["kernel_name"].startswith("ampere_fp16")
    expected = {
        "registers_per_thread": 128,
        "shared_memory_bytes": 49152,
        "grid_dim": "4,2,1",
        "block_dim": "128,1,1",
        "occupancy_ratio": 0.25,
        "is_kernel_using_tensor_core": True,
        "op_name": "aten::mm",
        "occurrences": 2,
        "total_duration_us": 800,
    }
    assert {key: kernel[key] for key in expected} == expected


def test_profiler_steps_are_steps_with_their_kernels() -> None:
    host = plane(SPACE, "/host:CPU")
    steps = events(host, "ProfilerStep")
    assert [(begin, kept["step_num"], kept["_r"]) for begin, _, kept in steps] == [
        (0, 1, 1),
        (1_500_000, 2, 1),
    ]
    table = rows(tool("overview_page"), "steps")
    # Of each step the kernel's 400 and the memset's 10 microseconds, and the copy's 50.
    expected = {"device_compute_us": 410, "input_us": 50, "duration_us": 660}
    assert [row["step_name"] for row in table] == ["ProfilerStep 1", "ProfilerStep 2"]
    assert all({key: row[key] for key in expected} == expected for row in table)


def test_memory_profile_shows_the_devices_peak() -> None:
    [allocator] = rows(tool("memory_profile"), "allocators")
    assert (allocator["allocator"], allocator["peak_bytes"]) == ("cuda:0", 5120)
    assert allocator["peak_cached_bytes"] == 3072


def test_allocator_events_are_memory_events() -> None:
    host = plane(SPACE, "/host:CPU")
    [(begin, _, allocation)] = events(host, "MemoryAllocation")
    assert begin == 210_000
    assert allocation == {
        "allocator_name": "cuda:0",
        "requested_bytes": 1024,
        "allocation_bytes": 1024,
        "addr": 0x7000,
        "bytes_allocated": 5120,
        "bytes_reserved": 0,
        "bytes_cached": 3072,
        "bytes_available": 40_000_000_000 - 8192,
        "fragmentation": 0.375,
        "peak_bytes_in_use": 5120,
        "tf_op": "aten::mm",
    }
    [(_, _, release)] = events(host, "MemoryDeallocation")
    assert (release["requested_bytes"], release["bytes_allocated"]) == (4096, 1024)
    assert release["peak_bytes_in_use"] == 5120


def test_the_gpu_is_described() -> None:
    device = plane(SPACE, "/device:GPU:0")
    assert stats(device, device.stats) == {
        "gpu_device_name": "NVIDIA A100-SXM4-40GB",
        "device_vendor": "Nvidia",
        "memory_size": 40_000_000_000,
        "compute_cap_major": 8,
        "compute_cap_minor": 0,
        "core_count": 108,
    }


def test_a_trace_without_events_is_no_profile() -> None:
    assert xspace_of({}) == b""
    assert xspace_of({"traceEvents": [{"ph": "M", "name": "process_name"}]}) == b""


@pytest.mark.parametrize("odd", [None, "text", [], {}, -1, 1e300, float("nan")])
@pytest.mark.parametrize("key", ["args", "dur", "ts", "tid", "pid", "name", "cat"])
def test_an_odd_value_costs_no_more_than_its_event(key: str, odd: Any) -> None:
    trace = copy.deepcopy(TRACE)
    for event in trace["traceEvents"]:
        if event.get("cat") == "gpu_memset":
            event[key] = odd
    space = XSpace.FromString(xspace_of(trace))
    host = plane(space, "/host:CPU")
    assert len(events(host, "ProfilerStep")) == 2
