"""What the framework noted on an instruction, as text."""

from collections.abc import Iterator
from typing import Final

from podscope_analyzers.hlo.text.escapes import c_escaped
from podscope_protos.v1 import hlo_pb2

_NUMBERS: Final = ("source_line", "source_end_line", "source_column", "source_end_column")


def metadata_text(metadata: hlo_pb2.OpMetadata, frame: int) -> str:
    """``{op_name="…" …}``; empty when nothing of it speaks of an operation.

    Args:
        metadata: As serialised.
        frame: Number of its stack frame in the text's tables; 0 for none.
    """
    speaks = (metadata.op_type, metadata.op_name, metadata.source_file, metadata.scheduling_name)
    if not any(speaks) and not frame and not metadata.metadata_payload.HasField("value"):
        return ""
    return "{" + " ".join(_fields(metadata, frame)) + "}"


def metadata_fields(metadata: hlo_pb2.OpMetadata) -> str:
    """The same without braces and with the frame's number as it is stored."""
    return " ".join(_fields(metadata, metadata.stack_frame_id))


def _fields(metadata: hlo_pb2.OpMetadata, frame: int) -> Iterator[str]:
    for name in ("op_type", "op_name", "source_file"):
        text = getattr(metadata, name)
        if text:
            yield f'{name}="{c_escaped(text)}"'
    for name in _NUMBERS:
        number = getattr(metadata, name)
        if number:
            yield f"{name}={number}"
    if metadata.profile_type:
        yield f"profile_type={{{','.join(map(str, metadata.profile_type))}}}"
    if metadata.deduplicated_name:
        yield f'deduplicated_name="{c_escaped(metadata.deduplicated_name)}"'
    if metadata.scheduling_name:
        # The one text that XLA does not escape.
        yield f'scheduling_name="{metadata.scheduling_name}"'
    if frame:
        yield f"stack_frame_id={frame}"
    if metadata.metadata_payload.HasField("value"):
        yield f'metadata_payload="{c_escaped(metadata.metadata_payload.value)}"'
