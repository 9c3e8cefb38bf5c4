"""Which colour an instruction has in a drawn graph, by what it does."""

from typing import Final

_KINDS: Final = (
    ("#e3e6ea", "domain fusion map get-dimension-size set-dimension-size"),
    ("#c7d6ef", "async-start async-update async-done"),
    (
        "#d9c6b8",
        "all-gather all-reduce all-to-all collective-permute collective-broadcast reduce-scatter "
        "ragged-all-to-all all-gather-start all-gather-done all-reduce-start all-reduce-done "
        "collective-permute-start collective-permute-done infeed outfeed partition-id replica-id "
        "send send-done recv recv-done",
    ),
    ("#9db8e8", "convolution dot ragged-dot scaled-dot fft triangular-solve cholesky"),
    ("#a8cfae", "call conditional custom-call while"),
    (
        "#d5ecd2",
        "concatenate copy copy-start copy-done dynamic-reshape dynamic-slice reshape reverse "
        "transpose",
    ),
    ("#ffd9a8", "parameter"),
    (
        "#dccbe8",
        "batch-norm-grad batch-norm-inference batch-norm-training gather reduce reduce-window "
        "scatter select-and-scatter",
    ),
    ("#fbf3b8", "broadcast dynamic-update-slice"),
)
_BY_OPCODE: Final = {opcode: value for value, opcodes in _KINDS for opcode in opcodes.split()}


def colour(opcode: str) -> str:
    """Fill of an instruction's box; white for what is calculated element by element."""
    return _BY_OPCODE.get(opcode, "#ffffff")
