"""Compiles all kernels into one piece of code that later processes load without the compiler."""

import contextlib
import gc
from collections.abc import Iterator, Mapping
from typing import Any, Final

from podscope_analyzers.kernels.linking import Linked, LinkError, link

# LLVM makes loops that fill or copy memory calls of these, which would come from the C library.
# Here they are part of the code, as loops that stay what they are.
_MEMORY: Final = """
define hidden ptr @memset(ptr returned %to, i32 %value, i64 %size) #0 {
entry:
  %byte = trunc i32 %value to i8
  %none = icmp eq i64 %size, 0
  br i1 %none, label %done, label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after, %next ]
  %place = getelementptr i8, ptr %to, i64 %at
  store i8 %byte, ptr %place
  %after = add nuw i64 %at, 1
  %more = icmp ult i64 %after, %size
  br i1 %more, label %next, label %done
done:
  ret ptr %to
}
define hidden ptr @memcpy(ptr noalias returned %to, ptr noalias %from, i64 %size) #0 {
entry:
  %none = icmp eq i64 %size, 0
  br i1 %none, label %done, label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after, %next ]
  %source = getelementptr i8, ptr %from, i64 %at
  %place = getelementptr i8, ptr %to, i64 %at
  %byte = load i8, ptr %source
  store i8 %byte, ptr %place
  %after = add nuw i64 %at, 1
  %more = icmp ult i64 %after, %size
  br i1 %more, label %next, label %done
done:
  ret ptr %to
}
attributes #0 = { nounwind "no-builtins" }
"""


def build(kernels: Mapping[str, Any]) -> Linked:
    """Machine code of kernels for this processor.

    Args:
        kernels: By name.

    Raises:
        LinkError: this platform's code cannot be linked here, or the installed compiler lacks
            what this needs.
    """
    import llvmlite.binding as llvm
    from numba.core.registry import cpu_target

    if not hasattr(llvm, "create_pass_builder"):
        problem = "llvmlite is older than 0.45"
        raise LinkError(problem)
    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )
    try:
        module = llvm.parse_assembly(_head(triple, machine) + _MEMORY)
        for name, kernel in kernels.items():
            with _no_collection():
                text, symbol = kernel.assembly()
            part = llvm.parse_assembly(text)
            entry = _entry(name, part.get_function(symbol), kernel.signature)
            # What numba puts around a function, to call it from Python, is left behind.
            for function in part.functions:
                if not function.is_declaration and function.name != symbol:
                    function.linkage = "internal"
            part.link_in(llvm.parse_assembly(_head(triple, machine) + entry))
            part.get_function(symbol).linkage = "internal"
            for variable in part.global_variables:
                if not variable.is_declaration:
                    variable.linkage = "internal"
            module.link_in(part)
    except RuntimeError as error:
        problem = f"llvmlite does not understand the code: {error}"
        raise LinkError(problem) from error
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    return link(machine.emit_object(module), {name: _symbol(name) for name in kernels})


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Leaves garbage: looking for it among all that numba makes takes a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _symbol(name: str) -> str:
    return f"podscope.{name}"


def _head(triple: str, machine: Any) -> str:
    return f'target datalayout = "{machine.target_data}"\ntarget triple = "{triple}"\n'


def _entry(name: str, function: Any, signature: Any) -> str:
    """A function of one row of numbers that calls numba's function.

    Numba passes an array as seven values or more: two for its owner, which is nobody, its size,
    the size of an item, its address, its lengths and its strides.
    """
    types = [str(argument.type) for argument in function.arguments]
    lines: list[str] = []
    values: list[str] = []
    slot = 0

    def load() -> str:
        nonlocal slot
        lines.append(f"%p{slot} = getelementptr i64, ptr %row, i64 {slot}")
        lines.append(f"%s{slot} = load i64, ptr %p{slot}")
        slot += 1
        return f"%s{slot - 1}"

    def fresh(value: str) -> str:
        lines.append(f"%v{len(lines)} = {value}")
        return f"%v{len(lines) - 1}"

    for argument in signature.arguments:
        if not argument.ndim:
            number, kind = load(), types[len(values) + 2]
            values.append(number if kind == "i64" else fresh(f"trunc i64 {number} to {kind}"))
            continue
        address = fresh(f"inttoptr i64 {load()} to ptr")
        lengths = [load() for _ in range(argument.ndim)]
        strides = [str(argument.dtype.itemsize)]
        for length in reversed(lengths[1:]):
            strides.insert(0, fresh(f"mul i64 {strides[0]}, {length}"))
        size = lengths[0]
        for length in lengths[1:]:
            size = fresh(f"mul i64 {size}, {length}")
        itemsize = str(argument.dtype.itemsize)
        values += ["null", "null", size, itemsize, address, *lengths, *strides]
    if len(values) + 2 != len(types):
        problem = f"numba passes {len(types)} values to {name}, not {len(values) + 2}"
        raise LinkError(problem)
    body = "\n  ".join(lines)
    passed = ", ".join(f"{kind} {value}" for kind, value in zip(types[2:], values, strict=True))
    return f"""
declare i32 @"{function.name}"({", ".join(types)})
define i32 @"{_symbol(name)}"(ptr %row) {{
  %problem = alloca ptr
  store ptr null, ptr %problem
  {body}
  %result = getelementptr i64, ptr %row, i64 {slot}
  %status = call i32 @"{function.name}"(ptr %result, ptr %problem, {passed})
  ret i32 %status
}}
"""
