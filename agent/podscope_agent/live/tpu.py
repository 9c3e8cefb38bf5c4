"""TPU figures from libtpu's own metric service, without importing libtpu.

The service lives in the workload and only while it holds the TPU: no one listening means no
workload, which is not an error.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import grpc

from podscope_agent.live.chips import TpuKind
from podscope_agent.live.model import BackendError, DeviceSample
from podscope_agent.live.peaks import peak_flops_per_second
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

    def __init__(
        self, addresses: Sequence[str] = (DEFAULT_ADDRESS,), chips: Sequence[TpuKind] = ()
    ) -> None:
        """Connect lazily to `addresses`; `chips` are those that the host's buses show."""
        self._kinds = [kind for kind in chips for _ in range(kind.devices_per_chip)]
        options = (("grpc.enable_http_proxy", 0),)
        self._channels = [grpc.insecure_channel(address, options) for address in addresses]

    def sample(self) -> list[DeviceSample]:
        """Return the figures of every chip of every workload on the host.

        Raises:
            BackendError: no server answers but with a failure.
        """
        chips: dict[int, DeviceSample] = {}
        failures: list[BackendError] = []
        for channel in self._channels:
            try:
                supported = self._supported(channel)
            except BackendError as error:
                # A process that hangs must not hide the chips of the others.
                failures.append(error)
                continue
            for name in supported:
                # A metric that one libtpu lacks must not hide the others.
                for chip, value in self._per_device(name, self._read(channel, name)):
                    sample = chips.get(chip) or DeviceSample("tpu", str(chip))
                    chips[chip] = _SETTERS[name](sample, value)
        if failures and not chips:
            raise failures[0]
        # Chips without a workload have a model and a size all the same.
        for device in range(len(self._kinds)):
            chips.setdefault(device, DeviceSample("tpu", str(device)))
        return [self._with_model(device, chips[device]) for device in sorted(chips)]

    def _per_device(self, name: str, values: list[tuple[int, float]]) -> list[tuple[int, float]]:
        """Older libtpus tell the duty cycle of chips, where everything else is of devices."""
        per_chip = self._kinds[0].devices_per_chip if self._kinds else 1
        if name != DUTY_CYCLE or len(values) * per_chip > len(self._kinds):
            return values
        return [
            (chip * per_chip + device, value)
            for chip, value in values
            for device in range(per_chip)
        ]

    def _with_model(self, device: int, sample: DeviceSample) -> DeviceSample:
        if device >= len(self._kinds):
            return sample
        kind = self._kinds[device]
        peak = peak_flops_per_second(kind.name)
        limit = sample.memory_limit_bytes
        return replace(
            sample,
            model=kind.name,
            memory_limit_bytes=kind.memory_bytes if limit is None else limit,
            peak_flops_per_second=None if peak is None else peak / kind.devices_per_chip,
        )

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
