from collections.abc import Callable
from typing import Any

from podscope_analyzers.hlo import Programs, read_programs
from podscope_analyzers.op_metrics.host_execution import host_execution_database
from podscope_analyzers.prepared import PreparedSpace
from podscope_protos.v1 import hlo_pb2

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]


def planes() -> list[dict[str, Any]]:
    module = hlo_pb2.HloModuleProto(name="jit_f")
    computation = module.computations.add(id=1, name="main", root_id=1)
    call = computation.instructions.add(id=1, name="call.1", opcode="call")
    call.metadata.op_name = "jit(f)/loop"
    raw = hlo_pb2.HloProto(hlo_module=module).SerializeToString()

    def thunk(name: str, start: int, duration: int) -> tuple[Any, ...]:
        return name, start, duration, {"hlo_op": name, "program_id": 40}

    first = [("Execute", 0, 500), thunk("call.1", 10, 100), thunk("dot.2", 20, 30)]
    second = [thunk("dot.2", 0, 5), thunk("call.1", 50, 10)]
    return [
        {"name": "/host:CPU", "lines": {"a": first, "b": second}},
        {"name": "/host:metadata", "metadata": {"jit_f(40)": {"stats": {"Hlo Proto": raw}}}},
    ]


def test_operations_of_cpu_programs_add_over_threads(make_planes: MakePlanes) -> None:
    space = make_planes(planes())
    ops = host_execution_database(space, read_programs(space))
    found = {
        ops.text("name", row): (
            int(ops.column("occurrences")[row]),
            int(ops.column("time_ps")[row]),
            int(ops.column("self_time_ps")[row]),
            ops.text("provenance", row),
        )
        for row in range(len(ops))
    }
    # The product runs within the call on the first thread.
    assert found == {"call.1": (2, 110, 80, "jit(f)/loop:"), "dot.2": (2, 35, 35, "")}
    assert ops.total_op_time_ps == ops.total_time_ps == 115
    assert ops.module_id(0) == 40


def test_hosts_with_devices_execute_nothing_themselves(make_planes: MakePlanes) -> None:
    space = make_planes([*planes(), {"name": "/device:GPU:0"}])
    assert len(host_execution_database(space, read_programs(space))) == 0
    assert len(host_execution_database(make_planes([]), Programs({}))) == 0
