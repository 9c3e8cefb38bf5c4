"""What planes and lines are, by their names and ids."""

import re
from typing import Final

HOST_PLANE: Final = "/host:CPU"
TPU_PREFIX: Final = "/device:TPU:"
GPU_PREFIX: Final = "/device:GPU:"

_HOST_PREFIXES: Final = (
    HOST_PLANE,
    "Host CPUs",
    "/host:tfstreamz",
    "/host:metadata",
    "Syscalls",
    "/host:python-tracer",
    "/host:CUPTI",
    "/host:__ScopeRangeCallStack__",
)
_DEVICE_PREFIXES: Final = ("/device", "#Chip", "/custom:")
_TENSOR_CORE: Final = re.compile(r"/device:TPU:([0-9]*)\Z")
_SPARSE_CORE: Final = re.compile(r"/device:TPU:[0-9]+ SparseCore(?: [a-zA-Z]+)? ([0-9]+)\Z")
_ORDINAL: Final = re.compile(r":([0-9]+)(?: |\Z)")

STEPS: Final = "Steps"
XLA_MODULES: Final = "XLA Modules"
XLA_OPS: Final = "XLA Ops"
FRAMEWORK_OPS: Final = "Framework Ops"
NAME_SCOPE: Final = "Framework Name Scope"
SOURCE: Final = "Source code"
LAUNCHES: Final = "Launch Stats"
COMMAND_BUFFERS: Final = "Command Buffers"
SPARSE_CORE_STEPS: Final = "Sparse Core Steps"
SPARSE_CORE_MODULES: Final = "Sparse Core Modules"
SPARSE_CORE_OPS: Final = "Sparse Core Ops"
OP_LINES: Final = frozenset({XLA_OPS, FRAMEWORK_OPS, SPARSE_CORE_OPS})

# 0xdeadbeef in a signed 32-bit integer.
DERIVED_ID: Final = -559038737
DERIVED_STEPS: Final = DERIVED_ID
DERIVED_LAUNCH: Final = DERIVED_ID + 1
DERIVED_NAME_SCOPE: Final = DERIVED_ID + 2
DERIVED_FRAMEWORK_OPS: Final = DERIVED_ID + 3
DERIVED_MODULES: Final = DERIVED_ID + 4
DERIVED_OPS: Final = DERIVED_ID + 5
DERIVED_SOURCE: Final = DERIVED_ID + 7
DERIVED_HOST_OFFLOAD: Final = DERIVED_ID + 8
MAX_HOST_OFFLOAD_ROWS: Final = 41
DERIVED_HOST_XLA: Final = DERIVED_ID + 49
MAX_HOST_XLA_LINES: Final = 241
DERIVED_STREAMS: Final = DERIVED_ID + 290
DERIVED_PER_STREAM: Final = 6
MAX_DERIVED_STREAMS: Final = 16
DERIVED_LAST: Final = DERIVED_ID + 389


def is_host_plane(name: str) -> bool:
    """Whether a plane of this name is the host's."""
    return name.startswith(_HOST_PREFIXES)


def is_device_plane(name: str) -> bool:
    """Whether a plane of this name is of an accelerator."""
    return not is_host_plane(name) and name.startswith(_DEVICE_PREFIXES)


def is_tensor_core(name: str) -> bool:
    """Whether a plane of this name is a TPU's TensorCore."""
    return _TENSOR_CORE.match(name) is not None


def is_sparse_core(name: str) -> bool:
    """Whether a plane of this name is a TPU's SparseCore."""
    return _SPARSE_CORE.match(name) is not None


def is_gpu(name: str) -> bool:
    """Whether a plane of this name is one GPU."""
    return name.startswith(GPU_PREFIX)


def device_ordinal(name: str) -> int | None:
    """Number of the device in a plane's name, ``1`` of ``/device:TPU:1 SparseCore 0``."""
    found = _ORDINAL.findall(name)
    return int(found[-1]) if found else None


def line_id(stored: int) -> int:
    """A line's id as it is compared: its lower 32 bits, signed."""
    low = stored & 0xFFFF_FFFF
    return low - (1 << 32) if low >> 31 else low


def is_derived_line(stored: int) -> bool:
    """Whether a line of this id was derived from others, not recorded."""
    return DERIVED_ID <= line_id(stored) <= DERIVED_LAST
