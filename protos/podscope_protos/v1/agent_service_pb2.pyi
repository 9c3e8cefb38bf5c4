from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClockPingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClockPingResponse(_message.Message):
    __slots__ = ("received_wall_ns", "sent_wall_ns", "received_monotonic_ns", "sent_monotonic_ns")
    RECEIVED_WALL_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_WALL_NS_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_MONOTONIC_NS_FIELD_NUMBER: _ClassVar[int]
    SENT_MONOTONIC_NS_FIELD_NUMBER: _ClassVar[int]
    received_wall_ns: int
    sent_wall_ns: int
    received_monotonic_ns: int
    sent_monotonic_ns: int
    def __init__(self, received_wall_ns: _Optional[int] = ..., sent_wall_ns: _Optional[int] = ..., received_monotonic_ns: _Optional[int] = ..., sent_monotonic_ns: _Optional[int] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ("duration_ms",)
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    def __init__(self, duration_ms: _Optional[int] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("version", "host", "labels", "targets", "devices", "limits", "is_busy", "spool_free_bytes", "memory_available_bytes", "step_time", "refusal")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    TARGETS_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    IS_BUSY_FIELD_NUMBER: _ClassVar[int]
    SPOOL_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_AVAILABLE_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    version: str
    host: str
    labels: _containers.ScalarMap[str, str]
    targets: _containers.RepeatedCompositeFieldContainer[TargetDescription]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceDescription]
    limits: Limits
    is_busy: bool
    spool_free_bytes: int
    memory_available_bytes: int
    step_time: StepTime
    refusal: str
    def __init__(self, version: _Optional[str] = ..., host: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., targets: _Optional[_Iterable[_Union[TargetDescription, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[DeviceDescription, _Mapping]]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., is_busy: bool = ..., spool_free_bytes: _Optional[int] = ..., memory_available_bytes: _Optional[int] = ..., step_time: _Optional[_Union[StepTime, _Mapping]] = ..., refusal: _Optional[str] = ...) -> None: ...

class StepTime(_message.Message):
    __slots__ = ("seconds", "source")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    source: str
    def __init__(self, seconds: _Optional[float] = ..., source: _Optional[str] = ...) -> None: ...

class TargetDescription(_message.Message):
    __slots__ = ("address", "state", "detail", "source", "pid", "framework", "labels", "started_at_ns")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[TargetDescription.State]
        STATE_READY: _ClassVar[TargetDescription.State]
        STATE_BUSY: _ClassVar[TargetDescription.State]
        STATE_UNREACHABLE: _ClassVar[TargetDescription.State]
        STATE_INCOMPATIBLE: _ClassVar[TargetDescription.State]
    STATE_UNSPECIFIED: TargetDescription.State
    STATE_READY: TargetDescription.State
    STATE_BUSY: TargetDescription.State
    STATE_UNREACHABLE: TargetDescription.State
    STATE_INCOMPATIBLE: TargetDescription.State
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    address: str
    state: TargetDescription.State
    detail: str
    source: str
    pid: int
    framework: str
    labels: _containers.ScalarMap[str, str]
    started_at_ns: int
    def __init__(self, address: _Optional[str] = ..., state: _Optional[_Union[TargetDescription.State, str]] = ..., detail: _Optional[str] = ..., source: _Optional[str] = ..., pid: _Optional[int] = ..., framework: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ..., started_at_ns: _Optional[int] = ...) -> None: ...

class DeviceDescription(_message.Message):
    __slots__ = ("kind", "id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    id: str
    def __init__(self, kind: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("max_duration_ms", "min_interval_ms", "max_time_ratio", "spool_bytes", "keep_ms", "allowed_roots")
    MAX_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_TIME_RATIO_FIELD_NUMBER: _ClassVar[int]
    SPOOL_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_ROOTS_FIELD_NUMBER: _ClassVar[int]
    max_duration_ms: int
    min_interval_ms: int
    max_time_ratio: float
    spool_bytes: int
    keep_ms: int
    allowed_roots: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, max_duration_ms: _Optional[int] = ..., min_interval_ms: _Optional[int] = ..., max_time_ratio: _Optional[float] = ..., spool_bytes: _Optional[int] = ..., keep_ms: _Optional[int] = ..., allowed_roots: _Optional[_Iterable[str]] = ...) -> None: ...

class CaptureRequest(_message.Message):
    __slots__ = ("capture_id", "profile_request", "wait", "write_to_repository")
    CAPTURE_ID_FIELD_NUMBER: _ClassVar[int]
    PROFILE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    WRITE_TO_REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    capture_id: str
    profile_request: bytes
    wait: bool
    write_to_repository: bool
    def __init__(self, capture_id: _Optional[str] = ..., profile_request: _Optional[bytes] = ..., wait: bool = ..., write_to_repository: bool = ...) -> None: ...

class CaptureResponse(_message.Message):
    __slots__ = ("capture_id", "state", "size_bytes", "sha256", "path", "grpc_code", "message", "cost", "more_parts")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[CaptureResponse.State]
        STATE_RUNNING: _ClassVar[CaptureResponse.State]
        STATE_DONE: _ClassVar[CaptureResponse.State]
        STATE_EMPTY: _ClassVar[CaptureResponse.State]
        STATE_FAILED: _ClassVar[CaptureResponse.State]
    STATE_UNSPECIFIED: CaptureResponse.State
    STATE_RUNNING: CaptureResponse.State
    STATE_DONE: CaptureResponse.State
    STATE_EMPTY: CaptureResponse.State
    STATE_FAILED: CaptureResponse.State
    CAPTURE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    GRPC_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    MORE_PARTS_FIELD_NUMBER: _ClassVar[int]
    capture_id: str
    state: CaptureResponse.State
    size_bytes: int
    sha256: str
    path: str
    grpc_code: str
    message: str
    cost: CaptureCost
    more_parts: _containers.RepeatedCompositeFieldContainer[CapturedPart]
    def __init__(self, capture_id: _Optional[str] = ..., state: _Optional[_Union[CaptureResponse.State, str]] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., path: _Optional[str] = ..., grpc_code: _Optional[str] = ..., message: _Optional[str] = ..., cost: _Optional[_Union[CaptureCost, _Mapping]] = ..., more_parts: _Optional[_Iterable[_Union[CapturedPart, _Mapping]]] = ...) -> None: ...

class CapturedPart(_message.Message):
    __slots__ = ("suffix", "size_bytes", "sha256", "path")
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    suffix: str
    size_bytes: int
    sha256: str
    path: str
    def __init__(self, suffix: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class CaptureCost(_message.Message):
    __slots__ = ("wall_seconds", "agent_cpu_seconds", "bytes", "target_seconds")
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    AGENT_CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TARGET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    wall_seconds: float
    agent_cpu_seconds: float
    bytes: int
    target_seconds: float
    def __init__(self, wall_seconds: _Optional[float] = ..., agent_cpu_seconds: _Optional[float] = ..., bytes: _Optional[int] = ..., target_seconds: _Optional[float] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("capture_id",)
    CAPTURE_ID_FIELD_NUMBER: _ClassVar[int]
    capture_id: str
    def __init__(self, capture_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("was_running",)
    WAS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    was_running: bool
    def __init__(self, was_running: bool = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("capture_id", "offset", "part")
    CAPTURE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    capture_id: str
    offset: int
    part: int
    def __init__(self, capture_id: _Optional[str] = ..., offset: _Optional[int] = ..., part: _Optional[int] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("offset", "piece", "size_bytes", "sha256")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    offset: int
    piece: bytes
    size_bytes: int
    sha256: str
    def __init__(self, offset: _Optional[int] = ..., piece: _Optional[bytes] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ...) -> None: ...

class ReportFiguresRequest(_message.Message):
    __slots__ = ("device_kind", "duty_cycle_ratio", "flops_per_second", "peak_flops_per_second", "step_time_seconds", "captured_at_ns")
    DEVICE_KIND_FIELD_NUMBER: _ClassVar[int]
    DUTY_CYCLE_RATIO_FIELD_NUMBER: _ClassVar[int]
    FLOPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    PEAK_FLOPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CAPTURED_AT_NS_FIELD_NUMBER: _ClassVar[int]
    device_kind: str
    duty_cycle_ratio: float
    flops_per_second: float
    peak_flops_per_second: float
    step_time_seconds: float
    captured_at_ns: int
    def __init__(self, device_kind: _Optional[str] = ..., duty_cycle_ratio: _Optional[float] = ..., flops_per_second: _Optional[float] = ..., peak_flops_per_second: _Optional[float] = ..., step_time_seconds: _Optional[float] = ..., captured_at_ns: _Optional[int] = ...) -> None: ...

class ReportFiguresResponse(_message.Message):
    __slots__ = ("was_taken",)
    WAS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    was_taken: bool
    def __init__(self, was_taken: bool = ...) -> None: ...
