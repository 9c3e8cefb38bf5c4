"""What a module's instructions share, put back into each of them."""

from collections.abc import Sequence

from podscope_protos.v1 import hlo_pb2


def put_back(module: hlo_pb2.HloModuleProto) -> None:
    """Give every instruction its own notes of backend and framework, in place.

    Newer compilers store a note that many instructions have once, among the module's payloads,
    and its place there in the instructions.
    """
    shared = module.payloads
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.HasField("backend_config_payload"):
                # It holds even if it is empty.
                instruction.backend_config = _content(instruction.backend_config_payload, shared)
                instruction.ClearField("backend_config_payload")
            if shared and instruction.metadata.HasField("metadata_payload"):
                noted = instruction.metadata.metadata_payload
                if noted.WhichOneof("payload_source") == "id":
                    noted.value = _content(noted, shared)


def _content(payload: hlo_pb2.Payload, shared: Sequence[bytes]) -> bytes:
    if payload.WhichOneof("payload_source") == "id":
        return shared[payload.id] if 0 <= payload.id < len(shared) else b""
    return payload.value
