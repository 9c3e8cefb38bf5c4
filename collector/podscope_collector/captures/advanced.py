"""The tracers' own options: every key that a tracer is known to read, with its type."""

import difflib
from collections.abc import Mapping
from typing import Final

AdvancedValue = bool | int | str

ADVANCED_OPTIONS: Final[Mapping[str, type[bool] | type[int] | type[str]]] = {
    "enable_continuous_profiling": bool,
    "gpu_dump_graph_node_mapping": bool,
    "gpu_enable_cupti_activity_graph_trace": bool,
    "gpu_enable_nvtx_tracking": bool,
    "gpu_max_activity_api_events": int,
    "gpu_max_annotation_strings": int,
    "gpu_max_callback_api_events": int,
    "gpu_num_chips_to_profile_per_task": int,
    "gpu_pm_sample_buffer_size_per_gpu_mb": int,
    "gpu_pm_sample_counters": str,
    "gpu_pm_sample_interval_us": int,
    "max_trace_buffers": int,
    "tpu_circular_buffer_tracing": bool,
    "tpu_cmn_perf_counter_sampling_options": str,
    "tpu_cpu_perf_counter_configs": str,
    "tpu_cpu_perf_counter_profile_events": str,
    "tpu_e2e_enable_fw_power_level_event": bool,
    "tpu_e2e_enable_fw_thermal_event": bool,
    "tpu_e2e_enable_fw_throttle_event": bool,
    "tpu_enable_periodic_counter_sampling": bool,
    "tpu_icr_perf_counter_sampling_options": str,
    "tpu_num_chips_to_profile_per_task": int,
    "tpu_num_sparse_core_tiles_to_trace": int,
    "tpu_num_sparse_cores_to_trace": int,
    "tpu_perf_counters": bool,
    "tpu_power_trace_level": int,
    "tpu_sc_dma": bool,
    "tpu_scs_perf_counter_sampling_options": str,
    "tpu_sctc_perf_counter_sampling_options": str,
    "tpu_sctd_perf_counter_sampling_options": str,
    "tpu_tc_perf_counter_sampling_options": str,
    "tpu_trace_mode": str,
    "tpu_tracemark_lower": int,
    "tpu_tracemark_upper": int,
    "tpu_watched_sync_flag_mask": int,
    "tpu_watched_sync_flag_number": int,
    "tracemark_lower": int,
    "tracemark_upper": int,
}

_NOT_TAKEN: Final[Mapping[str, str]] = {
    "override_hostnames": "hosts are called by their targets, pods and TPU workers by their names",
}
_TYPE_WORDS: Final = {bool: "true or false", int: "a whole number", str: "a text"}


def nearest(key: str, known: Mapping[str, object] | list[str]) -> str:
    """A hint that names the known key most like ``key``, or how many there are."""
    found = difflib.get_close_matches(key, list(known), n=1, cutoff=0.4)
    if found:
        return f"did you mean '{found[0]}'?"
    return "known are " + ", ".join(sorted(known))


def checked(key: str, given: object) -> AdvancedValue:
    """The value of an option in the type that its tracer reads.

    Raises:
        ValueError: The key is unknown or the value has another type; one clear line.
    """
    wanted = ADVANCED_OPTIONS.get(key)
    if key in _NOT_TAKEN:
        msg = f"advanced option '{key}' is not taken: {_NOT_TAKEN[key]}"
        raise ValueError(msg)
    if wanted is None:
        msg = f"advanced option '{key[:80]}' is unknown; {nearest(key, ADVANCED_OPTIONS)}"
        raise ValueError(msg)
    # bool is an int in Python, but not on the wire.
    if wanted is bool and isinstance(given, bool):
        return given
    if wanted is int and isinstance(given, int) and not isinstance(given, bool):
        if -(2**63) <= given < 2**63:
            return given
        msg = f"advanced option '{key}' does not fit in 64 bits"
        raise ValueError(msg)
    if wanted is str and isinstance(given, str):
        return given
    msg = f"advanced option '{key}' must be {_TYPE_WORDS[wanted]}"
    raise ValueError(msg)


def from_text(key: str, text: str) -> AdvancedValue:
    """The value of an option as typed on a command line.

    Raises:
        ValueError: As for ``checked``.
    """
    wanted = ADVANCED_OPTIONS.get(key)
    if wanted is bool and text.lower() in {"true", "false", "1", "0", "yes", "no", "on", "off"}:
        return text.lower() in {"true", "1", "yes", "on"}
    if wanted is int:
        try:
            return checked(key, int(text, 0))
        except ValueError:
            return checked(key, text)
    return checked(key, text)
