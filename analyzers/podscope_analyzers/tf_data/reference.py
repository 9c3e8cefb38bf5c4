"""The reference's message on tf.data as protobuf's JSON: numbers of 64 bits as text, no defaults.

It knows hosts by the names that they give themselves. Those that share one, such as containers of
a machine, are one host in it, whose pipelines of one id are one: with the calls of all, in the
order of the hosts, but the latencies of the last.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from podscope_analyzers.tf_data.bottlenecks import Step, TfDataHost, steps_for, summary_of
from podscope_analyzers.tf_data.pipelines import SLOW_CALL_PS, Iterator, Pipeline, TfDataStats


@dataclass
class _Pipeline:
    """A pipeline of all hosts of one name.

    Attributes:
        latest: Of the last host that has it.
        calls: Stats, and where the call's rows in them begin and end.
    """

    name: str
    is_device: bool
    latest: Pipeline
    calls: list[tuple[TfDataStats, int, int]] = field(default_factory=list)


@dataclass
class _Host:
    """All hosts of one name; pipelines by the ids of their roots."""

    name: str
    iterators: dict[int, Iterator] = field(default_factory=dict)
    pipelines: dict[int, _Pipeline] = field(default_factory=dict)

    def add(self, stats: TfDataStats) -> None:
        """Take what another host of this name did."""
        for own, iterator in stats.iterators.items():
            self.iterators.setdefault(own, iterator)
        numbers = {True: 0, False: 0}
        for pipeline in stats.pipelines():
            known = self.pipelines.get(pipeline.root_id)
            if known is None:
                is_device = pipeline.is_device
                name = f"{'Device' if is_device else 'Host'}:{numbers[is_device]}"
                numbers[is_device] += 1
                known = _Pipeline(name, is_device, pipeline)
                self.pipelines[pipeline.root_id] = known
            known.latest = pipeline
            bounds = pipeline.entries.tolist()
            known.calls += [(stats, begin, end) for begin, end in pairwise(bounds)]


def reference_message(hosts: Iterable[TfDataHost]) -> dict[str, object]:
    """``CombinedTfDataStats`` of the hosts."""
    merged: dict[str, _Host] = {}
    for host in hosts:
        merged.setdefault(host.hostname, _Host(host.hostname)).add(host.tf_data)
    slowest = sorted(
        ((host, one) for host in merged.values() for one in host.pipelines.values()),
        key=lambda pair: -pair[1].latest.max_latency_ps,
    )
    fed = [(host, one) for host, one in slowest if not one.is_device]
    longest_ps = fed[0][1].latest.max_latency_ps if fed else 0
    return _without_defaults(
        {
            "bottleneckAnalysis": [_row(host, one) for host, one in fed],
            "isInputBound": longest_ps > SLOW_CALL_PS,
            "summary": summary_of(longest_ps),
        }
    ) | {"tfDataStats": {name: _host_json(host) for name, host in merged.items()}}


def _row(host: _Host, one: _Pipeline) -> dict[str, object]:
    stats, begin, end = one.calls[0]
    own, self_ps = stats.bottleneck(begin, end)
    iterator = host.iterators.get(own) if self_ps or not own else None
    return _without_defaults(
        {
            "host": host.name,
            "inputPipeline": one.name,
            "maxLatencyPs": str(one.latest.max_latency_ps),
            "iteratorName": iterator.name if iterator else "",
            "iteratorLongName": iterator.long_name if iterator else "",
            "iteratorLatencyPs": str(self_ps),
            "suggestion": _html(steps_for(iterator.name if iterator else "")),
        }
    )


def _html(steps: Sequence[Step]) -> str:
    texts = []
    for step in steps:
        text = re.sub(r"`([^`]*)`", r"<code>\1</code>", step.text)
        if step.link:
            text += f' See <a href="{step.link}" target="_blank">this</a> for details.'
        texts.append(text)
    if len(texts) == 1:
        return texts[0]
    return "<br/>".join(f"{number}. {text}" for number, text in enumerate(texts, start=1))


def _host_json(host: _Host) -> dict[str, object]:
    iterators = {
        str(own): _without_defaults(
            {
                "id": str(one.id),
                "parentId": str(one.parent_id),
                "name": one.name,
                "longName": one.long_name,
                "isAsync": one.is_async,
            }
        )
        for own, one in host.iterators.items()
    }
    pipelines = {str(root): _pipeline_json(root, one) for root, one in host.pipelines.items()}
    return _without_defaults({"iteratorMetadata": iterators, "inputPipelines": pipelines})


def _pipeline_json(root: int, one: _Pipeline) -> dict[str, object]:
    return {
        "metadata": _without_defaults(
            {"id": str(root), "type": "DEVICE" if one.is_device else "", "name": one.name}
        ),
        **_without_defaults(
            {
                "avgLatencyPs": str(one.latest.average_latency_ps),
                "minLatencyPs": str(one.latest.min_latency_ps),
                "maxLatencyPs": str(one.latest.max_latency_ps),
                "numSlowCalls": str(one.latest.slow_calls),
            }
        ),
        "stats": [_call_json(*call) for call in one.calls],
    }


def _call_json(stats: TfDataStats, begin: int, end: int) -> dict[str, object]:
    iterator_id, self_ps = stats.bottleneck(begin, end)
    return _without_defaults(
        {
            "bottleneckIteratorId": str(iterator_id),
            "bottleneckIteratorLatencyPs": str(self_ps),
            "iteratorStats": {
                str(stats.iterator_ids[row]): _without_defaults(
                    {
                        "id": str(stats.iterator_ids[row]),
                        "startTimePs": str(stats.start_ps[row]),
                        "durationPs": str(stats.duration_ps[row]),
                        "selfTimePs": str(stats.self_ps[row]),
                        "isBlocking": bool(stats.is_blocking[row]),
                        "numCalls": str(stats.calls[row]),
                    }
                )
                for row in range(begin, end)
            },
        }
    )


def _without_defaults(message: Mapping[str, object]) -> dict[str, object]:
    # Keys of maps are kept by their callers: an iterator may be called 0.
    return {name: value for name, value in message.items() if value not in ("", "0", False, [], {})}
