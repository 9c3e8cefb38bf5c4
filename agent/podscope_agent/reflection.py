"""Server reflection, so that grpcurl and the like can call the agent without our files.

The services have no generated stubs (their wire names belong to other packages), so the files that
declare them are made here, for reflection alone: no descriptor pool of this process sees them.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import grpc
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from podscope_agent.errors import MalformedXSpaceError
from podscope_agent.health import HEALTH_SERVICE
from podscope_agent.wire_format import (
    LENGTH_DELIMITED,
    fields,
    tag_and_length,
    tagged_text,
    tagged_varint,
)
from podscope_protos import methods
from podscope_protos.v1 import agent_service_pb2, profiler_service_pb2

REFLECTION_SERVICES: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
_FILE_BY_NAME, _FILE_OF_SYMBOL, _FILE_OF_EXTENSION, _EXTENSION_NUMBERS, _LIST = 3, 4, 5, 6, 7
_ORIGINAL, _FILES, _SERVICES, _ERROR = 2, 4, 6, 7

_PROFILER_METHODS: Final = (
    ("Profile", "ProfileRequest", "ProfileResponse"),
    ("Terminate", "TerminateRequest", "TerminateResponse"),
    ("Monitor", "MonitorRequest", "MonitorResponse"),
    ("StartContinuousProfiling", "ProfileRequest", "ContinuousProfilingResponse"),
    ("GetSnapshot", "GetSnapshotRequest", "ProfileResponse"),
    (
        "StopContinuousProfiling",
        "StopContinuousProfilingRequest",
        "StopContinuousProfilingResponse",
    ),
)
_ANALYSIS_METHODS: Final = (
    ("NewSession", "NewProfileSessionRequest", "NewProfileSessionResponse"),
    (
        "EnumSessions",
        "EnumProfileSessionsAndToolsRequest",
        "EnumProfileSessionsAndToolsResponse",
    ),
    ("GetSessionToolData", "ProfileSessionDataRequest", "ProfileSessionDataResponse"),
)
_AGENT_METHODS: Final = tuple(
    (name, f"{name}Request", f"{name}Response")
    for name in ("ClockPing", "Describe", "Capture", "Cancel", "Fetch", "ReportFigures")
)


class Reflection:
    """Answers what services there are and what their messages are made of."""

    def __init__(self) -> None:
        files = [*_message_files(), _profiler_file(), _agent_file(), _health_file()]
        self._files = {file.name: file for file in files}
        self._file_of: dict[str, str] = {}
        for file in files:
            for symbol in _symbols(file):
                self._file_of[symbol] = file.name
        self.services = (
            methods.PROFILER_SERVICE,
            methods.PROFILE_ANALYSIS,
            methods.AGENT_SERVICE,
            HEALTH_SERVICE,
            *REFLECTION_SERVICES,
        )

    async def stream(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """One answer for each request."""
        async for request in requests:
            yield self.answer(request)

    def answer(self, request: bytes) -> bytes:
        """A ServerReflectionResponse."""
        buffer = memoryview(request)
        asked = 0
        text = ""
        try:
            for item in fields(buffer):
                if item.number >= _FILE_BY_NAME and item.wire_type == LENGTH_DELIMITED:
                    asked, text = item.number, str(buffer[item.value : item.end], "utf-8")
        except (MalformedXSpaceError, ValueError):
            return _refused(b"", grpc.StatusCode.INVALID_ARGUMENT, "no such request")
        if asked == _LIST:
            named = b"".join(_message(1, tagged_text(1, name)) for name in self.services)
            return _answered(request, _SERVICES, named)
        if asked == _FILE_BY_NAME and text in self._files:
            return _answered(request, _FILES, self._with_imports(text))
        if asked == _FILE_OF_SYMBOL and text in self._file_of:
            return _answered(request, _FILES, self._with_imports(self._file_of[text]))
        if asked in {_FILE_OF_EXTENSION, _EXTENSION_NUMBERS}:
            return _refused(request, grpc.StatusCode.NOT_FOUND, "there are no extensions")
        return _refused(request, grpc.StatusCode.NOT_FOUND, f"nothing is called '{text[:200]}'")

    def _with_imports(self, name: str) -> bytes:
        """The file and all that it imports, itself first."""
        wanted = [name]
        for each in wanted:
            wanted += [d for d in self._files[each].dependency if d not in wanted]
        return b"".join(_message(1, self._files[each].SerializeToString()) for each in wanted)


def _message_files() -> list[FileDescriptorProto]:
    found = []
    for module in (profiler_service_pb2, agent_service_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found.append(file)
    return found


def _profiler_file() -> FileDescriptorProto:
    """Both services of the stock protocol, over the messages of ours."""
    package, _, _ = methods.PROFILER_SERVICE.rpartition(".")
    file = FileDescriptorProto(
        name="podscope_protos/v1/profiler_rpcs.proto", package=package, syntax="proto3"
    )
    file.dependency.append(profiler_service_pb2.DESCRIPTOR.name)
    own = profiler_service_pb2.DESCRIPTOR.package
    for full_name, rpcs in (
        (methods.PROFILER_SERVICE, _PROFILER_METHODS),
        (methods.PROFILE_ANALYSIS, _ANALYSIS_METHODS),
    ):
        _add_service(file, full_name, own, rpcs)
    return file


def _agent_file() -> FileDescriptorProto:
    package = agent_service_pb2.DESCRIPTOR.package
    file = FileDescriptorProto(
        name="podscope_protos/v1/agent_rpcs.proto", package=package, syntax="proto3"
    )
    file.dependency.append(agent_service_pb2.DESCRIPTOR.name)
    _add_service(file, methods.AGENT_SERVICE, package, _AGENT_METHODS, streaming=("Fetch",))
    return file


def _health_file() -> FileDescriptorProto:
    package, _, _ = HEALTH_SERVICE.rpartition(".")
    file = FileDescriptorProto(name="grpc/health/v1/health.proto", package=package, syntax="proto3")
    request = file.message_type.add(name="HealthCheckRequest")
    _add_field(request, "service", FieldDescriptorProto.TYPE_STRING)
    response = file.message_type.add(name="HealthCheckResponse")
    status = response.enum_type.add(name="ServingStatus")
    for number, name in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")):
        status.value.add(name=name, number=number)
    _add_field(response, "status", FieldDescriptorProto.TYPE_ENUM)
    response.field[0].type_name = f".{package}.HealthCheckResponse.ServingStatus"
    rpcs = [(name, "HealthCheckRequest", "HealthCheckResponse") for name in ("Check", "Watch")]
    _add_service(file, HEALTH_SERVICE, package, rpcs, streaming=("Watch",))
    return file


def _add_field(
    message: DescriptorProto, name: str, kind: "FieldDescriptorProto.Type.ValueType"
) -> None:
    label = FieldDescriptorProto.LABEL_OPTIONAL
    message.field.add(name=name, json_name=name, number=1, type=kind, label=label)


def _add_service(
    file: FileDescriptorProto,
    full_name: str,
    messages: str,
    rpcs: Iterable[Sequence[str]],
    streaming: Sequence[str] = (),
) -> None:
    service = file.service.add(name=full_name.rpartition(".")[2])
    for name, request, response in rpcs:
        service.method.add(
            name=name,
            input_type=f".{messages}.{request}",
            output_type=f".{messages}.{response}",
            server_streaming=name in streaming,
        )


def _symbols(file: FileDescriptorProto) -> Iterable[str]:
    def nested(prefix: str, message: DescriptorProto) -> Iterable[str]:
        name = f"{prefix}.{message.name}"
        yield name
        for enum in message.enum_type:
            yield f"{name}.{enum.name}"
        for inner in message.nested_type:
            yield from nested(name, inner)

    for message in file.message_type:
        yield from nested(file.package, message)
    for enum in file.enum_type:
        yield f"{file.package}.{enum.name}"
    for service in file.service:
        yield f"{file.package}.{service.name}"
        for rpc in service.method:
            yield f"{file.package}.{service.name}.{rpc.name}"


def _message(number: int, body: bytes) -> bytes:
    return tag_and_length(number, len(body)) + body


def _answered(request: bytes, number: int, body: bytes) -> bytes:
    return _message(_ORIGINAL, request) + _message(number, body)


def _refused(request: bytes, code: grpc.StatusCode, text: str) -> bytes:
    number: int = code.value[0]
    return _answered(request, _ERROR, tagged_varint(1, number) + tagged_text(2, text))
