from collections.abc import Callable
from typing import Any

import pytest

from podscope_analyzers.hlo import Programs
from podscope_analyzers.op_metrics.run_environment import host_perf_env, host_run_environment
from podscope_analyzers.peaks import HBM, GpuCapabilities, PerfEnv, gpu_peaks, tpu_peaks
from podscope_analyzers.prepared import PreparedSpace

MakePlanes = Callable[[list[dict[str, Any]]], PreparedSpace]


def gpu(vendor: str, cores: int, ghz: float, capability: str, **more: Any) -> dict[str, Any]:
    major, minor = (int(part) for part in capability.split("."))
    return {
        "device_vendor": vendor,
        "core_count": cores,
        "clock_rate": round(ghz * 1e6),
        "compute_cap_major": major,
        "compute_cap_minor": minor,
        **more,
    }


@pytest.mark.case("G1", "G2", "G3", "G4", "G5", "G6", "2.O22", "2.O23", "2.O24", "2.O25", "2.O26")
@pytest.mark.parametrize(
    ("stats", "tera_flops", "tolerance"),
    [
        (gpu("Nvidia", 80, 1.53, "7.0"), 125.34, 0.01),
        (gpu("Nvidia", 148, 1.83, "10.0"), 2218, 1),
        (gpu("Nvidia", 148, 1.83, "10.9"), 2218, 1),
        (gpu("Nvidia", 114, 1.62, "9.0"), 756, 1),
        (gpu("Nvidia", 108, 1.41, "8.0"), 312, 1),
        (gpu("Nvidia", 1, 1.0, "1.3"), 0.064, 1e-9),
        (gpu("AMD", 304, 2.1, "0.0", gpu_device_name="gfx942"), 1307.4, 0.1),
        (gpu("AMD", 304, 2.1, "9.4"), 1307.4, 0.1),
        (gpu("AMD", 120, 1.502, "0.0", gpu_device_name="gfx908"), 184.6, 0.1),
        (gpu("AMD", 104, 1.7, "0.0", gpu_device_name="gfx90a"), 181, 0.1),
        (gpu("AMD", 256, 2.4, "0.0", gpu_device_name="gfx950"), 2516.6, 0.1),
        (gpu("AMD", 304, 2.1, "9.0"), 0, 0),
        (gpu("Other", 80, 1.5, "9.0"), 0, 0),
    ],
)
def test_flops_of_a_gpu_follow_from_its_cores_and_clock(
    stats: dict[str, Any], tera_flops: float, tolerance: float
) -> None:
    peak = gpu_peaks(stats).peak_tera_flops_per_second
    assert peak == pytest.approx(tera_flops, abs=tolerance)


@pytest.mark.case("G1")
def test_memory_of_a_gpu_and_the_ridge_point() -> None:
    env = gpu_peaks(gpu("Nvidia", 80, 1.53, "7.0", memory_bandwidth=900 * 10**9))
    assert env.bandwidth(HBM) == 900.0
    assert env.ridge_point == pytest.approx(139.26, abs=0.01)
    assert PerfEnv().ridge_point is None


@pytest.mark.case("G7", "2.O27")
def test_local_memory_of_a_gpu() -> None:
    mi300 = gpu_peaks(gpu("AMD", 304, 2.1, "9.4"))
    assert mi300.peak_gigabytes_per_second[1:] == pytest.approx((81715.2, 81715.2))
    mi355 = gpu_peaks(gpu("AMD", 256, 2.4, "9.5"))
    assert mi355.peak_gigabytes_per_second[1] == pytest.approx(157286.4)
    assert gpu_peaks(gpu("AMD", 304, 2.1, "9.0")).peak_gigabytes_per_second[1] == 0


@pytest.mark.case("G8", "2.O28", "2.O29")
def test_peaks_that_a_gpu_tells_are_used_unless_they_are_zero() -> None:
    base = gpu("AMD", 304, 2.1, "9.4", memory_bandwidth=5300 * 10**9)
    told = {
        "peak_teraflops_per_second": 1250.0,
        "peak_hbm_bw_gigabytes_per_second": 1.0,
        "peak_sram_rd_bw_gigabytes_per_second": 65000.0,
        "peak_sram_wr_bw_gigabytes_per_second": 48000.0,
    }
    assert gpu_peaks(base | told) == PerfEnv(1250.0, (5300.0, 65000.0, 48000.0))
    zero = gpu_peaks(base | dict.fromkeys(told, 0.0))
    assert zero.peak_tera_flops_per_second == pytest.approx(1307.44, abs=0.01)
    assert zero.bandwidth(1) == pytest.approx(81715.2)


@pytest.mark.case("G9", "G10", "2.O30")
@pytest.mark.parametrize(
    ("stats", "model"),
    [
        (gpu("Nvidia", 1, 1.0, "9.0", gpu_device_name="H100"), "Nvidia GPU (Hopper)"),
        (gpu("Nvidia", 1, 1.0, "10.3"), "Nvidia GPU (Blackwell)"),
        (gpu("Nvidia", 1, 1.0, "10.7"), "Nvidia GPU (Rubin)"),
        (gpu("Nvidia", 1, 1.0, "7.0"), "Nvidia GPU (Volta)"),
        (gpu("Nvidia", 1, 1.0, "7.5"), "Nvidia GPU (Turing)"),
        (gpu("Nvidia", 1, 1.0, "8.9"), "Nvidia GPU (Ada Lovelace)"),
        (gpu("Nvidia", 1, 1.0, "0.0"), "Nvidia GPU"),
        (gpu("AMD", 1, 1.0, "0.0", gpu_device_name="gfx950"), "AMD GPU - gfx950"),
        (gpu("AMD", 1, 1.0, "0.0", gpu_device_name="gfx942:sramecc+:xnack-"), "AMD GPU"),
        (gpu("AMD", 1, 1.0, "9.4"), "AMD GPU - gfx942"),
        (gpu("AMD", 1, 1.0, "9.0"), "AMD GPU - gfx-9XX series"),
        ({}, "GPU"),
    ],
)
def test_a_gpu_is_named_by_its_maker_and_family(stats: dict[str, Any], model: str) -> None:
    assert GpuCapabilities.of(stats).model == model


@pytest.mark.case("G11")
def test_a_tpu_tells_all_its_peaks() -> None:
    names = ("hbm_bw", "sram_rd_bw", "sram_wr_bw", "cmem_rd_bw", "cmem_wr_bw", "vmem_rd_bw")
    peaks = (900.0, 101.0, 102.0, 101.0, 102.0, 201.0)
    stats: dict[str, Any] = {
        f"peak_{name}_gigabytes_per_second": peak for name, peak in zip(names, peaks, strict=True)
    }
    env = tpu_peaks(stats | {"peak_teraflops_per_second": 141.0})
    assert env.peak_gigabytes_per_second == (*peaks, 0.0)
    assert env.has_cmem
    assert env.ridge_point == pytest.approx(156.67, abs=0.01)
    assert PerfEnv.from_state(env.to_state()) == env


@pytest.mark.case("K4")
def test_the_known_peak_stays_in_either_order() -> None:
    known, unknown = PerfEnv(100.0, (1.0,)), PerfEnv()
    assert PerfEnv.combine([known, unknown]) == PerfEnv.combine([unknown, known]) == known


@pytest.mark.case("G12", "G13")
def test_a_host_counts_its_devices(make_planes: MakePlanes) -> None:
    nvidia = gpu("Nvidia", 80, 1.5, "0.0")
    gpus = [{"name": f"/device:GPU:{i}", "stats": nvidia} for i in range(2)]
    environment = host_run_environment(make_planes(gpus), Programs({}))
    assert (environment.device_type, environment.device_core_count) == ("Nvidia GPU", 2)
    assert (environment.hostnames, environment.task_count) == (("host1",), 1)
    tpus = [
        {"name": f"/device:TPU:{i}", "stats": {"device_type_string": "TPU V4"}} for i in range(4)
    ]
    sparse = {"name": "/device:TPU:0 SparseCore 0"}
    environment = host_run_environment(make_planes([*gpus, *tpus, sparse]), Programs({}))
    assert (environment.device_type, environment.device_core_count) == ("TPU V4", 4)
    nothing = make_planes([])
    assert host_run_environment(nothing, Programs({})).device_type == "CPU"
    assert host_perf_env(nothing) == PerfEnv()
