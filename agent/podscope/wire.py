"""The profiler's messages, built at import in a descriptor pool of our own.

Generated classes would check the protobuf runtime's version and register their files in the
pool that TensorFlow, JAX and XProf share, where one more field in one copy ends the process that
imports second. A private pool can neither clash nor be clashed with, and works with every
protobuf from 4.22 on.
"""

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_POOL = descriptor_pool.DescriptorPool()
_FILES = descriptor_pb2.FileDescriptorSet.FromString(
    (resources.files("podscope") / "wire.binpb").read_bytes()
)
for _file in _FILES.file:
    _POOL.Add(_file)


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"podscope.wire.{name}"))


MonitorRequest = _message("MonitorRequest")
MonitorResponse = _message("MonitorResponse")
ProfileRequest = _message("ProfileRequest")
ProfileResponse = _message("ProfileResponse")
TerminateRequest = _message("TerminateRequest")
XSpace = _message("XSpace")
