"""Captures of serving jobs, made for the tests."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from podscope_protos.v1 import xplane_pb2

US = 1_000_000
Stats = Mapping[str, int | float | str]


@dataclass
class ServingHost:
    """An XSpace of one host: its threads, a TPU core, and the metrics of the server."""

    space: xplane_pb2.XSpace = field(
        default_factory=lambda: xplane_pb2.XSpace(hostnames=["server"])
    )
    rows: dict[tuple[str, str], int] = field(default_factory=dict)
    stats: dict[tuple[str, str], int] = field(default_factory=dict)

    def plane(self, name: str) -> xplane_pb2.XPlane:
        """The plane of this name, a new one if it is new."""
        for plane in self.space.planes:
            if plane.name == name:
                return plane
        return self.space.planes.add(name=name, id=len(self.space.planes))

    def line(self, plane_name: str, name: str) -> xplane_pb2.XLine:
        """The line of this name."""
        plane = self.plane(plane_name)
        for line in plane.lines:
            if line.name == name:
                return line
        return plane.lines.add(id=len(plane.lines) + 1, name=name)

    def event(
        self,
        name: str,
        start_us: float,
        duration_us: float,
        stats: Stats | None = None,
        *,
        thread: str = "main",
        plane: str = "/host:CPU",
    ) -> None:
        """Adds an event to a thread, or to a line of another plane."""
        owner = self.plane(plane)
        row = self.rows.setdefault((plane, name), len(self.rows) + 1)
        owner.event_metadata[row].id = row
        owner.event_metadata[row].name = name
        event = self.line(plane, thread).events.add(
            metadata_id=row,
            offset_ps=round(start_us * US),
            duration_ps=round(duration_us * US),
        )
        for stat, value in (stats or {}).items():
            key = self.stats.setdefault((plane, stat), len(self.stats) + 1)
            owner.stat_metadata[key].id = key
            owner.stat_metadata[key].name = stat
            if isinstance(value, str):
                event.stats.add(metadata_id=key, str_value=value)
            elif isinstance(value, float):
                event.stats.add(metadata_id=key, double_value=value)
            else:
                event.stats.add(metadata_id=key, int64_value=value)

    def module(self, start_us: float, duration_us: float, run: int, program: int = 1) -> None:
        """A run of a program on the core."""
        stats = {"run_id": run, "queue_id": 0}
        name = f"jit_f({program})"
        self.event(name, start_us, duration_us, stats, thread="XLA Modules", plane="/device:TPU:0")

    def bytes(self) -> bytes:
        """The file, its lines in order of time."""
        for plane in self.space.planes:
            for line in plane.lines:
                events = sorted(line.events, key=lambda e: (e.offset_ps, -e.duration_ps))
                del line.events[:]
                line.events.extend(events)
        return self.space.SerializeToString()


def batching_server(seed: int, requests: int = 12, models: tuple[str, ...] = ("m:1",)) -> bytes:
    """Requests that wait for a batch each; a batch takes two or three of one model."""
    dice = random.Random(seed)
    host = ServingHost()
    host.module(0, 0.5, 0)
    at, run, batch_number = 100.0, 1, 0
    left = requests
    while left > 0:
        members = min(left, dice.choice((1, 2, 3)))
        left -= members
        model = dice.choice(models)
        batch_number += 1
        starts = [at + dice.uniform(0, 20) for _ in range(members)]
        batch_at = max(starts) + dice.uniform(5, 30)
        wait = batch_at + 90 + dice.uniform(0, 20)
        for index, start in enumerate(starts):
            thread = f"request {index}"
            host.event("BatchingSessionRun", start, wait - start, {"_r": 1}, thread=thread)
            schedule = {
                "_pt": 1,
                "_p": batch_number,
                "batching_input_task_size": dice.choice((1, 2, 4)),
            }
            name = dice.choice(("ScheduleWithSplit", "ScheduleWithoutSplit"))
            host.event(name, start + 1, 2, schedule, thread=thread)
        about = {"_r": 2, "_ct": 1, "_c": batch_number}
        thread = "batcher"
        took = 80 + dice.uniform(0, 3)
        host.event("ProcessBatch", batch_at, took, about, thread=thread)
        size = dice.choice((4, 8))
        padding = {"padding_amount": dice.choice((0, 1, 2)), "batch_size_after_padding": size}
        host.event("MergeInputTensors", batch_at + 1, 2, padding, thread=thread)
        host.event("SessionRun", batch_at + 4, 70, {"model_id": model}, thread=thread)
        tensors = {"shape": f"f32[{size},3]", "layout": "{1,0}"}
        host.event("Linearize", batch_at + 5, 1 + dice.random(), tensors, thread=thread)
        host.event("TransferH2DRequest", batch_at + 7, 3, thread=thread)
        host.event("tpu::System::Execute", batch_at + 11, 6, thread=thread)
        launch = {"run_id": run, "queue_id": 0, "device_ordinal": 0}
        host.event("DoEnqueueProgram", batch_at + 13, 2, launch, thread=thread)
        half = 15 + dice.uniform(0, 5)
        host.module(batch_at + 16, half, run, dice.choice((11, 4)))
        launch = {"run_id": run + 1, "queue_id": 0, "device_ordinal": 0}
        host.event("DoEnqueueProgram", batch_at + 17, 2, launch, thread=thread)
        host.module(batch_at + 18 + half, half, run + 1, dice.choice((7, 9, 11)))
        host.event("TransferD2HRequest", batch_at + 60, 4, thread=thread)
        host.event("Delinearize", batch_at + 65, 2 + dice.random(), tensors, thread=thread)
        run += 2
        at = wait + dice.uniform(-60, 40)
        at = max(at, batch_at + 85)
    _metrics(host, models)
    return host.bytes()


def _metrics(host: ServingHost, models: tuple[str, ...]) -> None:
    told: dict[str, int | float | str] = {}
    for index, model in enumerate(models):
        labels = f"{{model_name={model.rpartition(':')[0] or model}, op_name=x}}"
        for name, value in (
            ("num_batch_threads", 4 + index),
            ("batch_timeout_micros", 2000),
            ("max_batch_size", 8),
            ("max_enqueued_batches", 100),
            ("allowed_batch_sizes", "4,8"),
        ):
            told[f"/tensorflow/serving/batching/{name}{labels}"] = value
    for start in (1, 9000):
        host.event("TFStreamz", start, 0, told, thread="metrics", plane="/host:tfstreamz")


def plain_server(seed: int, requests: int = 70, models: tuple[str, ...] = ("m:1", "m2")) -> bytes:
    """Requests that run one after the other on one thread."""
    dice = random.Random(seed)
    host = ServingHost()
    at = 100.0
    for run in range(1, requests + 1):
        length = dice.uniform(90, 200)
        about: dict[str, int | float | str] = {"_r": 1, "model_id": dice.choice(models)}
        host.event("SessionRun", at, length, about)
        host.event("TransferH2DRequest", at + 5, 5)
        host.event("tpu::System::Execute", at + 20, 2)
        launch = {"run_id": run, "queue_id": 0, "device_ordinal": 0}
        host.event("DoEnqueueProgram", at + 30, 2, launch)
        host.module(at + 40, dice.uniform(10, 45), run)
        host.event("TransferD2HRequest", at + 80, dice.uniform(1, 8))
        if dice.random() < 0.5:
            host.event("CompleteCallbacks", at + 75, 3, {"run_id": run})
        at += length + dice.uniform(0, 50)
    return host.bytes()


def marked_server(requests: int = 6) -> bytes:
    """A server whose own spans mark the requests, each leading to a batch of its own thread."""
    host = ServingHost()
    host.module(0, 0.5, 0)
    for index in range(requests):
        at = 100.0 + 300 * index
        name = "ModelServerRequest_Predict" if index % 2 else "predict"
        stats = {"_r": 1 if index % 2 else -1, "model_id": 7 + index % 3}
        host.event(name, at, 150 + index, stats)
        host.event("work", at + 10, 100)
        host.event("TransferH2DRequest", at + 12, 5)
    return host.bytes()


@pytest.fixture
def serving_host() -> type[ServingHost]:
    """Makes a host event by event."""
    return ServingHost


@pytest.fixture
def server() -> Callable[..., bytes]:
    """A host that serves: of kind ``plain``, ``batching`` or ``marked``, with its arguments."""
    kinds: dict[str, Callable[..., bytes]] = {
        "plain": plain_server,
        "batching": batching_server,
        "marked": marked_server,
    }

    def make(kind: str, *arguments: object) -> bytes:
        return kinds[kind](*arguments)

    return make
