"""Writes the pod's XSpaces as TensorBoard and XProf lay them out."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from podscope_agent.errors import SimulationError
from podscope_agent.simulator.faults import Fault
from podscope_agent.simulator.pod import Pod
from podscope_agent.simulator.profiler import corrupted
from podscope_agent.simulator.xspace import build_xspace

_WITHOUT_FILE = {"refuse", "hang", "busy", "reset"}
"""Faults after which a collector has nothing to store."""


def session_name(pod: Pod) -> str:
    """Name of the run folder when none is given."""
    return f"{pod.name}-{pod.device}-{pod.hosts}-hosts-seed-{pod.seed}"


def write_pod(
    pod: Pod, folder: Path, session: str | None = None, faults: Mapping[int, Fault] | None = None
) -> Iterator[tuple[int, Path | None, int]]:
    """Write ``<folder>/plugins/profile/<session>/<host>.xplane.pb`` host by host.

    Args:
        pod: What to simulate.
        folder: The log folder.
        session: Name of the run.
        faults: Host index -> fault; a host that would not have answered gets no file.

    Yields:
        Host index, the file (None: none written) and its size in bytes.

    Raises:
        SimulationError: A file cannot be written.
    """
    run = folder / "plugins" / "profile" / (session or session_name(pod))
    try:
        run.mkdir(parents=True, exist_ok=True)
        for host in range(pod.hosts):
            fault = (faults or {}).get(host)
            if fault is not None and fault.kind in _WITHOUT_FILE:
                yield host, None, 0
                continue
            window = pod.steps_window()
            if fault is not None and fault.kind == "empty":
                window = pod.steps_window(steps=0)
            xspace = build_xspace(pod, host, window)
            if fault is not None and fault.kind == "corrupt":
                xspace = corrupted(xspace)
            path = run / f"{pod.hostname(host)}.xplane.pb"
            path.write_bytes(xspace)
            yield host, path, len(xspace)
    except OSError as error:
        msg = f"cannot write to {error.filename or run}: {error.strerror}; choose another --write"
        raise SimulationError(msg) from error
