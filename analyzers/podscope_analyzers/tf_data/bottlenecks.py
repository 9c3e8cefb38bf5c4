"""What slow tf.data pipelines waited for, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from podscope_analyzers.tf_data.pipelines import (
    SLOW_CALL_PS,
    Iterator,
    Pipeline,
    TfDataStats,
    without_version,
)

_GUIDE: Final = "https://www.tensorflow.org/guide/data_performance"
_ANALYSIS: Final = "https://www.tensorflow.org/guide/data_performance_analysis"
_EXTRACTION: Final = f"{_GUIDE}#parallelizing_data_extraction"
_SERVICE: Final = "https://www.tensorflow.org/api_docs/python/tf/data/experimental/service"
_PARALLEL: Final = f"{_GUIDE}#parallelizing_data_transformation"
_VECTORIZING: Final = f"{_GUIDE}#vectorizing_mapping"
_CACHING: Final = f"{_GUIDE}#caching"
_TRANSFORMATIONS: Final = f"{_ANALYSIS}#transformation_datasets"

_SLOW_SOURCES: Final = frozenset(
    {
        "TFRecord",
        "SSTable",
        "RecordIO",
        "Spanner",
        "TFColumn",
        "SleepwalkRemoteDataset",
        "TextLine",
        "StitchedTimelineDataset",
        "DateKeyDataset",
        "CapacitorProto",
        "LMDB",
        "ExternalDataset",
        "PearModel",
        "FixedLengthRecordV2",
        "FromTensor",
        "TensorSlice",
        "Generator",
        "SyntheticDatasetOp",
    }
)
_REMOTE_SOURCES: Final = frozenset(
    {
        "GuzzlerDataGuzzlerRemoteDataset",
        "ReverbDataset",
        "DatasetSampleGame",
        "Courier",
        "ReverbEpisodeDataset",
    }
)


_PARALLEL_KINDS: Final = frozenset(
    {"ParallelMap", "ParallelInterleave", "MapAndBatch", "ParallelBatch", "ParseExample"}
)


@dataclass(frozen=True)
class Step:
    """One thing to do.

    Attributes:
        text: Parts in backticks are identifiers.
        link: Page that says more; empty for none.
    """

    text: str
    link: str = ""


_CACHE: Final = Step(
    "Consider `cache` after this transformation, if its elements fit into memory and nothing "
    "before it is random (such as `shuffle`).",
    _CACHING,
)
_MORE: Final = Step("More on slow transformations.", _TRANSFORMATIONS)
_STEPS: Final[dict[str, tuple[Step, ...]]] = {
    "slow_source": (
        Step("Check that the host reads from storage near to it: same zone, same region."),
        Step("Read in parallel, with `interleave` over files.", _EXTRACTION),
        Step("More on slow sources.", f"{_ANALYSIS}#source_datasets"),
    ),
    "data_service": (
        Step("Profile a worker of the tf.data service: the time goes there."),
        Step("More on the tf.data service.", _SERVICE),
    ),
    "slow_remote_source": (
        Step("Profile the remote host that serves the data: the time goes there."),
        Step("More on slow sources.", f"{_ANALYSIS}#source_datasets"),
    ),
    "sequential_transformation": (
        Step(
            "Run this transformation in parallel: `num_parallel_calls=tf.data.AUTOTUNE`.",
            _PARALLEL,
        ),
        _CACHE,
        _MORE,
    ),
    "transformation": (
        Step(
            "This transformation has no parallel version: run several of the pipeline side by "
            "side, with an outer `interleave`.",
            _PARALLEL,
        ),
        _CACHE,
        _MORE,
    ),
    "parallel_transformation": (
        Step(
            "It runs in parallel already: let `num_parallel_calls` be `tf.data.AUTOTUNE`, and see "
            "that the host has cores to spare."
        ),
        Step("Transform whole batches: `batch` before `map`.", _VECTORIZING),
        _CACHE,
        Step("When the host's cores are all busy, move it to workers of the service.", _SERVICE),
    ),
    "other": (Step("Follow the analysis of pipelines step by step.", _ANALYSIS),),
}


def kind_of(iterator_name: str) -> str:
    """What sort of work an iterator does, by which advice is chosen."""
    # A second version of an operation (`BatchV2`) does the work of the first.
    name = without_version(iterator_name)
    if iterator_name in _SLOW_SOURCES or name in _SLOW_SOURCES:
        return "slow_source"
    if name == "DataService":
        return "data_service"
    if name in _REMOTE_SOURCES:
        return "slow_remote_source"
    if name in {"Map", "Interleave"}:
        return "sequential_transformation"
    if name in _PARALLEL_KINDS:
        return "parallel_transformation"
    return "transformation" if name in {"Filter", "Batch", "Unbatch"} else "other"


def steps_for(iterator_name: str) -> tuple[Step, ...]:
    """What to do about a pipeline that waits for this iterator."""
    return _STEPS[kind_of(iterator_name)]


class TfDataHost(Protocol):
    """A host of a capture."""

    @property
    def host(self) -> str:
        """Its name in the capture."""

    @property
    def hostname(self) -> str:
        """What its XSpace says."""

    @property
    def tf_data(self) -> TfDataStats:
        """Its tf.data pipelines."""


@dataclass(frozen=True)
class HostPipeline:
    """A pipeline of the host's with what its slowest call waited for.

    Attributes:
        iterator: The one that the call waited for longest; None for none.
        iterator_self_ps: Its self time in that call.
    """

    host: TfDataHost
    pipeline: Pipeline
    iterator: Iterator | None
    iterator_self_ps: int

    @property
    def is_slow(self) -> bool:
        """Whether the slowest call is above the threshold."""
        return self.pipeline.max_latency_ps > SLOW_CALL_PS


def host_pipelines(hosts: Sequence[TfDataHost]) -> list[HostPipeline]:
    """The pipelines that feed hosts, the one with the slowest call first."""
    found = []
    for host in hosts:
        stats = host.tf_data
        for pipeline in stats.pipelines():
            if pipeline.is_device:
                continue
            begin, end = pipeline.entries[:2].tolist()
            iterator_id, self_ps = stats.bottleneck(begin, end)
            known = stats.iterators.get(iterator_id) if self_ps or not iterator_id else None
            found.append(HostPipeline(host, pipeline, known, self_ps))
    return sorted(found, key=lambda one: -one.pipeline.max_latency_ps)


def summary(pipelines: Sequence[HostPipeline]) -> str:
    """One paragraph on whether tf.data keeps the devices waiting."""
    return summary_of(pipelines[0].pipeline.max_latency_ps if pipelines else 0)


def summary_of(slowest_ps: int) -> str:
    """The same, by the slowest call of any pipeline that feeds a host; 0 for none."""
    if slowest_ps > SLOW_CALL_PS:
        return (
            "A tf.data pipeline takes more than 50 us for an element, which keeps a fast device "
            "waiting. For every slow pipeline the iterator that it waits for is named, with advice."
        )
    if slowest_ps > 0:
        return (
            "No tf.data pipeline takes more than 50 us for an element. The program may still wait "
            "for input where hosts are missing from the capture."
        )
    return "The capture has no tf.data activity. If the program uses tf.data, capture for longer."
