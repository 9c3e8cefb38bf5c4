"""Kineto's trace, as PyTorch saves it, in the words of an XSpace."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from podscope import wire
from podscope.profiler.planes import HOST_PLANE, PS_PER_NS, PlaneBuilder, task_plane

Event = Mapping[str, Any]

_HOST_KINDS: Final = frozenset(
    {
        "cpu_op",
        "user_annotation",
        "cuda_runtime",
        "cuda_driver",
        "xpu_runtime",
        "python_function",
        "overhead",
        "mtia_runtime",
    }
)
_DEVICE_KINDS: Final = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel"})
_LAUNCH_KINDS: Final = frozenset({"cuda_runtime", "cuda_driver", "xpu_runtime"})
_OP_KINDS: Final = frozenset({"cpu_op", "user_annotation"})
_STEP: Final = re.compile(r"ProfilerStep#([0-9]+)")
_MEMORY: Final = "[memory]"
_FAILURE: Final = "[OutOfMemory]"
# Kineto's numbers of device types.
_DEVICES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuseone"}
_LONGEST_US: Final = 1e15
_ARGUMENTS: Final = (
    "External id",
    "correlation",
    "device",
    "stream",
    "bytes",
    "Bytes",
    "Addr",
    "Device Id",
    "Device Type",
    "Total Allocated",
    "Total Reserved",
    "registers per thread",
    "shared memory",
    "grid",
    "block",
    "est. achieved occupancy %",
)
"""What of an event's arguments is read."""
_SHAPE: Final = "shape"
_COPY_KINDS: Final = ("HtoD", "DtoH", "DtoD", "HtoH", "PtoP")


def xspace_of(trace: Mapping[str, Any]) -> bytes:
    """Return a Kineto trace as a serialised XSpace.

    Operators, annotations and calls of the driver become events of their thread's line in
    ``/host:CPU``; kernels, copies and memsets those of their stream's in ``/device:GPU:N``, tied
    to their launches by ``correlation_id`` and to their operator by ``tf_op``; allocator events
    become memory events, after docs/reference/tools/memory_profile.md.

    Args:
        trace: What ``torch.profiler`` exports, as read from JSON.
    """
    found = [kept(event) for event in trace.get("traceEvents", ())]
    events = [event for event in found if event is not None]
    if all(event["ph"] == "M" for event in events):
        return b""
    return _Conversion(trace, events).serialised()


def kept(event: Any) -> Event | None:
    """What ``xspace_of`` reads of an event of the trace, a fifth of its memory; None for nothing.

    To keep what was kept already changes nothing.
    """
    if not isinstance(event, dict):
        return None
    if event.get("ph") == "M":
        return event if event.get("name") == "thread_name" else None
    if not _is_usable(event):
        return None
    name, kind = str(event.get("name", "")), event.get("cat", "")
    found = {
        "ph": event["ph"],
        "cat": sys.intern(kind),
        "name": sys.intern(name),
        "pid": event.get("pid"),
        "tid": event.get("tid"),
        "ts": event["ts"],
        "dur": event.get("dur", 0),
    }
    given = event.get("args", {})
    args = {key: given[key] for key in _ARGUMENTS if key in given}
    shapes = given.get("Input Dims")
    if shapes:
        args[_SHAPE] = sys.intern(_shapes(shapes, given.get("Input type", ())))
    elif isinstance(given.get(_SHAPE), str):
        args[_SHAPE] = given[_SHAPE]
    if args:
        found["args"] = args
    return found


def _is_usable(event: Any) -> bool:
    """Whether an event says when it was, in numbers that a profile can hold."""
    return (
        isinstance(event, dict)
        and event.get("ph") in ("X", "i")
        and _is_time(event.get("ts"))
        and _is_time(event.get("dur", 0))
        and isinstance(event.get("args", {}), dict)
        and isinstance(event.get("cat", ""), str)
    )


def _is_time(value: object) -> bool:
    # NaN compares false.
    return isinstance(value, (int, float)) and 0 <= value < _LONGEST_US


class _Conversion:
    def __init__(self, trace: Mapping[str, Any], events: list[Event]) -> None:
        self._base_ns = int(trace.get("baseTimeNanoseconds", 0))
        self._events = [event for event in events if event["ph"] != "M"]
        self._names = _thread_names(events)
        self._devices = {
            int(found["id"]): found for found in trace.get("deviceProperties", ()) if "id" in found
        }
        self._start_ns = min(_start_ns(event) for event in self._events)
        self._stop_ns = max(_start_ns(event) + _duration_ns(event) for event in self._events)
        self._space = wire.XSpace()
        host = str(trace.get("host_name", ""))
        if host:
            self._space.hostnames.append(host)

    def serialised(self) -> bytes:
        kinds = defaultdict(list)
        for event in self._events:
            kinds[event.get("cat", "")].append(event)
        host = [event for kind in _HOST_KINDS for event in kinds.get(kind, ())]
        device = [event for kind in _DEVICE_KINDS for event in kinds.get(kind, ())]
        memory = kinds.get("cpu_instant_event", [])
        self._add_host(host, memory)
        ops = {
            event["args"]["External id"]: event
            for kind in ("user_annotation", "cpu_op")
            for event in kinds.get(kind, ())
            if "External id" in event.get("args", {})
        }
        by_device: defaultdict[int, list[Event]] = defaultdict(list)
        for event in device:
            by_device[_number(event.get("args", {}).get("device", event.get("pid")))].append(event)
        for number in sorted(by_device):
            self._add_device(number, by_device[number], ops)
        start = self._base_ns + self._start_ns
        self._space.planes.append(task_plane(start, self._base_ns + self._stop_ns))
        whole: bytes = self._space.SerializeToString()
        return whole

    def _add_host(self, events: list[Event], memory: list[Event]) -> None:
        plane = PlaneBuilder(self._space.planes.add(name=HOST_PLANE))
        by_thread: defaultdict[int, list[Event]] = defaultdict(list)
        for event in events:
            by_thread[_number(event.get("tid"))].append(event)
        memory_by_thread: defaultdict[int, list[Event]] = defaultdict(list)
        for event in memory:
            memory_by_thread[_number(event.get("tid"))].append(event)
        peaks: dict[str, int] = {}
        for thread in sorted({*by_thread, *memory_by_thread}):
            name = self._names.get(thread, f"thread {thread}")
            line = plane.message.lines.add(id=thread, name=name)
            spans = sorted(by_thread[thread], key=_outer_first)
            for event in spans:
                self._add_host_event(plane, line, event)
            within = _innermost_ops(spans, memory_by_thread[thread])
            for event, op in within:
                self._add_memory_event(plane, line, event, op, peaks)
            line.events.sort(key=lambda event: (event.offset_ps, -event.duration_ps))

    def _add_host_event(self, plane: PlaneBuilder, line: Any, event: Event) -> None:
        name = str(event.get("name", ""))
        kind = event["cat"]
        args = event.get("args", {})
        step = _STEP.fullmatch(name) if kind == "user_annotation" else None
        added = self._timed(line, event, plane.event_id("ProfilerStep" if step else name))
        if step:
            plane.add_stat(added, "_r", 1)
            plane.add_stat(added, "step_num", int(step[1]))
        if kind in _LAUNCH_KINDS and "correlation" in args:
            plane.add_stat(added, "correlation_id", _number(args["correlation"]))
            plane.add_stat(added, "device_id", _number(args.get("device", 0)))
        if _SHAPE in args:
            plane.add_stat(added, "shape", args[_SHAPE])

    def _add_memory_event(
        self, plane: PlaneBuilder, line: Any, event: Event, op: str, peaks: dict[str, int]
    ) -> None:
        args = event.get("args", {})
        given = _number(args.get("Bytes", 0))
        if event["name"] == _FAILURE:
            name = "MemoryAllocationFailure"
        elif event["name"] == _MEMORY and given:
            name = "MemoryAllocation" if given > 0 else "MemoryDeallocation"
        else:
            return
        ordinal = _number(args.get("Device Id", 0))
        kind = _DEVICES.get(_number(args.get("Device Type", 0)), "device")
        allocator = kind if kind == "cpu" or ordinal < 0 else f"{kind}:{ordinal}"
        allocated = _number(args.get("Total Allocated", 0))
        reserved = _number(args.get("Total Reserved", 0))
        peaks[allocator] = max(peaks.get(allocator, 0), allocated)
        added = self._timed(line, event, plane.event_id(name))
        stats: dict[str, object] = {
            "allocator_name": allocator,
            "requested_bytes": abs(given),
            "allocation_bytes": abs(given),
            "addr": _number(args.get("Addr", 0)),
            "bytes_allocated": allocated,
            "bytes_reserved": 0,
            "peak_bytes_in_use": peaks[allocator],
        }
        if reserved > 0:
            cached = max(0, reserved - allocated)
            stats["bytes_cached"] = cached
            stats["fragmentation"] = cached / reserved
            capacity = _number(self._devices.get(ordinal, {}).get("totalGlobalMem", 0))
            if kind != "cpu" and capacity:
                stats["bytes_available"] = max(0, capacity - reserved)
        if op:
            stats["tf_op"] = op
        for key, value in stats.items():
            plane.add_stat(added, key, value)

    def _add_device(self, number: int, events: list[Event], ops: Mapping[Any, Event]) -> None:
        plane = PlaneBuilder(self._space.planes.add(name=f"/device:GPU:{number}"))
        for key, value in _device_stats(self._devices.get(number, {})):
            plane.add_stat(plane.message, key, value)
        by_stream: defaultdict[int, list[Event]] = defaultdict(list)
        for event in events:
            by_stream[_number(event.get("args", {}).get("stream", event.get("tid")))].append(event)
        for stream in sorted(by_stream):
            kinds = sorted({_stream_use(event) for event in by_stream[stream]})
            name = f"Stream #{stream}({','.join(kinds)})"
            line = plane.message.lines.add(id=stream, name=name)
            for event in sorted(by_stream[stream], key=_outer_first):
                self._add_device_event(plane, line, event, ops)

    def _add_device_event(
        self, plane: PlaneBuilder, line: Any, event: Event, ops: Mapping[Any, Event]
    ) -> None:
        args = event.get("args", {})
        added = self._timed(line, event, plane.event_id(_device_name(event)))
        if "correlation" in args:
            plane.add_stat(added, "correlation_id", _number(args["correlation"]))
        op = ops.get(args.get("External id"))
        if op is not None:
            plane.add_stat(added, "tf_op", str(op["name"]))
        if event["cat"] in ("kernel", "concurrent_kernel"):
            plane.add_stat(added, "kernel_details", _kernel_details(args))
        elif event["cat"] == "gpu_memcpy":
            plane.add_stat(added, "memcpy_details", _copy_details(event))
        else:
            plane.add_stat(added, "memset_details", f"num_bytes:{_number(args.get('bytes', 0))}")

    def _timed(self, line: Any, event: Event, name_id: int) -> Any:
        return line.events.add(
            metadata_id=name_id,
            offset_ps=(_start_ns(event) - self._start_ns) * PS_PER_NS,
            duration_ps=_duration_ns(event) * PS_PER_NS,
        )


def _start_ns(event: Event) -> int:
    start: int = round(event["ts"] * 1000)
    return start


def _duration_ns(event: Event) -> int:
    duration: int = round(event.get("dur", 0) * 1000)
    return duration


def _outer_first(event: Event) -> tuple[int, int]:
    return _start_ns(event), -_duration_ns(event)


def _number(value: Any) -> int:
    """A number of the trace; 0 for whatever else JSON may hold there."""
    try:
        number: int = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return number if -(2**63) <= number < 2**63 else 0


def _thread_names(events: Iterable[Event]) -> dict[int, str]:
    found = {}
    for event in events:
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            found[_number(event.get("tid"))] = str(event.get("args", {}).get("name", ""))
    return found


def _innermost_ops(spans: list[Event], memory: list[Event]) -> list[tuple[Event, str]]:
    """The memory events in time order, each with the operator that it happened in."""
    found = []
    ops = [event for event in spans if event["cat"] in _OP_KINDS]
    index = 0
    opened: list[Event] = []
    for event in sorted(memory, key=_start_ns):
        now = _start_ns(event)
        while index < len(ops) and _start_ns(ops[index]) <= now:
            opened.append(ops[index])
            index += 1
        opened = [op for op in opened if _start_ns(op) + _duration_ns(op) >= now]
        found.append((event, str(opened[-1]["name"]) if opened else ""))
    return found


def _shapes(dimensions: object, types: object) -> str:
    if not isinstance(dimensions, list):
        return str(dimensions)
    named = types if isinstance(types, list) else []
    parts = []
    for index, sizes in enumerate(dimensions):
        kind = str(named[index]) if index < len(named) else ""
        inner = ",".join(map(str, sizes)) if isinstance(sizes, list) else str(sizes)
        parts.append(f"{kind}[{inner}]")
    return f"({';'.join(parts)})"


def _device_stats(device: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    if not device:
        return
    name = str(device.get("name", ""))
    yield "gpu_device_name", name
    yield "device_vendor", "AMD" if name.startswith("AMD") else "Nvidia"
    for ours, theirs in (
        ("memory_size", "totalGlobalMem"),
        ("compute_cap_major", "computeMajor"),
        ("compute_cap_minor", "computeMinor"),
        ("core_count", "numSms"),
    ):
        if theirs in device:
            yield ours, _number(device[theirs])


def _stream_use(event: Event) -> str:
    if event["cat"] in ("kernel", "concurrent_kernel"):
        return "Compute"
    if event["cat"] == "gpu_memset":
        return "Memset"
    return f"Memcpy{_copy_kind(event)}"


def _copy_kind(event: Event) -> str:
    """``HtoD`` and the like, of a copy's name (``Memcpy HtoD (Pinned -> Device)``)."""
    name = str(event.get("name", ""))
    return next((kind for kind in _COPY_KINDS if kind in name), "DtoD")


def _device_name(event: Event) -> str:
    if event["cat"] == "gpu_memcpy":
        # As the frameworks' own profilers name it, which is how tools tell copies.
        kind = _copy_kind(event)
        return "MemcpyDToD" if kind == "PtoP" else f"Memcpy{kind[0]}To{kind[3]}"
    return "Memset" if event["cat"] == "gpu_memset" else str(event.get("name", ""))


def _kernel_details(args: Mapping[str, Any]) -> str:
    def three(key: str) -> str:
        sizes = args.get(key)
        return (
            ",".join(str(_number(size)) for size in sizes) if isinstance(sizes, list) else "1,1,1"
        )

    # Kineto tells static and dynamic shared memory as one number.
    return (
        f"regs:{_number(args.get('registers per thread', 0))}"
        f" static_shared:{_number(args.get('shared memory', 0))} dynamic_shared:0"
        f" grid:{three('grid')} block:{three('block')}"
        f" occ_pct:{float(args.get('est. achieved occupancy %', 0) or 0):g}"
    )


def _copy_details(event: Event) -> str:
    size = _number(event.get("args", {}).get("bytes", 0))
    sides = re.search(r"\((\w+) -> (\w+)\)", str(event.get("name", "")))
    source, target = sides.groups() if sides else ("unknown", "unknown")
    return f"num_bytes:{size}\nkind_src:{source.lower()}\nkind_dst:{target.lower()}"
