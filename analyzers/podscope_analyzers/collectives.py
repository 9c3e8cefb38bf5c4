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
