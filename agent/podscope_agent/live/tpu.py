"""TPU figures from libtpu's own metric service, without importing libtpu.

The service lives in the workload and only while it holds the TPU: no one listening means no
workload, which is not an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import grpc

from podscope_agent.live.model import BackendError, DeviceSample
from podscope_protos import methods
from podscope_protos.v1 import tpu_metrics_pb2 as wire

DEFAULT_ADDRESS: Final = "localhost:8431"
_TIMEOUT_S: Final = 2.0

MEMORY_TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
MEMORY_USAGE: Final = "tpu.runtime.hbm.memory.usage.bytes"
DUTY_CYCLE: Final = "tpu.runtime.tensorcore.dutycycle.percent"
HBM_UTILIZATION: Final = "tpu.runtime.hbm.utilization.percent"


def _call(channel: grpc.Channel, path: str, body: bytes) -> bytes:
    method = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
    answer: bytes = method(body, timeout=_TIMEOUT_S)
    return answer


_Setter = Callable[[DeviceSample, float], DeviceSample]
_SETTERS: Final[dict[str, _Setter]] = {
    MEMORY_TOTAL: lambda sample, value: replace(sample, memory_limit_bytes=int(value)),
    MEMORY_USAGE: lambda sample, value: replace(sample, memory_used_bytes=int(value)),
    DUTY_CYCLE: lambda sample, value: replace(sample, duty_cycle_ratio=value / 100),
    HBM_UTILIZATION: lambda sample, value: replace(
        sample, memory_bandwidth_utilization_ratio=value / 100
    ),
}


class TpuBackend:
    """Reads every metric server of the host, one per process that holds chips."""

    name = "tpu"

    def __init__(self, addresses: Sequence[str] = (DEFAULT_ADDRESS,)) -> None:
        """Connect lazily to `addresses`."""
        options = (("grpc.enable_http_proxy", 0),)
        self._channels = [grpc.insecure_channel(address, options) for address in addresses]

    def sample(self) -> list[DeviceSample]:
        """Return the figures of every chip of every workload on the host.

        Raises:
            BackendError: a server answers, but with a failure.
        """
        chips: dict[int, DeviceSample] = {}
        for channel in self._channels:
            for name in self._supported(channel):
                # A metric that one libtpu lacks must not hide the others.
                for chip, value in self._read(channel, name):
                    sample = chips.get(chip) or DeviceSample("tpu", str(chip))
                    chips[chip] = _SETTERS[name](sample, value)
        return [chips[chip] for chip in sorted(chips)]

    def _supported(self, channel: grpc.Channel) -> list[str]:
        body = wire.ListSupportedMetricsRequest().SerializeToString()
        try:
            answer = _call(channel, methods.LIST_SUPPORTED_METRICS, body)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                return []
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                return list(_SETTERS)
            msg = f"libtpu's metric service answers {error.code().name}: {error.details()}"
            raise BackendError(msg) from error
        listed = wire.ListSupportedMetricsResponse.FromString(answer)
        names = {metric.metric_name for metric in listed.supported_metric}
        return [name for name in _SETTERS if name in names]

    def _read(self, channel: grpc.Channel, name: str) -> list[tuple[int, float]]:
        body = wire.MetricRequest(metric_name=name).SerializeToString()
        try:
            answer = _call(channel, methods.GET_RUNTIME_METRIC, body)
        except grpc.RpcError:
            return []
        values = []
        for metric in wire.MetricResponse.FromString(answer).metric.metrics:
            which = metric.gauge.WhichOneof("value")
            if which in {"as_double", "as_int"}:
                chip = metric.attribute.value.int_attr
                values.append((chip, float(getattr(metric.gauge, which))))
        return values
