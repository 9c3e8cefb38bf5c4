from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ToolRequestOptions(_message.Message):
    __slots__ = ("output_formats", "save_to_repo")
    OUTPUT_FORMATS_FIELD_NUMBER: _ClassVar[int]
    SAVE_TO_REPO_FIELD_NUMBER: _ClassVar[int]
    output_formats: str
    save_to_repo: bool
    def __init__(self, output_formats: _Optional[str] = ..., save_to_repo: bool = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("duration_ms", "max_events", "tools", "tool_options", "opts", "repository_root", "session_id", "host_name", "emit_xspace")
    class ToolOptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ToolRequestOptions
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ToolRequestOptions, _Mapping]] = ...) -> None: ...
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OPTS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ROOT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_NAME_FIELD_NUMBER: _ClassVar[int]
    EMIT_XSPACE_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    max_events: int
    tools: _containers.RepeatedScalarFieldContainer[str]
    tool_options: _containers.MessageMap[str, ToolRequestOptions]
    opts: ProfileOptions
    repository_root: str
    session_id: str
    host_name: str
    emit_xspace: bool
    def __init__(self, duration_ms: _Optional[int] = ..., max_events: _Optional[int] = ..., tools: _Optional[_Iterable[str]] = ..., tool_options: _Optional[_Mapping[str, ToolRequestOptions]] = ..., opts: _Optional[_Union[ProfileOptions, _Mapping]] = ..., repository_root: _Optional[str] = ..., session_id: _Optional[str] = ..., host_name: _Optional[str] = ..., emit_xspace: bool = ...) -> None: ...

class ProfileToolData(_message.Message):
    __slots__ = ("name", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    data: bytes
    def __init__(self, name: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class ProfileResponse(_message.Message):
    __slots__ = ("tool_data", "empty_trace", "xspace")
    TOOL_DATA_FIELD_NUMBER: _ClassVar[int]
    EMPTY_TRACE_FIELD_NUMBER: _ClassVar[int]
    XSPACE_FIELD_NUMBER: _ClassVar[int]
    tool_data: _containers.RepeatedCompositeFieldContainer[ProfileToolData]
    empty_trace: bool
    xspace: bytes
    def __init__(self, tool_data: _Optional[_Iterable[_Union[ProfileToolData, _Mapping]]] = ..., empty_trace: bool = ..., xspace: _Optional[bytes] = ...) -> None: ...

class TerminateRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class TerminateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ("snapshot_session_id",)
    SNAPSHOT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    snapshot_session_id: str
    def __init__(self, snapshot_session_id: _Optional[str] = ...) -> None: ...

class ContinuousProfilingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopContinuousProfilingRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopContinuousProfilingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MonitorRequest(_message.Message):
    __slots__ = ("duration_ms", "monitoring_level", "timestamp")
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MONITORING_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    monitoring_level: int
    timestamp: bool
    def __init__(self, duration_ms: _Optional[int] = ..., monitoring_level: _Optional[int] = ..., timestamp: bool = ...) -> None: ...

class MonitorResponse(_message.Message):
    __slots__ = ("data", "monitor_result")
    DATA_FIELD_NUMBER: _ClassVar[int]
    MONITOR_RESULT_FIELD_NUMBER: _ClassVar[int]
    data: str
    monitor_result: ProfilerServiceMonitorResult
    def __init__(self, data: _Optional[str] = ..., monitor_result: _Optional[_Union[ProfilerServiceMonitorResult, _Mapping]] = ...) -> None: ...

class ProfileOptions(_message.Message):
    __slots__ = ("version", "device_type", "include_dataset_ops", "host_tracer_level", "device_tracer_level", "python_tracer_level", "enable_hlo_proto", "start_timestamp_ns", "duration_ms", "repository_path", "trace_options", "advanced_configuration", "raise_error_on_start_failure", "session_id", "override_hostname", "enable_multipass")
    class DeviceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ProfileOptions.DeviceType]
        CPU: _ClassVar[ProfileOptions.DeviceType]
        GPU: _ClassVar[ProfileOptions.DeviceType]
        TPU: _ClassVar[ProfileOptions.DeviceType]
        PLUGGABLE_DEVICE: _ClassVar[ProfileOptions.DeviceType]
    UNSPECIFIED: ProfileOptions.DeviceType
    CPU: ProfileOptions.DeviceType
    GPU: ProfileOptions.DeviceType
    TPU: ProfileOptions.DeviceType
    PLUGGABLE_DEVICE: ProfileOptions.DeviceType
    class TraceOptions(_message.Message):
        __slots__ = ("host_traceme_filter_mask",)
        HOST_TRACEME_FILTER_MASK_FIELD_NUMBER: _ClassVar[int]
        host_traceme_filter_mask: int
        def __init__(self, host_traceme_filter_mask: _Optional[int] = ...) -> None: ...
    class AdvancedConfigValue(_message.Message):
        __slots__ = ("string_value", "bool_value", "int64_value")
        STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
        BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
        INT64_VALUE_FIELD_NUMBER: _ClassVar[int]
        string_value: str
        bool_value: bool
        int64_value: int
        def __init__(self, string_value: _Optional[str] = ..., bool_value: bool = ..., int64_value: _Optional[int] = ...) -> None: ...
    class AdvancedConfigurationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ProfileOptions.AdvancedConfigValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ProfileOptions.AdvancedConfigValue, _Mapping]] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DATASET_OPS_FIELD_NUMBER: _ClassVar[int]
    HOST_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    ENABLE_HLO_PROTO_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_PATH_FIELD_NUMBER: _ClassVar[int]
    TRACE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ADVANCED_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    RAISE_ERROR_ON_START_FAILURE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    ENABLE_MULTIPASS_FIELD_NUMBER: _ClassVar[int]
    version: int
    device_type: ProfileOptions.DeviceType
    include_dataset_ops: bool
    host_tracer_level: int
    device_tracer_level: int
    python_tracer_level: int
    enable_hlo_proto: bool
    start_timestamp_ns: int
    duration_ms: int
    repository_path: str
    trace_options: ProfileOptions.TraceOptions
    advanced_configuration: _containers.MessageMap[str, ProfileOptions.AdvancedConfigValue]
    raise_error_on_start_failure: bool
    session_id: str
    override_hostname: str
    enable_multipass: bool
    def __init__(self, version: _Optional[int] = ..., device_type: _Optional[_Union[ProfileOptions.DeviceType, str]] = ..., include_dataset_ops: bool = ..., host_tracer_level: _Optional[int] = ..., device_tracer_level: _Optional[int] = ..., python_tracer_level: _Optional[int] = ..., enable_hlo_proto: bool = ..., start_timestamp_ns: _Optional[int] = ..., duration_ms: _Optional[int] = ..., repository_path: _Optional[str] = ..., trace_options: _Optional[_Union[ProfileOptions.TraceOptions, _Mapping]] = ..., advanced_configuration: _Optional[_Mapping[str, ProfileOptions.AdvancedConfigValue]] = ..., raise_error_on_start_failure: bool = ..., session_id: _Optional[str] = ..., override_hostname: _Optional[str] = ..., enable_multipass: bool = ...) -> None: ...

class RemoteProfilerSessionManagerOptions(_message.Message):
    __slots__ = ("profiler_options", "service_addresses", "session_creation_timestamp_ns", "max_session_duration_ms", "delay_ms")
    PROFILER_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SESSION_CREATION_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_SESSION_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    profiler_options: ProfileOptions
    service_addresses: _containers.RepeatedScalarFieldContainer[str]
    session_creation_timestamp_ns: int
    max_session_duration_ms: int
    delay_ms: int
    def __init__(self, profiler_options: _Optional[_Union[ProfileOptions, _Mapping]] = ..., service_addresses: _Optional[_Iterable[str]] = ..., session_creation_timestamp_ns: _Optional[int] = ..., max_session_duration_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class NewProfileSessionRequest(_message.Message):
    __slots__ = ("request", "repository_root", "hosts", "session_id")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ROOT_FIELD_NUMBER: _ClassVar[int]
    HOSTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    request: ProfileRequest
    repository_root: str
    hosts: _containers.RepeatedScalarFieldContainer[str]
    session_id: str
    def __init__(self, request: _Optional[_Union[ProfileRequest, _Mapping]] = ..., repository_root: _Optional[str] = ..., hosts: _Optional[_Iterable[str]] = ..., session_id: _Optional[str] = ...) -> None: ...

class NewProfileSessionResponse(_message.Message):
    __slots__ = ("error_message", "empty_trace")
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    EMPTY_TRACE_FIELD_NUMBER: _ClassVar[int]
    error_message: str
    empty_trace: bool
    def __init__(self, error_message: _Optional[str] = ..., empty_trace: bool = ...) -> None: ...

class EnumProfileSessionsAndToolsRequest(_message.Message):
    __slots__ = ("repository_root",)
    REPOSITORY_ROOT_FIELD_NUMBER: _ClassVar[int]
    repository_root: str
    def __init__(self, repository_root: _Optional[str] = ...) -> None: ...

class ProfileSessionInfo(_message.Message):
    __slots__ = ("session_id", "available_tools")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    AVAILABLE_TOOLS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    available_tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, session_id: _Optional[str] = ..., available_tools: _Optional[_Iterable[str]] = ...) -> None: ...

class EnumProfileSessionsAndToolsResponse(_message.Message):
    __slots__ = ("error_message", "sessions")
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    error_message: str
    sessions: _containers.RepeatedCompositeFieldContainer[ProfileSessionInfo]
    def __init__(self, error_message: _Optional[str] = ..., sessions: _Optional[_Iterable[_Union[ProfileSessionInfo, _Mapping]]] = ...) -> None: ...

class ProfileSessionDataRequest(_message.Message):
    __slots__ = ("repository_root", "session_id", "host_name", "tool_name", "parameters")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ROOT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    repository_root: str
    session_id: str
    host_name: str
    tool_name: str
    parameters: _containers.ScalarMap[str, str]
    def __init__(self, repository_root: _Optional[str] = ..., session_id: _Optional[str] = ..., host_name: _Optional[str] = ..., tool_name: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProfileSessionDataResponse(_message.Message):
    __slots__ = ("error_message", "output_format", "output")
    ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    error_message: str
    output_format: str
    output: bytes
    def __init__(self, error_message: _Optional[str] = ..., output_format: _Optional[str] = ..., output: _Optional[bytes] = ...) -> None: ...

class ProfilerServiceMonitorResult(_message.Message):
    __slots__ = ("response_type", "device_idle_time_percent", "matrix_unit_utilization_percent", "step_time_ms_avg", "step_time_ms_min", "step_time_ms_max", "infeed_percent_avg", "infeed_percent_min", "infeed_percent_max")
    class ResponseType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EMPTY_RESULT: _ClassVar[ProfilerServiceMonitorResult.ResponseType]
        UTIL_ONLY: _ClassVar[ProfilerServiceMonitorResult.ResponseType]
        UTIL_IDLE: _ClassVar[ProfilerServiceMonitorResult.ResponseType]
        UTIL_IDLE_STEP: _ClassVar[ProfilerServiceMonitorResult.ResponseType]
    EMPTY_RESULT: ProfilerServiceMonitorResult.ResponseType
    UTIL_ONLY: ProfilerServiceMonitorResult.ResponseType
    UTIL_IDLE: ProfilerServiceMonitorResult.ResponseType
    UTIL_IDLE_STEP: ProfilerServiceMonitorResult.ResponseType
    RESPONSE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_IDLE_TIME_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MATRIX_UNIT_UTILIZATION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_AVG_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    INFEED_PERCENT_AVG_FIELD_NUMBER: _ClassVar[int]
    INFEED_PERCENT_MIN_FIELD_NUMBER: _ClassVar[int]
    INFEED_PERCENT_MAX_FIELD_NUMBER: _ClassVar[int]
    response_type: ProfilerServiceMonitorResult.ResponseType
    device_idle_time_percent: float
    matrix_unit_utilization_percent: float
    step_time_ms_avg: float
    step_time_ms_min: float
    step_time_ms_max: float
    infeed_percent_avg: float
    infeed_percent_min: float
    infeed_percent_max: float
    def __init__(self, response_type: _Optional[_Union[ProfilerServiceMonitorResult.ResponseType, str]] = ..., device_idle_time_percent: _Optional[float] = ..., matrix_unit_utilization_percent: _Optional[float] = ..., step_time_ms_avg: _Optional[float] = ..., step_time_ms_min: _Optional[float] = ..., step_time_ms_max: _Optional[float] = ..., infeed_percent_avg: _Optional[float] = ..., infeed_percent_min: _Optional[float] = ..., infeed_percent_max: _Optional[float] = ...) -> None: ...
