"""The grammar of targets that are looked up: DNS names, pods, JobSets and TPUs."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from podscope_collector.captures.addresses import ItemProblem, parse_name, parse_port, shown

JOBSET_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
PORT_ANNOTATION: Final = "podscope.dev/port"

_DNS_LABEL = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$")
_LABEL_KEY = re.compile(
    r"^(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?"
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
)
_LABEL_VALUE = re.compile(r"^(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$")
_TPU_NAME = re.compile(r"^[A-Za-z](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$")
_OBJECT_NAME = re.compile(r"^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$")


@dataclass(frozen=True, slots=True)
class DnsLookup:
    """Every address of a DNS name.

    Attributes:
        given: The item of the request, as for every lookup.
    """

    given: str
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class PodLookup:
    """The running pods that a label selector matches.

    Attributes:
        namespace: Empty for the namespace that podscope itself runs in.
        selector: As the Kubernetes API takes it, ``key=value,key=value``.
        port: None for the port in the pod's annotation.
    """

    given: str
    namespace: str
    selector: str
    port: int | None


@dataclass(frozen=True, slots=True)
class TpuLookup:
    """The workers of a Cloud TPU.

    Attributes:
        zone: Empty for the zone that podscope itself runs in.
        port: Of the profiler on every worker; None for the one that goes with the worker's own.
    """

    given: str
    name: str
    zone: str
    port: int | None


Lookup = DnsLookup | PodLookup | TpuLookup


def parse_lookup(item: str) -> Lookup | None:
    """The lookup that an item asks for; None when it is an address.

    Items are ``dns:///headless.svc:9999``, ``k8s:namespace/key=value:9999`` (several labels
    with ``&``; without a port the pods' annotation tells it), ``jobset:name:9999`` or
    ``jobset:namespace/name``, and ``tpu:name``, ``tpu:zone/name`` or ``tpu:name:9999``.

    Raises:
        ItemProblem: It begins as a lookup and is none.
    """
    scheme, colon, rest = item.partition(":")
    parse = _GRAMMARS.get(scheme.lower())
    # `tpu:9999` is port 9999 of a machine that is called tpu.
    if parse is None or not colon or re.fullmatch(r"[0-9,\[\]-]+", rest):
        return None
    return parse(item, rest)


def tpu_lookup(item: str, text: str) -> TpuLookup:
    """The lookup of a TPU by ``name``, ``zone/name`` or ``name:port``.

    Raises:
        ItemProblem: It is no name of a TPU.
    """
    text, port = _split_port(text)
    zone, slash, name = text.rpartition("/")
    if not _TPU_NAME.match(name) or (slash and not _DNS_LABEL.match(zone)):
        msg = f"'{shown(text)}' is no TPU; write tpu:name, tpu:zone/name or tpu:name:9999"
        raise ItemProblem(msg)
    if name == "local" and not zone:
        msg = "'local' means no remote TPU; name the profiler's host:port"
        raise ItemProblem(msg)
    return TpuLookup(item, name, zone, port)


def _dns(item: str, text: str) -> DnsLookup:
    if not text.startswith("//"):
        msg = "a DNS name is written dns:///name:9999"
        raise ItemProblem(msg)
    authority, slash, rest = text[2:].partition("/")
    if authority or not slash:
        msg = "only the system's own resolver is asked; write dns:///name:9999, with three '/'"
        raise ItemProblem(msg)
    name, port = _split_port(rest)
    if port is None:
        msg = f"it has no port; write dns:///{shown(rest)}:9999"
        raise ItemProblem(msg)
    return DnsLookup(item, parse_name(name), port)


def _pods(item: str, text: str) -> PodLookup:
    text, port = _split_port(text)
    namespace, slash, selector = text.partition("/")
    if not slash or not _DNS_LABEL.match(namespace) or not selector:
        msg = "pods are written k8s:namespace/label=value:9999"
        raise ItemProblem(msg)
    for term in selector.split("&"):
        key, equals, given = term.partition("=")
        if not (equals and _LABEL_KEY.match(key) and _LABEL_VALUE.match(given)):
            msg = f"'{shown(term)}' is no label; write label=value, several joined by '&'"
            raise ItemProblem(msg)
    return PodLookup(item, namespace, selector.replace("&", ","), port)


def _jobset(item: str, text: str) -> PodLookup:
    text, port = _split_port(text)
    namespace, slash, name = text.rpartition("/")
    if not _OBJECT_NAME.match(name) or (slash and not _DNS_LABEL.match(namespace)):
        msg = f"'{shown(text)}' is no JobSet; write jobset:name:9999 or jobset:namespace/name:9999"
        raise ItemProblem(msg)
    return PodLookup(item, namespace, f"{JOBSET_LABEL}={name}", port)


def _split_port(text: str) -> tuple[str, int | None]:
    before, colon, port = text.rpartition(":")
    return (before, parse_port(port)) if colon else (text, None)


_GRAMMARS: Final[Mapping[str, Callable[[str, str], Lookup]]] = {
    "dns": _dns,
    "k8s": _pods,
    "jobset": _jobset,
    "tpu": tpu_lookup,
}
