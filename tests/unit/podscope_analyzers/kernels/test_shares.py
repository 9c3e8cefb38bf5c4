import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from podscope_analyzers.kernels import compiled, image, shares
from podscope_analyzers.kernels.compiled import all_kernels
from podscope_analyzers.kernels.linking import Linked, LinkError
from podscope_analyzers.kernels.native import NativeKernel
from podscope_analyzers.kernels.spans import _extent, _is_natural

pytestmark = pytest.mark.skipif(
    not image.is_supported(), reason="kernels are compiled one by one on this platform"
)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_kernel_is_in_one_share_and_no_share_is_much_longer(count: int) -> None:
    kernels = all_kernels()
    found = shares.divide(kernels, count)
    assert sorted(name for share in found for name in share) == sorted(kernels)
    work = [sum(kernels[name].size for name in share) for share in found]
    assert max(work) - min(work) <= max(kernel.size for kernel in kernels.values())


def test_a_kernel_is_as_long_as_it_is_with_those_that_it_calls() -> None:
    kernels = all_kernels()
    own = len(kernels["events.decode"].python.__code__.co_code)
    assert kernels["events.decode"].size > own
    assert kernels["spans._extent"].size == len(_extent.python.__code__.co_code)


def test_joined_code_begins_on_pages_and_no_part_may_be_missing() -> None:
    joined = shares.join([Linked(b"ab", {"f": 1}), Linked(b"cde", {"g": 2, "h": 0})])
    assert joined.entries == {"f": 1, "g": 4098, "h": 4096}
    assert joined.code[1:2] == b"b"
    assert joined.code[4096:] == b"cde"
    with pytest.raises(LinkError, match="did not come to its end"):
        shares.join([Linked(b"ab", {"f": 1}), None])


@pytest.mark.slow
def test_processes_compile_what_runs_here() -> None:
    linked = shares.build({kernel.name: kernel for kernel in (_extent, _is_natural)}, 2)
    places = image.place(linked)
    is_natural = NativeKernel("natural", places[_is_natural.name], _is_natural.signature)
    assert is_natural(np.array([0, 1]), np.array([1, 1])) == 1
    assert is_natural(np.array([1, 0]), np.array([1, 1])) == 0
    found = np.empty(2, np.int64)
    extent = NativeKernel("extent", places[_extent.name], _extent.signature)
    extent(np.array([3, 1]), np.array([4, 9]), found)
    assert found.tolist() == [1, 10]


def test_where_python_cannot_be_started_all_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = {_extent.name: _extent}
    monkeypatch.setattr(compiled, "all_kernels", lambda: kernels)
    here: list[Any] = []

    def build(given: Any) -> Linked:
        here.append(given)
        return Linked(b"", {})

    monkeypatch.setattr("podscope_analyzers.kernels.building.build", build)
    for program in ("", "/opt/of-its-own/server", "/nowhere/python3"):
        monkeypatch.setattr(sys, "executable", program)
        compiled._build()
    assert here == [kernels] * 3


def test_a_process_that_fails_is_told_and_no_process_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def failing(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        process = start([command[0], "-c", "import sys; sys.exit(3)"], **options)
        started.append(process)
        return process

    monkeypatch.setattr(subprocess, "Popen", failing)
    with pytest.raises(LinkError, match="did not come to its end"):
        shares.build({kernel.name: kernel for kernel in (_extent, _is_natural)}, 2)
    assert [process.poll() is None for process in started] == [False, False]
