"""How much of an XSpace is read before it is refused: the file is not trusted."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Limits:
    """Caps that no honest capture reaches.

    Attributes:
        planes: In one XSpace.
        lines: In one XSpace.
        events: In one line.
        metadata: Entries of event metadata in one XSpace.
        stat_metadata: Entries of stat metadata in one XSpace.
        name_bytes: The name of a plane or line, or one name in the metadata.
        decompressed_bytes: A compressed file, unpacked.
        decompressed_ratio: How many times as large as the packed file the unpacked one may be,
            once it is larger than 16 MiB.
        value_bytes: One compressed stat value, unpacked.
        values_bytes: All distinct compressed stat values, unpacked.
        portable_bytes: A file read without compiled kernels.
    """

    planes: int = 2_048
    lines: int = 8_192
    events: int = 1 << 31
    metadata: int = 1_000_000
    stat_metadata: int = 500_000
    name_bytes: int = 16 << 20
    decompressed_bytes: int = 8 << 30
    decompressed_ratio: int = 100
    value_bytes: int = 4 << 20
    values_bytes: int = 16 << 20
    portable_bytes: int = 300 << 20


DEFAULT_LIMITS: Final = Limits()

# Offsets and durations are cut to plus or minus this many picoseconds (26 days), so that
# the sum of a few of them never leaves an int64.
TIME_BOUND_PS: Final = 1 << 61
