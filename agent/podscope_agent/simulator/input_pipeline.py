"""Host events of the input pipeline: iterator calls and the threads that prepare batches."""

from typing import Final

from podscope_agent.simulator.encoding import LineWriter, PlaneWriter

_ROOT = "Iterator::Root"
_PREFETCH = f"{_ROOT}::Prefetch"
_BATCH = f"{_PREFETCH}::BatchV2"
_MAP = f"{_BATCH}::ParallelMapV2"
_READ = f"{_MAP}::TFRecord"
_IDS = {_ROOT: 1001, _PREFETCH: 1002, _BATCH: 1003, _MAP: 1004, _READ: 1005}
_STAGE_NAMES = {
    _ROOT: "PrefetchDataset:4",
    _PREFETCH: "PrefetchDataset:4",
    _BATCH: "BatchDatasetV2:3",
    _MAP: "ParallelMapDatasetV2:2",
    _READ: "TFRecordDataset:1",
}

INPUT_STAGES: Final = {"batch": _BATCH, "map": _MAP, "read": _READ}
"""Stages of the pipeline that can be the slowest one."""


def slowest_iterator(stage: str) -> str:
    """The iterator that stands for a stage, by its full name."""
    return INPUT_STAGES[stage]


class InputPipeline:
    """Writes what a ``tf.data`` pipeline leaves in a host trace.

    Args:
        plane: The host's plane.
        producer: Line of the thread that fills the prefetch buffer.
        slow_stage: Which stage takes most of the time itself (`INPUT_STAGES`).
    """

    def __init__(self, plane: PlaneWriter, producer: LineWriter, slow_stage: str = "read") -> None:
        self._plane = plane
        self._slowest = slowest_iterator(slow_stage)
        self._producer = producer
        self._encoded: dict[str, bytes] = {}

    def get_next(self, line: LineWriter, step: int, start_ps: int, duration_ps: int) -> None:
        """A consumer that waits ``duration_ps`` for the batch of ``step``."""
        plane = self._plane
        head = plane.event_head("IteratorGetNextOp::DoCompute")
        stats = plane.event_stats(id=77, iter_num=step, element_size=262144)
        line.add(head, start_ps, duration_ps, stats)
        root_ps = duration_ps * 9 // 10
        offset = start_ps + duration_ps // 20
        line.add(plane.event_head(_ROOT), offset, root_ps, self._stage(_ROOT, None))
        inner = (offset + root_ps // 20, root_ps * 9 // 10)
        line.add(plane.event_head(_PREFETCH, "Iterator::Prefetch"), *inner,
                 self._stage(_PREFETCH, _ROOT, buffer_limit=2, autotune="false"))  # fmt: skip
        consumed = plane.event_stats(element_id=self._element(step))
        line.add(plane.event_head("PrefetchConsume"), inner[0] + inner[1] - 1_000_000 * (
            inner[1] > 2_000_000), min(inner[1], 1_000_000), consumed)  # fmt: skip

    def produce(self, step: int, start_ps: int, duration_ps: int) -> None:
        """The producer's work on the batch of ``step``."""
        plane, line = self._plane, self._producer
        produced = plane.event_stats(element_id=self._element(step))
        line.add(plane.event_head("PrefetchProduce"), start_ps, duration_ps, produced)
        start, length = start_ps, duration_ps
        for stage, parent in ((_BATCH, _PREFETCH), (_MAP, _BATCH), (_READ, _MAP)):
            start += length // 20
            # What is below the slow stage has a fifth of its time.
            length = length * (2 if parent == self._slowest else 8) // 10
            name = f"Iterator::{stage.rpartition('::')[2]}"
            line.add(plane.event_head(stage, name), start, length, self._stage(stage, parent))

    def _stage(self, stage: str, parent: str | None, **extra: int | str) -> bytes:
        if stage not in self._encoded:
            values: dict[str, int | str] = {"name": _STAGE_NAMES[stage], "id": _IDS[stage]}
            if parent is not None:
                values["parent_id"] = _IDS[parent]
            self._encoded[stage] = self._plane.event_stats(**values, **extra)
        return self._encoded[stage]

    @staticmethod
    def _element(step: int) -> int:
        return 1 << 32 | step & 0xFFFFFFFF
