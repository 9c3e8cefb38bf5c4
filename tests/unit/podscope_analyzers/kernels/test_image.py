import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from podscope_analyzers.kernels import image
from podscope_analyzers.kernels.building import build
from podscope_analyzers.kernels.compiled import MODULES, all_kernels
from podscope_analyzers.kernels.linking import Linked, LinkError, link
from podscope_analyzers.kernels.native import NativeKernel
from podscope_analyzers.kernels.signatures import Argument, Signature, parse_signature
from podscope_analyzers.kernels.spans import _nest

pytestmark = pytest.mark.skipif(
    not image.is_supported(), reason="kernels are compiled one by one on this platform"
)

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="module")
def linked() -> Linked:
    """The code of one kernel."""
    return build({_nest.name: _nest})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for compiled kernels."""
    found = tmp_path / "cache"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(found))
    return found


def _check_nesting(address: int) -> None:
    nest = NativeKernel("nest", address, _nest.signature)
    start, duration = np.array([0, 1, 2, 20]), np.array([10, 5, 1, 3])
    parent, self_time = np.empty(4, np.int32), np.empty(4, np.int64)
    nest(start, duration, np.zeros(4, np.bool_), parent, self_time)
    assert parent.tolist() == [-1, 0, 1, -1]
    assert self_time.tolist() == [5, 4, 1, 3]


def test_every_module_with_kernels_is_compiled() -> None:
    package = Path(image.__file__).parent
    marked = {path.stem for path in package.glob("*.py") if "\n@kernel(" in path.read_text()}
    assert marked == set(MODULES)
    assert {name.partition(".")[0] for name in all_kernels()} == marked


def test_linked_code_runs_at_another_address_each_time(linked: Linked) -> None:
    first, second = (image.place(linked)[_nest.name] for _ in range(2))
    assert first != second
    _check_nesting(first)
    _check_nesting(second)


def test_kept_code_is_loaded_and_not_compiled_again(linked: Linked, folder: Path) -> None:
    builds = iter([linked])
    for _ in range(3):
        found = image.entries(lambda: next(builds))
        _check_nesting(found[_nest.name])
    assert next(builds, None) is None
    (kept,) = folder.glob("*.kernels")
    assert kept.stat().st_mode & 0o777 == 0o644
    assert folder.stat().st_mode & 0o777 == 0o700


def test_damaged_code_is_compiled_again(linked: Linked, folder: Path) -> None:
    image.entries(lambda: linked)
    (kept,) = folder.glob("*.kernels")
    whole = kept.read_bytes()
    damaged = [b"", whole[:10], whole[: len(whole) // 2], whole[:-1], whole + b"x"]
    for at in (3, 25, 60, len(whole) - 5):
        flipped = bytearray(whole)
        flipped[at] ^= 1
        damaged.append(bytes(flipped))
    for content in damaged:
        kept.write_bytes(content)
        builds = [linked]
        found = image.entries(builds.pop)
        assert not builds
        _check_nesting(found[_nest.name])
        assert kept.read_bytes() == whole


def test_code_that_others_may_write_to_or_that_is_elsewhere_is_not_trusted(
    linked: Linked, folder: Path, tmp_path: Path
) -> None:
    image.entries(lambda: linked)
    (kept,) = folder.glob("*.kernels")
    name = image.key()
    assert name is not None
    assert image.load(name)
    for mode in (0o664, 0o646):
        kept.chmod(mode)
        assert image.load(name) is None
    kept.chmod(0o600)
    assert image.load(name)
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert image.load(name) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_code_of_another_user_is_not_trusted(linked: Linked, folder: Path) -> None:
    image.entries(lambda: linked)
    (kept,) = folder.glob("*.kernels")
    os.chown(kept, 12345, -1)
    name = image.key()
    assert name is not None
    assert image.load(name) is None


def test_changed_sources_settings_and_compilers_have_other_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kernels"
    shutil.copytree(Path(image.__file__).parent, package)
    before = image.key()
    monkeypatch.setattr(image, "__file__", str(package / "image.py"))
    keys = [before, image.key()]
    assert keys[0] == keys[1]
    with (package / "spans.py").open("a") as file:
        file.write("\n")
    keys.append(image.key())
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    keys.append(image.key())
    monkeypatch.setattr(image, "_version", lambda package: b"another")
    keys.append(image.key())
    monkeypatch.setattr(image, "_processor", lambda: b"another")
    keys.append(image.key())
    assert len(set(keys)) == len(keys) - 1
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert image.key() == keys[-1]


def test_without_a_folder_that_can_be_written_to_code_is_used_and_not_kept(
    linked: Linked, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A file where the folder should be: root could write to a folder of any mode.
    folder.write_text("")
    image._warned.clear()
    for _ in range(2):
        _check_nesting(image.entries(lambda: linked)[_nest.name])
    assert [record.message for record in caplog.records] == [
        "no folder for compiled kernels is writable, so each start compiles them anew; "
        "set NUMBA_CACHE_DIR to a writable folder"
    ]


def test_arguments_are_checked_before_code_sees_them(linked: Linked) -> None:
    nest = NativeKernel("nest", image.place(linked)[_nest.name], _nest.signature)
    start, flags = np.zeros(4, np.int64), np.zeros(4, np.bool_)
    parent, self_time = np.empty(4, np.int32), np.empty(4, np.int64)
    read_only = np.zeros(4, np.int64)
    read_only.flags.writeable = False
    for wrong in (
        start.astype(np.int32),
        start.astype(np.uint64),
        start.astype(">i8"),
        np.zeros((2, 2), np.int64),
        np.zeros(8, np.int64)[::2],
        np.frombuffer(bytes(33), np.uint8)[1:].view(np.int64),
        read_only,
        [0, 0, 0, 0],
        None,
    ):
        with pytest.raises(TypeError, match="nest takes an array"):
            nest(wrong, start, flags, parent, self_time)
    with pytest.raises(TypeError, match="5 arguments, not 4"):
        nest(start, start, flags, parent)


def test_numbers_that_do_not_fit_are_refused() -> None:
    signature = Signature(None, (Argument("i2"),))
    kernel = NativeKernel("one", 0, signature)
    for wrong in (1 << 15, -(1 << 15) - 1):
        with pytest.raises(OverflowError, match="is not of type i2"):
            kernel(wrong)
    with pytest.raises(TypeError):
        kernel(1.5)


@pytest.mark.parametrize(
    "text", ["void(f8)", "void(i8[:])", "i8", "void(i8[::1, :])", "void(i3)", "x8(i8)"]
)
def test_signatures_of_other_forms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        parse_signature(text)


def _object(assembly: str) -> bytes:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        reloc="pic", codemodel="small"
    )
    head = f'target triple = "{llvm.get_default_triple()}"\n'
    found: bytes = machine.emit_object(llvm.parse_assembly(head + assembly))
    return found


def test_code_that_needs_a_real_linker_is_refused() -> None:
    outside = "declare i32 @elsewhere()\ndefine i32 @f() { %x = call i32 @elsewhere() ret i32 %x }"
    with pytest.raises(LinkError, match="refers to elsewhere"):
        link(_object(outside), {"f": "f"})
    variable = (
        "@v = internal global i32 1\n"
        "define i32 @f() { %x = load i32, ptr @v store i32 2, ptr @v ret i32 %x }"
    )
    with pytest.raises(LinkError, match=r"\.data is written to"):
        link(_object(variable), {"f": "f"})
    with pytest.raises(LinkError, match="the code has no 'g'"):
        link(_object("define i32 @f() { ret i32 1 }"), {"g": "g"})
    with pytest.raises(LinkError, match="not an object file"):
        link(bytes(64), {})


READ = """
import sys
import numpy as np
from podscope_analyzers.kernels import nest, union_length
two = np.array([0, 1])
print(nest(two, two).parent.tolist(), union_length(two, two + 1), "numba" in sys.modules)
"""


def _process(folder: Path) -> "subprocess.Popen[str]":
    paths = [str(ROOT / part) for part in ("agent", "analyzers", "collector", "protos")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "NUMBA_CACHE_DIR": str(folder),
    }
    return subprocess.Popen(
        [sys.executable, "-c", READ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_of_two_first_processes_one_has_kernels_compiled_and_none_loads_the_compiler(
    tmp_path: Path,
) -> None:
    first = [_process(tmp_path), _process(tmp_path)]
    answers = [process.communicate(timeout=250) for process in first]
    assert {out.strip() for out, _ in answers} == {"[-1, -1] 2 False"}
    assert sum("compiling kernels" in err for _, err in answers) == 1
    begin = time.perf_counter()
    out, err = _process(tmp_path).communicate(timeout=250)
    assert (out.strip(), err) == ("[-1, -1] 2 False", "")
    assert time.perf_counter() - begin < 60
