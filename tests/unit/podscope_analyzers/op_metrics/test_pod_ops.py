"""Operations of many hosts: hosts come in any order, the result is that of all at once."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from podscope_analyzers.op_metrics.database import (
    COLUMNS,
    TEXT_COLUMNS,
    MemoryAccesses,
    OpDatabase,
)
from podscope_analyzers.op_metrics.pod_ops import PodOps, merge
from podscope_analyzers.op_metrics.texts import TextTable
from podscope_analyzers.states import pack_state, unpack_state

# Whole numbers: with others the reference below would depend on the order itself.
FLOPS = st.integers(0, 1 << 20).map(float)


@st.composite
def host_ops(draw: st.DrawFn) -> OpDatabase:
    """Operations of one host, some with rows below them and below those."""
    keys = draw(
        st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abcd")), unique=True, max_size=5)
    )
    below = draw(st.lists(st.integers(0, 7), max_size=6)) if keys else []
    texts = TextTable()
    count = len(keys) + len(below)
    names = [name for _, name in keys] + [f"below {n}" for n in range(len(below))]
    columns: dict[str, Any] = {
        "name": [texts.code(name) for name in names],
        "module_id": [module for module, _ in keys] + [0] * len(below),
        # Of the row above it, which may itself be below another one.
        "parent": [-1] * len(keys)
        + [min(at, len(keys) + n - 1) if n else at % len(keys) for n, at in enumerate(below)],
    }
    few = st.lists(st.integers(0, 2), min_size=count, max_size=count)
    for name in TEXT_COLUMNS[1:]:
        columns[name] = [texts.code(("", "x", "y")[at] and f"{name} {at}") for at in draw(few)]
    for name in ("core_type", "cost_source", "source_line", "num_cores", "self_time_ps"):
        columns[name] = draw(few)
    columns["is_eager"] = [bool(n) for n in draw(few)]
    columns["occurrences"] = [n + 1 for n in draw(few)]
    columns["min_time_ps"] = draw(few)
    columns["own_flops"] = draw(st.lists(FLOPS, min_size=count, max_size=count))
    accesses = draw(
        st.lists(
            st.tuples(*[st.integers(0, n) for n in (max(count - 1, 0), 2, 2, 9)]),
            max_size=6 if count else 0,
        )
    )
    return OpDatabase.build(
        {name: np.array(values) for name, values in columns.items()},
        texts,
        accesses=MemoryAccesses.of(accesses),
        total_time_ps=draw(st.integers(0, 99)),
        busy_time_ps=draw(st.integers(0, 99)),
    )


def told(ops: OpDatabase) -> dict[str, Any]:
    """All of it, texts as texts."""
    return {
        **{
            name: ops.text_column(name) if name in TEXT_COLUMNS else ops.column(name).tolist()
            for name in COLUMNS
        },
        "types": {name: ops.column(name).dtype for name in COLUMNS},
        "accesses": [values.tolist() for values in vars(ops.accesses).values()],
        "totals": (ops.total_time_ps, ops.busy_time_ps),
    }


def stored(ops: PodOps) -> PodOps:
    return PodOps.from_state(unpack_state(pack_state(ops.to_state())))


@given(st.lists(host_ops(), min_size=2, max_size=6), st.booleans(), st.data())
def test_any_order_and_grouping_gives_what_all_hosts_at_once_give(
    hosts: list[OpDatabase], add_cores: bool, data: st.DataObject
) -> None:
    # A host keeps the number that it came with; its place in name order is another.
    arrivals = data.draw(st.permutations(range(len(hosts))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(hosts) - 1))))
    place = np.array(arrivals)
    state = None
    for first, last in zip([0, *cuts], [*cuts, len(hosts)], strict=True):
        numbers = data.draw(st.permutations(range(first, last)))
        part = PodOps.of_hosts(
            [(number, hosts[arrivals[number]]) for number in numbers], place, add_cores=add_cores
        )
        state = part if state is None else merge([state, part], place, add_cores=add_cores)
        state = stored(state)

    assert state is not None
    assert told(state.database()) == told(OpDatabase.combine(hosts, add_cores=add_cores))


@given(st.lists(st.floats(-1e30, 1e30), min_size=3, max_size=12), st.data())
def test_sums_of_floats_do_not_depend_on_the_order(
    values: list[float], data: st.DataObject
) -> None:
    def pod(order: list[int]) -> list[float]:
        rank = np.arange(len(values))
        parts = [PodOps.of_hosts([(at, host(values[at]))], rank, add_cores=True) for at in order]
        cut = data.draw(st.integers(1, len(parts) - 1))
        halves = [merge(some, rank, add_cores=True) for some in (parts[:cut], parts[cut:])]
        ops = merge(halves, rank, add_cores=True).database()
        found: list[float] = ops.column("energy_j").tolist()
        return found

    def host(value: float) -> OpDatabase:
        texts = TextTable()
        return OpDatabase.build({"name": [texts.code("op")], "energy_j": value}, texts)

    orders = [data.draw(st.permutations(range(len(values)))) for _ in range(2)]
    assert pod(orders[0]) == pod(orders[1])


def test_no_hosts_have_no_operations() -> None:
    assert len(PodOps.of_hosts([], np.zeros(0, np.int64), add_cores=True).database()) == 0
