"""The events of a serving job on one host, as columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from podscope_analyzers.grouping.groups import Groups
from podscope_analyzers.inference.stats import BatchingParameters
from podscope_analyzers.prepared import PreparedLine, PreparedPlane, PreparedSpace
from podscope_analyzers.sorted_values import distinct
from podscope_analyzers.xspace import Columns
from podscope_analyzers.xspace.columns import DOUBLE, INT64, UINT64

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ABSENT: Final = np.iinfo(np.int64).min
STREAMZ_PLANE: Final = "/host:tfstreamz"
_PARAMETERS: Final = "/tensorflow/serving/batching/"
_MODEL_SERVER: Final = "ModelServerRequest_"


class Kind(IntEnum):
    """What an event says of requests. Those that do the same follow each other, as read."""

    OTHER = 0
    BATCHING_SESSION_RUN = 1
    TFRT_MODEL_RUN = 2
    SERVING_MODEL_RUN = 3
    SESSION_RUN = 4
    RUN_GRAPH = 5
    PROCESS_BATCH = 6
    ORBAX_PROCESS_BATCH = 7
    SCHEDULE_WITH_SPLIT = 8
    SCHEDULE_WITHOUT_SPLIT = 9
    SCHEDULE_WITH_EAGER_SPLIT = 10
    SCHEDULE_QUEUE = 11
    CONCAT_INPUT_TENSORS = 12
    ORBAX_CONCAT_INPUT_BUFFERS = 13
    MERGE_INPUT_TENSORS = 14
    BRAIN_SESSION_RUN = 15
    READ_HBM = 16
    TRANSFER_D2H = 17
    WRITE_HBM = 18
    TRANSFER_H2D = 19
    TRANSFER_PREPROCESSED_H2D = 20
    TO_DEVICE_ISSUE = 21
    TO_DEVICE_DONE = 22
    FROM_DEVICE_ISSUE = 23
    FROM_DEVICE_DONE = 24
    EXECUTE_LOCAL = 25
    EXECUTE_REMOTE = 26
    INITIALIZE_VARIABLES = 27
    SYSTEM_EXECUTE = 28
    ENQUEUE_PROGRAM = 29
    ENQUEUE_CONTINUATION = 30
    COMPLETE_CALLBACKS = 31
    LINEARIZE = 32
    DELINEARIZE = 33
    TRANSFER_FAST_PATH = 34


_NAMES: Final[Mapping[str, Kind]] = {
    "BatchingSessionRun": Kind.BATCHING_SESSION_RUN,
    "TfrtModelRun": Kind.TFRT_MODEL_RUN,
    "ServingModelRun": Kind.SERVING_MODEL_RUN,
    "SessionRun": Kind.SESSION_RUN,
    "RunGraph": Kind.RUN_GRAPH,
    "ProcessBatch": Kind.PROCESS_BATCH,
    "OrbaxServing::ProcessBatch": Kind.ORBAX_PROCESS_BATCH,
    "ScheduleWithSplit": Kind.SCHEDULE_WITH_SPLIT,
    "ScheduleWithoutSplit": Kind.SCHEDULE_WITHOUT_SPLIT,
    "ScheduleWithEagerSplit": Kind.SCHEDULE_WITH_EAGER_SPLIT,
    "ASBSQueue::Schedule": Kind.SCHEDULE_QUEUE,
    "ConcatInputTensors": Kind.CONCAT_INPUT_TENSORS,
    "OrbaxServing::ConcatInputBuffers": Kind.ORBAX_CONCAT_INPUT_BUFFERS,
    "MergeInputTensors": Kind.MERGE_INPUT_TENSORS,
    "BrainSessionRun": Kind.BRAIN_SESSION_RUN,
    "ReadHbm": Kind.READ_HBM,
    "TransferD2HRequest": Kind.TRANSFER_D2H,
    "WriteHbm": Kind.WRITE_HBM,
    "TransferH2DRequest": Kind.TRANSFER_H2D,
    "TransferPreprocessedH2DRequest": Kind.TRANSFER_PREPROCESSED_H2D,
    "tpu::System::TransferToDevice=>IssueEvent": Kind.TO_DEVICE_ISSUE,
    "tpu::System::TransferToDevice=>IssueEvent=>Done": Kind.TO_DEVICE_DONE,
    "tpu::System::TransferFromDevice=>IssueEvent": Kind.FROM_DEVICE_ISSUE,
    "tpu::System::TransferFromDevice=>IssueEvent=>Done": Kind.FROM_DEVICE_DONE,
    "TPUPartitionedCallOp-ExecuteLocal": Kind.EXECUTE_LOCAL,
    "TPUPartitionedCallOp-ExecuteRemote": Kind.EXECUTE_REMOTE,
    "TPUPartitionedCallOp-InitializeVarOnTPU": Kind.INITIALIZE_VARIABLES,
    "tpu::System::Execute": Kind.SYSTEM_EXECUTE,
    "DoEnqueueProgram": Kind.ENQUEUE_PROGRAM,
    "DoEnqueueContinuationProgram": Kind.ENQUEUE_CONTINUATION,
    "CompleteCallbacks": Kind.COMPLETE_CALLBACKS,
    "Linearize": Kind.LINEARIZE,
    "Delinearize": Kind.DELINEARIZE,
    "TransferBufferFromDevice-FastPath": Kind.TRANSFER_FAST_PATH,
}
_INTS: Final = (
    "_r",
    "_c",
    "batching_input_task_size",
    "padding_amount",
    "batch_size_after_padding",
)
_TEXTS: Final = ("shape", "layout")


@dataclass(frozen=True)
class ServingEvents:
    """Events of note, in the file's order, shape (n,) each.

    Attributes:
        kind: See :class:`Kind`.
        group: Never negative.
        is_user_root: Whether the program marked it as a request.
        ints: Integer stats by name; ``ABSENT`` where an event has none.
        texts: ``name``, ``model_id``, ``shape`` and ``layout`` as codes into ``table``; -1 where
            an event has none.
        occurring: Kinds that the threads have, also of events that are of no group.
    """

    kind: Int64s
    group: Int64s
    start_ps: Int64s
    end_ps: Int64s
    is_user_root: Bools
    ints: Mapping[str, Int64s]
    texts: Mapping[str, Int64s]
    table: tuple[str, ...]
    occurring: frozenset[int]

    def of(self, *kinds: Kind) -> npt.NDArray[np.intp]:
        """Events of some kinds, kind after kind, in the file's order within each."""
        return np.concatenate([np.flatnonzero(self.kind == kind) for kind in kinds])


def serving_events(plane: PreparedPlane) -> ServingEvents:
    """The events of a host's threads that say something about requests."""
    names = plane.event_metadata.names
    kinds = np.array([_NAMES.get(name, Kind.OTHER) for name in names], np.int64)
    is_server = np.array([name.startswith(_MODEL_SERVER) for name in names], np.bool_)
    table: dict[str, int] = {}
    occurring: set[int] = set()
    parts = [
        part
        for line in plane.lines
        if line.event_count and not line.is_derived
        for part in _of_line(line, kinds, is_server, table, occurring)
    ]
    nothing = np.zeros(0, np.int64)
    fields = ("kind", "group", "start", "end", "root", *_INTS, "name", "model_id", *_TEXTS)
    joined = {name: np.concatenate([nothing, *(part[name] for part in parts)]) for name in fields}
    return ServingEvents(
        kind=joined["kind"],
        group=joined["group"],
        start_ps=joined["start"],
        end_ps=joined["end"],
        is_user_root=joined["root"] != 0,
        ints={name: joined[name] for name in _INTS},
        texts={name: joined[name] for name in ("name", "model_id", *_TEXTS)},
        table=tuple(table),
        occurring=frozenset(occurring),
    )


def _of_line(
    line: PreparedLine,
    kinds: Int64s,
    is_server: Bools,
    table: dict[str, int],
    occurring: set[int],
) -> Iterator[dict[str, Int64s]]:
    """The line's events of note, if it has any."""
    known = line.plane.stat_names
    notable = line.notable
    # All that is of note here is notable. Threads of Python calls have none of it, as a rule, and
    # to decode all of these takes more memory than anything else.
    if notable is not None and not len(_of_note(notable.columns, known, kinds, is_server)[0]):
        return
    columns = line.columns(("_r",) if "_r" in known else ())
    rows, kind, root = _of_note(columns, known, kinds, is_server)
    if not len(rows):
        return
    occurring.update(distinct(kind[rows]).tolist())
    group = np.asarray(line.group_id, np.int64)
    rows = rows[group[rows] >= 0]
    if not len(rows):
        return
    columns = line.columns([name for name in (*_INTS, "model_id", *_TEXTS) if name in known])
    found = {
        "kind": kind[rows],
        "group": group[rows],
        "start": columns.start_ps[rows],
        "end": columns.start_ps[rows] + columns.duration_ps[rows],
        "root": root[rows].astype(np.int64),
    }
    for name in _INTS:
        found[name] = _ints(columns, name, rows)
    for name in ("model_id", *_TEXTS):
        found[name] = _texts(columns, name, rows, table)
    names = line.plane.event_metadata.names
    code_of_row = {
        row: table.setdefault(names[row], len(table))
        for row in distinct(columns.metadata[rows]).tolist()
    }
    found["name"] = np.array([code_of_row[row] for row in columns.metadata[rows].tolist()])
    yield found


def _of_note(
    columns: Columns, known: frozenset[str], kinds: Int64s, is_server: Bools
) -> tuple[npt.NDArray[np.intp], Int64s, Bools]:
    """Rows of the events that say something about requests; of all events kind and whether root."""
    kind = kinds[columns.metadata]
    root = np.zeros(len(columns), np.bool_)
    if "_r" in known:
        level = columns.stat("_r").ints()
        root = (level == -1) | ((level == 1) & is_server[columns.metadata])
    return np.flatnonzero((kind > 0) | root), kind, root


def _ints(columns: Columns, name: str, rows: npt.NDArray[np.intp]) -> Int64s:
    if name not in columns.stat_names:
        return np.full(len(rows), ABSENT)
    stat = columns.stat(name)
    return np.where(stat.present(), stat.ints(), ABSENT)[rows]


def _texts(
    columns: Columns, name: str, rows: npt.NDArray[np.intp], table: dict[str, int]
) -> Int64s:
    """Codes of a stat's text; a number is its digits."""
    if name not in columns.stat_names:
        return np.full(len(rows), -1, np.int64)
    stat = columns.stat(name)
    codes, texts = stat.strings()
    renumbered = np.array([*(table.setdefault(text, len(table)) for text in texts), -1], np.int64)
    found = renumbered[codes[rows]]
    kind = stat.kind[rows]
    for at in np.flatnonzero(np.isin(kind, (DOUBLE, UINT64, INT64))).tolist():
        raw = stat.raw[rows[at]]
        match kind[at]:
            case k if k == DOUBLE:
                text = f"{float(raw.view(np.float64)):g}"
            case k if k == UINT64:
                text = str(int(raw) & (2**64 - 1))
            case _:
                text = str(int(raw))
        found[at] = table.setdefault(text, len(table))
    return found


@dataclass(frozen=True)
class Relations:
    """Which groups led to which, as pairs sorted by parent, then by child."""

    parent: Int64s
    child: Int64s

    @classmethod
    def of(cls, space: PreparedSpace) -> "Relations":
        """The relations of a host's groups; none of a file that was grouped before."""
        pairs = sorted(space.groups.relations()) if isinstance(space.groups, Groups) else []
        table = np.array(pairs, np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def children(self, group: int) -> list[int]:
        """What a group led to, ascending."""
        low, high = np.searchsorted(self.parent, (group, group + 1))
        found: list[int] = self.child[low:high].tolist()
        return found


def batching_parameters(
    space: PreparedSpace, models: tuple[str, ...]
) -> dict[str, BatchingParameters]:
    """How the server of each model was told to batch, from its last snapshot of metrics."""
    plane = space.plane(STREAMZ_PLANE)
    if plane is None or not plane.lines or plane.lines[0].event_count != 2:
        return {}
    told: dict[str, dict[str, object]] = {}
    for name, value in plane.lines[0].event_stats(1).items():
        if not name.startswith(_PARAMETERS):
            continue
        parameter, _, labels = name.removeprefix(_PARAMETERS).partition("{")
        model = _model_label(labels)
        field = next((one for one in vars(BatchingParameters()) if parameter.startswith(one)), None)
        if model is not None and field is not None:
            wanted = str if field == "allowed_batch_sizes" else int
            told.setdefault(model, {})[field] = value if isinstance(value, wanted) else wanted()
    found = {}
    for model in models:
        name, colon, version = model.rpartition(":")
        if colon and not _is_integer(version):
            continue
        parameters = told.get(name if colon else model)
        if parameters is not None:
            found[model] = BatchingParameters(**parameters)  # type: ignore[arg-type]
    return found


def _is_integer(text: str) -> bool:
    return text.lstrip("+-").isdecimal()


def _model_label(labels: str) -> str | None:
    inside, brace, _ = labels.rpartition("}")
    if not brace:
        return None
    pairs = [label.split("=") for label in inside.split(", ")]
    return next((pair[1] for pair in pairs if len(pair) == 2 and pair[0] == "model_name"), None)
