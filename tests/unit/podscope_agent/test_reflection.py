import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from podscope_agent.reflection import Reflection

STRING, BYTES, INT32, MESSAGE = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_BYTES,
    FieldDescriptorProto.TYPE_INT32,
    FieldDescriptorProto.TYPE_MESSAGE,
)
# As grpc/reflection/v1/reflection.proto has them.
MESSAGES: dict[str, list[tuple[str, int, Any, str, bool]]] = {
    "Request": [
        ("host", 1, STRING, "", False),
        ("file_by_filename", 3, STRING, "", False),
        ("file_containing_symbol", 4, STRING, "", False),
        ("all_extension_numbers_of_type", 6, STRING, "", False),
        ("list_services", 7, STRING, "", False),
    ],
    "Files": [("file_descriptor_proto", 1, BYTES, "", True)],
    "Service": [("name", 1, STRING, "", False)],
    "Services": [("service", 1, MESSAGE, "Service", True)],
    "Error": [("error_code", 1, INT32, "", False), ("error_message", 2, STRING, "", False)],
    "Response": [
        ("original_request", 2, MESSAGE, "Request", False),
        ("file_descriptor_response", 4, MESSAGE, "Files", False),
        ("list_services_response", 6, MESSAGE, "Services", False),
        ("error_response", 7, MESSAGE, "Error", False),
    ],
}


def schema() -> tuple[Any, Any]:
    file = FileDescriptorProto(name="r.proto", package="r", syntax="proto3")
    for name, members in MESSAGES.items():
        message = file.message_type.add(name=name)
        for member, number, kind, of, is_repeated in members:
            label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else 1
            added = message.field.add(name=member, number=number, type=kind, label=label)
            if of:
                added.type_name = f".r.{of}"
    pool = DescriptorPool()
    pool.Add(file)
    request, response = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"r.{name}"))
        for name in ("Request", "Response")
    )
    return request, response


Request, Response = schema()


def ask(**asked: str) -> Any:
    return Response.FromString(Reflection().answer(Request(**asked).SerializeToString()))


def test_all_services_are_listed() -> None:
    answer = ask(list_services="*")
    names = {service.name for service in answer.list_services_response.service}
    assert names == {
        "tensorflow.ProfilerService",
        "tensorflow.ProfileAnalysis",
        "podscope.agent.v1.AgentService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert answer.original_request.list_services == "*"


@pytest.mark.parametrize(
    ("service", "method", "request_type", "is_streaming"),
    [
        ("podscope.agent.v1.AgentService", "Fetch", "podscope.agent.v1.FetchRequest", True),
        ("tensorflow.ProfilerService", "Profile", "podscope.wire.ProfileRequest", False),
        ("grpc.health.v1.Health", "Watch", "grpc.health.v1.HealthCheckRequest", True),
    ],
)
def test_a_client_builds_a_service_from_the_files_of_its_name(
    service: str, method: str, request_type: str, is_streaming: bool
) -> None:
    answer = ask(file_containing_symbol=service)
    pool = DescriptorPool()
    # Itself first, then what it imports.
    for serialised in reversed(answer.file_descriptor_response.file_descriptor_proto):
        pool.Add(FileDescriptorProto.FromString(serialised))
    found = pool.FindServiceByName(service).methods_by_name[method]
    assert found.input_type.full_name == request_type
    assert found.server_streaming == is_streaming
    file = answer.file_descriptor_response.file_descriptor_proto[0]
    by_name = ask(file_by_filename=FileDescriptorProto.FromString(file).name)
    assert by_name.file_descriptor_response == answer.file_descriptor_response


def test_messages_and_methods_are_found_too() -> None:
    for symbol in ("podscope.wire.ProfileOptions.DeviceType", "tensorflow.ProfilerService.Monitor"):
        assert ask(file_containing_symbol=symbol).HasField("file_descriptor_response")


@pytest.mark.parametrize(
    "asked",
    [
        {"file_containing_symbol": "no.such.Thing"},
        {"file_by_filename": "../etc/passwd"},
        {"all_extension_numbers_of_type": "podscope.wire.ProfileRequest"},
        {},
    ],
)
def test_what_there_is_not_is_not_found(asked: dict[str, str]) -> None:
    assert ask(**asked).error_response.error_code == 5


def test_garbage_is_an_invalid_argument_and_the_stream_goes_on() -> None:
    async def exchange() -> list[Any]:
        async def requests() -> AsyncIterator[bytes]:
            yield b"\xff\xff"
            yield Request(list_services="*").SerializeToString()

        return [Response.FromString(each) async for each in Reflection().stream(requests())]

    refused, listed = asyncio.run(exchange())
    assert refused.error_response.error_code == 3
    assert len(listed.list_services_response.service) == 6
