"""What a process does that compiles a share of the kernels; see ``shares``."""

import sys
from collections.abc import Sequence

from podscope_analyzers.kernels import image
from podscope_analyzers.kernels.building import build
from podscope_analyzers.kernels.compiled import all_kernels


def main(names: Sequence[str]) -> None:
    """Writes the packed code of these kernels to standard output."""
    kernels = all_kernels()
    sys.stdout.buffer.write(image.pack(build({name: kernels[name] for name in names})))
