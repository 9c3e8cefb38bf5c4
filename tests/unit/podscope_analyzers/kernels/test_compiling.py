import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT / folder) for folder in ("agent", "analyzers", "collector", "protos")]
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )


def test_importing_the_package_does_not_import_the_compiler() -> None:
    found = _run("import sys, podscope_analyzers; print('numba' in sys.modules)")
    assert found.stdout.strip() == "False"


@pytest.mark.slow
def test_kernels_with_bounds_checking_read_a_space_and_its_damaged_copies(tmp_path: Path) -> None:
    code = """
import gzip, json, random
from podscope_analyzers import XSpaceError, open_xspace
from podscope_analyzers.kernels import nest, sum_groups, union_length
from podscope_analyzers.xspace import verify
from podscope_protos.v1 import xplane_pb2
import numpy as np
space = xplane_pb2.XSpace(hostnames=["h"])
plane = space.planes.add(name="p")
for key in (1, 2, 10**12):
    plane.event_metadata[key].name = str(key)
    plane.stat_metadata[key].name = str(key)
line = plane.lines.add(name="l")
for i in range(130):
    event = line.events.add(metadata_id=1 + i % 3, offset_ps=i, duration_ps=5)
    event.stats.add(metadata_id=1, str_value="t" * (i % 20))
    event.stats.add(metadata_id=10**12, double_value=i)
raw = space.SerializeToString()
def read(raw):
    space = open_xspace(raw)
    for line in space.lines:
        columns = line.columns(("1", "2", str(10**12)))
        columns.stat("1").strings()
        nesting = nest(np.sort(columns.start_ps), columns.duration_ps)
        sum_groups(columns.metadata, 4, columns.duration_ps, nesting.self_ps)
        union_length(columns.start_ps, columns.start_ps + columns.duration_ps)
        if line.event_count: line.event_stats(line.event_count - 1)
    verify(raw)
read(raw)
source = random.Random(3)
refused = 0
for _ in range(1500):
    mutated = bytearray(raw)
    for _ in range(3): mutated[source.randrange(len(raw))] = source.randrange(256)
    try: read(bytes(mutated[: source.randrange(len(raw)) or None]) if source.random() < .2 else bytes(mutated))
    except XSpaceError: refused += 1
print(json.dumps(refused))
"""  # noqa: E501  # a script
    found = _run(code, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))
    assert 100 < json.loads(found.stdout) < 1500


@pytest.mark.slow
def test_numba_compiles_each_kernel_where_code_cannot_be_linked_and_says_so_once() -> None:
    code = """
import numba.core.caching as caching
from podscope_analyzers.kernels import image
# As on another platform, where neither the package nor the home folder can be written to.
image.is_supported = lambda: False
caching.CacheImpl._locator_classes = []
import numpy as np
from podscope_analyzers.kernels import nest, union_length
two = np.array([0, 1])
print(nest(two, two).parent.tolist(), union_length(two, two + 1))
"""
    found = _run(code)
    assert found.stdout.strip() == "[-1, -1] 2"
    assert found.stderr.count("set NUMBA_CACHE_DIR to a writable folder") == 1


def test_without_the_compiler_a_space_reads_the_same_and_a_large_one_is_refused() -> None:
    code = """
import sys
sys.modules["numba"] = None
from podscope_analyzers import open_xspace
from podscope_analyzers.errors import CompilerMissingError
from podscope_analyzers.xspace import Limits
from podscope_protos.v1 import xplane_pb2
space = xplane_pb2.XSpace()
space.planes.add(name="p").lines.add(timestamp_ns=1).events.add(offset_ps=5, duration_ps=6)
raw = space.SerializeToString()
columns = open_xspace(raw).planes[0].lines[0].columns()
print(columns.start_ps.tolist(), columns.duration_ps.tolist())
try:
    open_xspace(raw, Limits(portable_bytes=3))
except CompilerMissingError as error:
    print(error)
"""
    out = _run(code).stdout.splitlines()
    assert out[0] == "[1005] [6]"
    assert "pip install 'podscope[collector]'" in out[1]
