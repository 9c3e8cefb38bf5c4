"""How many hosts one simulator process can serve, and how fast a bare client captures them all.

    python benchmarks/simulator_scale.py [HOSTS] [EVENTS]

Prints the time until all servers listen, the memory of the process, and the time and size of one
capture of all hosts at once.
"""

import asyncio
import sys
import time
from pathlib import Path

import grpc

from podscope_agent.simulator import Pod, serve
from podscope_protos import methods
from podscope_protos.v1 import profiler_service_pb2 as wire

OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0))


def resident_mib(process_id: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{process_id}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def capture(address: str, start_ns: int) -> tuple[int, float]:
    """Bytes of a host's trace and when it had arrived."""
    options = wire.ProfileOptions(
        version=1,
        duration_ms=200,
        host_tracer_level=2,
        device_tracer_level=1,
        enable_hlo_proto=True,
        start_timestamp_ns=start_ns,
    )
    request = wire.ProfileRequest(opts=options, emit_xspace=True, session_id="scale")
    async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
        call = channel.unary_unary(methods.PROFILE, None, None)
        answer = await call(request.SerializeToString(), timeout=300)
    return len(answer), time.monotonic()


async def capture_all(addresses: tuple[str, ...]) -> tuple[list[int], float, float]:
    """Sizes by host, and the seconds until the first and the last answer."""
    began = time.monotonic()
    start_ns = time.time_ns() + 1_000_000_000
    answers = await asyncio.gather(*(capture(address, start_ns) for address in addresses))
    times = [at - began for _, at in answers]
    return [size for size, _ in answers], min(times), max(times)


def main() -> None:
    """Run once and print."""
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    events = int(sys.argv[2]) if len(sys.argv) > 2 else None
    began = time.monotonic()
    with serve(Pod("tpu-v5e", hosts=hosts, events=events)) as pod:
        listening = time.monotonic() - began
        before = resident_mib(pod.process_id)
        sizes, first, last = asyncio.run(capture_all(pod.addresses))
        after = resident_mib(pod.process_id)
    total = sum(sizes) / 1e6
    print(f"{hosts} hosts listen after {listening:.2f} s, {before:.0f} MiB resident")
    print(
        f"captured at once (1 s ahead, 0.2 s long): first answer after {first:.2f} s, "
        f"last after {last:.2f} s; {total:.1f} MB, {after:.0f} MiB resident afterwards"
    )


if __name__ == "__main__":
    main()
