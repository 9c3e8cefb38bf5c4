"""Columns of the tables about requests and batches; those that several have are defined once."""

from typing import Final

from podscope_analyzers.result import Column

_MODEL: Final = Column("model", "Model", "string")
_REQUEST_COUNT: Final = Column("request_count", "Requests", "integer")
_REQUESTS_PER_SECOND: Final = Column("requests_per_second", "Requests per second", "number", "1/s")
_BATCH_COUNT: Final = Column("batch_count", "Batches", "integer")
_BATCHES_PER_SECOND: Final = Column("batches_per_second", "Batches per second", "number", "1/s")
_PERCENTILE: Final = Column("percentile", "Percentile", "number")
_LATENCY_US: Final = Column("latency_us", "Latency", "number", "us")
_HOST: Final = Column("host", "Host", "string")
_BEGIN_US: Final = Column("begin_us", "Begin", "number", "us")
_BATCH_SIZE: Final = Column("batch_size", "Batch size", "integer")
_BATCHING_EFFICIENCY_RATIO: Final = Column(
    "batching_efficiency_ratio", "Without padding", "number", "ratio"
)
_DEVICE_COMPUTE_US: Final = Column("device_compute_us", "Device compute", "number", "us")

REQUEST_TIMES: Final[tuple[tuple[str, str, str, bool], ...]] = (
    ("batching_delay_us", "Delay until its batch", "delay_ps", False),
    ("host_preprocess_us", "Host preprocess", "preprocess_ps", True),
    ("host_batch_formation_us", "Host batch formation", "formation_ps", False),
    ("host_runtime_us", "Host runtime", "runtime_ps", True),
    ("host_to_device_us", "Copies to the device", "write_ps", True),
    ("device_to_host_us", "Copies from the device", "read_ps", True),
    ("device_compute_us", "Device compute", "device_ps", True),
    ("host_postprocess_us", "Host postprocess", "postprocess_ps", True),
    ("idle_us", "Idle", "idle_ps", True),
)
"""Times of a request, as shown: id, label, column, and whether the device's runtime tells it."""
TIME_COLUMNS: Final = tuple(
    Column(name, label, "number", "us") for name, label, _, _ in REQUEST_TIMES
)

MODEL_COLUMNS: Final = (
    _MODEL,
    _REQUEST_COUNT,
    _REQUESTS_PER_SECOND,
    Column("avg_latency_us", "Average latency", "number", "us"),
    _BATCH_COUNT,
    _BATCHES_PER_SECOND,
    Column("avg_batch_latency_us", "Average latency of a batch", "number", "us"),
    Column("batching_efficiency_ratio", "Batches without padding", "number", "ratio"),
    Column("num_batch_threads", "Batch threads", "integer"),
    Column("max_batch_size", "Largest batch allowed", "integer"),
    Column("batch_timeout_us", "Batch timeout", "integer", "us"),
    Column("max_enqueued_batches", "Batches that may wait", "integer"),
    Column("allowed_batch_sizes", "Batch sizes allowed", "string"),
)
LATENCY_COLUMNS: Final = (
    _MODEL,
    _PERCENTILE,
    _LATENCY_US,
    *TIME_COLUMNS,
)
REQUEST_COLUMNS: Final = (
    _MODEL,
    _PERCENTILE,
    _HOST,
    Column("request_id", "Request", "integer"),
    _BEGIN_US,
    _LATENCY_US,
    Column("request_size", "Request size", "integer"),
    *TIME_COLUMNS,
)
REQUEST_AVERAGE_COLUMNS: Final = (
    _MODEL,
    _BATCH_SIZE,
    _REQUEST_COUNT,
    _REQUESTS_PER_SECOND,
    _LATENCY_US,
    Column("request_size", "Request size", "number"),
    *TIME_COLUMNS,
)
BATCH_COLUMNS: Final = (
    _MODEL,
    _PERCENTILE,
    _HOST,
    Column("batch_id", "Batch", "integer"),
    _BEGIN_US,
    _LATENCY_US,
    Column("padding_amount", "Padding", "integer"),
    Column("batch_size_after_padding", "Size with padding", "integer"),
    _BATCHING_EFFICIENCY_RATIO,
    Column("batching_delay_us", "Delay since its first request", "number", "us"),
    _DEVICE_COMPUTE_US,
    Column("program_ids", "Programs", "string"),
)
BATCH_AVERAGE_COLUMNS: Final = (
    _MODEL,
    _BATCH_SIZE,
    _BATCH_COUNT,
    _BATCHES_PER_SECOND,
    _LATENCY_US,
    Column("padding_amount", "Padding", "number"),
    Column("batch_size_after_padding", "Size with padding", "number"),
    _BATCHING_EFFICIENCY_RATIO,
    Column("batching_delay_us", "Delay since the first request", "number", "us"),
    _DEVICE_COMPUTE_US,
)
