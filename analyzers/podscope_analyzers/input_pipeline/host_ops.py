"""The host's side of the input pipeline: which operations feed the device, and their shares."""

from dataclasses import dataclass

from podscope_analyzers.input_pipeline.summaries import safe_divide
from podscope_analyzers.op_metrics.database import OpDatabase

_READERS = ("TFRecord", "TextLine", "FixedLengthRecord", "SSTable", "RecordIO", "ArrayRecord")
_READER_SUFFIXES = tuple(f"::{reader}" for reader in _READERS)
_AHEAD = ("MemoryReader", "MemoryWriter", "Interleave", "Prefetch", "ParallelMap")
_AHEAD_PARTS = tuple(f"::{stage}" for stage in _AHEAD)

ENQUEUE = "Enqueue"
DEMANDED = "Demanded file read"
ADVANCED = "Advanced file read"
PREPROCESSING = "Preprocessing"
UNKNOWN = "Unknown"
# Stages of newer input libraries say in their category what they are.
_STAGES = {
    "enqueue": ENQUEUE,
    "read": DEMANDED,
    "preprocessing": PREPROCESSING,
    "unknown": UNKNOWN,
}


@dataclass(frozen=True)
class InputOp:
    """One operation of the input pipeline.

    Attributes:
        time_ratio: Its time as a share of the self time of all input operations; may exceed 1.
    """

    name: str
    count: int
    time_ms: float
    time_ratio: float
    self_time_ms: float
    self_time_ratio: float
    category: str


@dataclass(frozen=True)
class InputTime:
    """Time that the host spent on input, in microseconds, by class."""

    enqueue_us: float = 0.0
    demanded_file_read_us: float = 0.0
    advanced_file_read_us: float = 0.0
    preprocessing_us: float = 0.0
    unclassified_us: float = 0.0

    @property
    def uses_tf_data(self) -> bool:
        """Whether anything was read or prepared."""
        return (self.demanded_file_read_us + self.advanced_file_read_us + self.preprocessing_us) > 0


def input_class(name: str, category: str) -> str | None:
    """The class of a host operation; None when it is not of the input pipeline."""
    stage = _STAGES.get(category.lower())
    if stage is not None:
        return stage
    if category.startswith("InfeedEnqueue") or category == "MemcpyHToD":
        return ENQUEUE
    if category != "Dataset":
        return None
    if name.endswith(_READER_SUFFIXES):
        return ADVANCED if any(part in name for part in _AHEAD_PARTS) else DEMANDED
    return PREPROCESSING


def input_ops(host_ops: OpDatabase) -> list[InputOp]:
    """Operations of the input pipeline by self time, longest first, then by name."""
    occurrences, time_ps = host_ops.top("occurrences"), host_ops.top("time_ps")
    self_ps = host_ops.top("self_time_ps")
    found = [
        (row, name, category)
        for row in host_ops.order_by_self_time().tolist()
        if (
            category := input_class(
                name := host_ops.text("name", row), host_ops.text("category", row)
            )
        )
    ]
    total_ps = sum(int(self_ps[row]) for row, _, _ in found)
    return [
        InputOp(
            name=name,
            count=int(occurrences[row]),
            time_ms=int(time_ps[row]) / 1e9,
            time_ratio=safe_divide(int(time_ps[row]), total_ps),
            self_time_ms=int(self_ps[row]) / 1e9,
            self_time_ratio=safe_divide(int(self_ps[row]), total_ps),
            category=category,
        )
        for row, name, category in found
    ]


def input_time(ops: list[InputOp], host_ops: OpDatabase, *, transfer_ratio: float) -> InputTime:
    """Where the host's input time went.

    Args:
        ops: What ``input_ops`` found.
        host_ops: For the spacing of the infeed enqueues, when the host enqueues.
        transfer_ratio: Share of the step that copies to the device, for a host that does not.
    """
    if not ops:
        return InputTime()

    def self_us(category: str) -> float:
        return sum(1000 * op.self_time_ms for op in ops if op.category == category)

    enqueue, demanded = self_us(ENQUEUE), self_us(DEMANDED)
    advanced, preprocessing = self_us(ADVANCED), self_us(PREPROCESSING)
    total = demanded + advanced + preprocessing
    if host_ops.infeed_enqueue_start_difference_ps > 0:
        transfer_ratio = safe_divide(
            host_ops.infeed_enqueue_ps, host_ops.infeed_enqueue_start_difference_ps
        )
    ratio = min(1.0, transfer_ratio)
    # Enqueueing takes `ratio` of the time between two enqueues; the rest is getting the data.
    rest = enqueue * (1 - ratio) / ratio if ratio != 0 else total
    demanded, advanced, preprocessing = (
        safe_divide(rest * part, total) for part in (demanded, advanced, preprocessing)
    )
    return InputTime(
        enqueue_us=enqueue,
        demanded_file_read_us=demanded,
        advanced_file_read_us=advanced,
        preprocessing_us=preprocessing,
        unclassified_us=max(0.0, rest - demanded - advanced - preprocessing),
    )
