"""Which operations talk to other devices or hosts, by the names that frameworks give them."""

import re

# HLO opcodes as instruction names carry them (`all-reduce.3`, `all-gather-start.1`), the names
# that JAX's primitives leave behind, TensorFlow's ops, and what NCCL, RCCL and gloo call theirs.
_HLO = re.compile(
    r"(?:all-reduce|all-gather|all-to-all|ragged-all-to-all|reduce-scatter|collective-permute"
    r"|collective-broadcast|send|recv)(?:-start|-done|[ -]fusion)*(?:[.\-_ ].*)?$"
)
_PRIMITIVE = re.compile(
    r"(?:psum|psum_invariant|pmax|pmin|pmean|ppermute|pbroadcast|all_gather|all_gather_invariant"
    r"|all_to_all|reduce_scatter|psum_scatter)(?:\.\d+)?$"
)
_KERNEL = re.compile(r"nccl|rccl|gloo[:_]|c10d::|Collective(?:Reduce|Gather|Bcast|AllToAll)", re.I)


def is_collective_name(name: str) -> bool:
    """Whether an operation or kernel of this name is a collective or a transfer between peers."""
    # `all-reduce(...)`-like category names of TPU ops ("all-reduce fusion") are covered by _HLO.
    return bool(_HLO.match(name) or _PRIMITIVE.match(name) or _KERNEL.search(name))


def is_runtime_collective(name: str) -> bool:
    """Whether an event that names no HLO operation is a collective.

    Only an unmistakable name counts: a user's own annotation may well be called "send" or "psum".
    """
    return is_collective_name(name) and not re.fullmatch(r"[a-z_\-]+(\.\d+)?", name)


# NCCL's kernels by the operation in their names, `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`
# or `ncclAllReduceRingLLKernel_sum_f32`; what is chosen between is the same on all ranks.
_KINDS = (
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Broadcast",
    "Reduce",
    "SendRecv",
    "AllToAll",
    "Generic",
)
_KIND = re.compile("|".join(_KINDS), re.I)
_KIND_IDS = {kind.lower(): at + 1 for at, kind in enumerate(_KINDS)}


def kind_id(name: str) -> int:
    """Which kind of collective a GPU's kernel is, from 1 on; 0 when its name does not say."""
    found = _KIND.search(name)
    return 0 if found is None else _KIND_IDS[found[0].lower()]


def kind_name(kind: int) -> str:
    """What ``kind_id`` counts, in NCCL's words."""
    return _KINDS[kind - 1] if 0 < kind <= len(_KINDS) else "unknown"
