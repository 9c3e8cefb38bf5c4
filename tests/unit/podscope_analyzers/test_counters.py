"""Hardware counters, and what they say of the units."""

from collections.abc import Sequence
from typing import Any

import pytest

from podscope_analyzers import counters
from podscope_analyzers.errors import ParameterError
from podscope_analyzers.partials import HostPartial
from podscope_analyzers.pipeline import analyze_host, run_tool, run_tool_xprof
from podscope_analyzers.result import Scope, ToolResult
from podscope_protos.v1 import xplane_pb2

LONG = "VF_CHIP_TC_TCS_TC_MISC_TCS_STATS_TCS_STATS_COUNTERS_UNPRIVILEGED_COUNT_"
V7X = "VF_CHIP_DIE1_TC_TCS_TC_MISC_TCS_STATS_TCS_STATS_COUNTERS_UNPRIVILEGED_COUNT_"
POWER = "VF_CHIP_DIE1_PWRMGR_PWRMGR_TC_THROTTLE_CORE_DEBUG_STATS_UNPRIVILEGED_"
Value = tuple[str, int | float]


def host(
    values: Sequence[Value],
    *,
    device_type: str = "TPU v6 Lite",
    plane_name: str = "/device:TPU:0",
    chip: dict[str, int] | None = None,
) -> HostPartial:
    space = xplane_pb2.XSpace(hostnames=["vm"])
    plane = space.planes.add(name=plane_name, id=1)
    stats: dict[str, int] = {}

    def stat(name: str) -> int:
        key = stats.setdefault(name, len(stats) + 1)
        plane.stat_metadata[key].id, plane.stat_metadata[key].name = key, name
        return key

    for name, number in ({"device_id": 3} if chip is None else chip).items():
        plane.stats.add(metadata_id=stat(name)).int64_value = number
    plane.stats.add(metadata_id=stat("device_type_string")).str_value = device_type
    line = plane.lines.add(name="kernel", id=5)
    names: dict[str, int] = {}
    for name, value in values:
        key = names.setdefault(name, len(names) + 1)
        plane.event_metadata[key].id, plane.event_metadata[key].name = key, name
        event = line.events.add(metadata_id=key, duration_ps=1)
        added = event.stats.add(metadata_id=stat("counter_value"))
        if isinstance(value, float):
            added.double_value = value
        else:
            added.uint64_value = value
        described = event.stats.add(metadata_id=stat("performance_counter_description"))
        described.str_value = f"what {name} counts"
    partial = analyze_host(space.SerializeToString(), "h0")
    # Stored and read back, as the service does it.
    read = HostPartial.from_bytes(partial.to_bytes())
    return read.with_part("counters", partial.part_to_bytes("counters"))


def units(partial: HostPartial) -> dict[tuple[int, str], tuple[float, float]]:
    result = run_tool("utilization_viewer", [partial], Scope(["h0"]))
    return {(row[3], row[4]): (row[5], row[6]) for row in result.tables["units"].rows}  # type: ignore[misc]


def listed(partial: HostPartial, **parameters: str) -> ToolResult:
    return run_tool("perf_counters", [partial], Scope(["h0"]), parameters)


@pytest.mark.parametrize("prefix", [LONG, LONG.lower(), "COUNT_", ""])
def test_units_are_found_by_the_end_of_a_counters_name(prefix: str) -> None:
    found = units(
        host(
            [
                (prefix + "CYCLES", 1000),
                (prefix + "SCALAR_ALU_INSTRUCTION_0", 3),
                (prefix + "SCALAR_ALU_INSTRUCTION_1", 4),
                (prefix + "MXU_BUSY_1", 100),
                (prefix + "MXU_BUSY_2", 50.0),
                (prefix + "VPU_VALU_FADD_OPS_0", 250),
            ]
        )
    )
    assert found[0, "Scalar Unit"] == (7, 2000)
    assert found[0, "Avg MXU Busy"] == (100, 1000)
    assert found[0, "VPU Utilization"] == (250, 4000)
    assert found[0, "XLU0"] == (0, 250)
    assert found[0, "HBM Rd+Wr - core 0"][1] == pytest.approx(1525.5 * 2**30 * 1000 / 1.75e9)
    assert found[0, "ICI (Read)"][1] == pytest.approx(294947.3684210526)


@pytest.mark.parametrize(
    ("counter", "cycles", "group"),
    [
        ("LMR_BF16", 4, "MXU BF16"),
        ("LMR_I8", 2, "MXU I8"),
        ("LMR_I4", 2, "MXU I4"),
        ("VREG_BF16", 8, "MXU BF16"),
        ("VREG_F8", 8, "MXU BF16"),
        ("VREG_I8", 8, "MXU I8"),
        ("VREG_I4", 8, "MXU I4"),
        ("VREG_F32", 4, "MXU BF16"),
    ],
)
def test_a_matrix_multiplication_takes_its_cycles(counter: str, cycles: int, group: str) -> None:
    found = units(host([(LONG + "CYCLES", 1000), (f"{LONG}MATMUL_{counter}_MXU_1", 7)]))
    assert found[0, "MXU1"] == (7 * cycles, 1000)
    assert found[0, "MXU0"] == (0, 1000)
    assert found[0, group] == (7 * cycles, 2000)


def test_a_v7x_counts_cycles_by_die_and_knows_skipped_clocks() -> None:
    found = units(
        host(
            [
                (POWER + "CYCLE_COUNT", 2000),
                (POWER + "CLOCKS_SKIPPED", 20),
                (V7X + "CYCLES", 1900),
                (V7X + "MATMUL_VREG_F8_MXU_0", 5),
                ("VF_CHIP_DIE1_HBM_0_STATS_COUNTERS_UNPRIVILEGED_RD_RESP_PS0", 30),
                ("VF_CHIP_DIE1_HBM_1_STATS_COUNTERS_UNPRIVILEGED_WR_REQ_PS1", 10),
            ],
            device_type="TPU v7x",
        )
    )
    assert found[1, "Clocks Skipped"] == (20, 2000)
    assert found[1, "MXU E4M3 + E5M2"] == (40, 4000)
    assert found[1, "HBM Read Ratio"] == (75, 100)
    assert found[0, "HBM Rd+Wr - core 1"][0] == 40 * 32
    assert (0, "Scalar Unit") not in found


def test_sparse_core_slots_are_summed_over_tiles() -> None:
    tile = "VF_CHIP_SC_1_SCTD_{}_SC_STATS_COUNTERS_UNPRIVILEGED_COUNT_{}"
    found = units(
        host(
            [
                *((tile.format(i, "TEC_SCALAR_ISSUE"), 10) for i in range(16)),
                *((tile.format(i, "CYCLES"), 100 + i) for i in range(16)),
                ("VF_CHIP_SC_1_SCS_SC_STATS_COUNTERS_UNPRIVILEGED_COUNT_CYCLES", 50),
                ("VF_CHIP_SC_1_SCS_SC_STATS_COUNTERS_UNPRIVILEGED_COUNT_S0_INSTRUCTION", 5),
            ]
        )
    )
    assert found[1, "TEC Scalar Issue"] == (160, 1600)
    assert found[1, "SCS: S0 Slot"] == (5, 50)


def test_unknown_devices_have_no_units_but_their_counters_are_listed() -> None:
    partial = host([(LONG + "CYCLES", 1000)], device_type="TPU v4")
    result = run_tool("utilization_viewer", [partial], Scope(["h0"]))
    assert result.status == "empty"
    assert [reason.code for reason in result.reasons] == ["no_unit_counters"]
    assert listed(partial).status == "ok"


def test_counters_are_summed_and_listed() -> None:
    result = listed(host([("a", 1), ("b", 2.5), ("a", 5)]))
    assert [row[:5] for row in result.tables["counters"].rows] == [
        ["a", 2, 6.0, 1.0, 5.0],
        ["b", 1, 2.5, 2.5, 2.5],
    ]
    assert [row[-1] for row in result.tables["values"].rows] == [1.0, 2.5, 5.0]
    assert result.tables["counters"].rows[0][5] == "what a counts"


def test_counters_can_be_chosen_by_name_and_chip() -> None:
    partial = host([("HBM_read", 1), ("cycles", 2)], chip={"device_id": 3, "global_chip_id": 17})
    assert len(listed(partial, counter="hbm").tables["values"].rows) == 1
    assert len(listed(partial, chip="17").tables["values"].rows) == 2
    assert listed(partial, chip="3").status == "empty"
    with pytest.raises(ParameterError, match="chip must be a whole number"):
        listed(partial, chip="x")


@pytest.mark.parametrize(
    ("device_type", "names"),
    [("v6e", ["a", "b"]), ("tpu v6 lite", ["a", "b"]), ("v7x", []), ("", ["a", "b"])],
)
def test_names_alone_can_be_asked_for(device_type: str, names: list[str]) -> None:
    partial = host([("B", 1), ("A", 2), ("B", 3)])
    found = listed(partial, names_only="1", device_type=device_type)
    assert [str(row[0]).lower() for row in found.tables["counters"].rows] == names
    assert list(found.tables["values"].rows) == []
    asked = {"names_only": "1", "device_type": device_type}
    told = run_tool_xprof("perf_counters", [partial], asked)
    assert told == [{"name": name} for name in names]
    assert len(listed(partial, names_only="0").tables["values"].rows) == 3
    with pytest.raises(ParameterError, match="names_only must be 1 or 0"):
        listed(partial, names_only="some")


@pytest.mark.case("2.T1")
def test_the_references_table_has_hexadecimal_values() -> None:
    known: Any = run_tool_xprof("perf_counters", [host([("Cycles", 0xABCD)])])
    assert known["rows"][0]["c"][5] == {"v": 43981.0, "f": "0xabcd"}
    found: Any = run_tool_xprof("perf_counters", [host([("Cycles", (1 << 63) + 1), ("x", 2.5)])])
    first, second = ([cell["v"] for cell in row["c"]] for row in found["rows"])
    assert first == ["h0", 3.0, "kernel", 5.0, "cycles", 2.0**63, "what Cycles counts", ""]
    assert found["rows"][0]["c"][5]["f"] == "0x8000000000000001"
    assert second[5] == 0.0


def test_gpus_are_listed_and_planes_without_a_chip_are_not() -> None:
    gpu = host([("sm__cycles_active", 7)], plane_name="/device:GPU:0", device_type="GPU")
    assert listed(gpu).status == "ok"
    assert listed(host([("x", 1)], chip={})).status == "empty"
    assert [reason.code for reason in listed(host([])).reasons] == ["no_counters"]


def test_more_values_than_can_be_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_COUNTERS", 2)
    result = listed(host([("a", 1), ("b", 2), ("c", 3)]))
    assert len(result.tables["values"].rows) == 2
    assert "1 values" in result.reasons[0].message
