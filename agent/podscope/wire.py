"""The profiler's messages, built at import in a descriptor pool of our own.

Generated classes would check the protobuf runtime's version and register their files in the
pool that TensorFlow, JAX and XProf share, where one more field in one copy ends the process that
imports second. A private pool can neither clash nor be clashed with, and works with every
protobuf from 4.22 on.
"""

import pkgutil
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
# importlib.resources would be a twentieth of the whole import.
_FILES = descriptor_pb2.FileDescriptorSet.FromString(
    pkgutil.get_data("podscope", "wire.binpb") or b""
)
for _file in _FILES.file:
    _POOL.Add(_file)


def _classes(descriptors: Iterable[Any]) -> Iterator[Any]:
    for descriptor in descriptors:
        yield message_factory.GetMessageClass(descriptor)
        yield from _classes(descriptor.nested_types)


# Held for good: protobufs before 4.25 crash when the class of a field's message has gone.
_CLASSES = [
    found
    for _file in _FILES.file
    for found in _classes(_POOL.FindFileByName(_file.name).message_types_by_name.values())
]


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"podscope.wire.{name}"))


MonitorRequest = _message("MonitorRequest")
MonitorResponse = _message("MonitorResponse")
ProfileRequest = _message("ProfileRequest")
ProfileResponse = _message("ProfileResponse")
TerminateRequest = _message("TerminateRequest")
XSpace = _message("XSpace")
XPlane = _message("XPlane")
XLine = _message("XLine")
XEvent = _message("XEvent")


def _outline_file() -> descriptor_pb2.FileDescriptorProto:
    """XSpace's messages with what is inside them left as bytes.

    The frameworks' profiles are large. Read as these, planes and lines can be moved and joined
    while the events in them are never built as objects: they stay bytes, or unknown fields.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="podscope/wire/outline.proto", package="podscope.wire", syntax="proto3"
    )
    for message, members in (
        ("SpaceOutline", (("planes", 1, field.TYPE_BYTES),)),
        ("PlaneOutline", (("name", 2, field.TYPE_STRING), ("lines", 3, field.TYPE_BYTES))),
        (
            "LineOutline",
            (
                ("id", 1, field.TYPE_INT64),
                ("timestamp_ns", 3, field.TYPE_INT64),
                ("events", 4, field.TYPE_BYTES),
            ),
        ),
    ):
        added = file.message_type.add(name=message)
        for name, number, kind in members:
            label = field.LABEL_OPTIONAL
            if kind == field.TYPE_BYTES:
                label = field.LABEL_REPEATED
            added.field.add(name=name, number=number, type=kind, label=label)
    return file


_POOL.Add(_outline_file())
SpaceOutline = _message("SpaceOutline")
PlaneOutline = _message("PlaneOutline")
LineOutline = _message("LineOutline")
