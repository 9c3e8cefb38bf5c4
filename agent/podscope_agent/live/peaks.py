"""What a chip can do at most: constants of the makers' data sheets, dense, in bfloat16."""

from typing import Final

DTYPE: Final = "bf16"

_PEAK_FLOPS: Final = (
    # The longest name that a model contains wins: "H100 PCIe" before "H100".
    ("TPU v2", 45e12),
    ("TPU v3", 123e12),
    ("TPU v4", 275e12),
    ("TPU v5e", 197e12),
    ("TPU v5p", 459e12),
    ("TPU v6e", 918e12),
    ("TPU 7x", 2307e12),
    ("A100", 312e12),
    ("L4", 121e12),
    ("L40S", 362e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("H200", 989e12),
    ("B200", 2250e12),
)


def peak_flops_per_second(model: str) -> float | None:
    """FLOP/s of one chip; None for a model that is not listed."""
    words = f" {model} "
    found = [(len(name), peak) for name, peak in _PEAK_FLOPS if _names(words, name)]
    return max(found)[1] if found else None


def _names(words: str, name: str) -> bool:
    """Whether the words contain the name, as words: "L4" is not in "L40S"."""
    return any(f" {name}{end}" in words for end in (" ", "-"))
