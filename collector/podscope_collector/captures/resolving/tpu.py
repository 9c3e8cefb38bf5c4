"""The workers of a Cloud TPU, from the TPU API with the metadata server's token."""

import ipaddress
from typing import Any, Final

from podscope_collector.captures.addresses import TPU_RUNTIME_PORT, Target
from podscope_collector.captures.lookups import TpuLookup
from podscope_collector.captures.resolving.errors import LookupFailed
from podscope_collector.captures.resolving.found import Found
from podscope_collector.captures.resolving.http import get_json, get_text
from podscope_collector.settings import CollectorSettings
from podscope_protos.methods import AGENT_PORT

_METADATA: Final = "/computeMetadata/v1"
_METADATA_WHAT: Final = "the metadata server"
_TPU_WHAT: Final = "the Cloud TPU API"
_FLAVOR: Final = {"Metadata-Flavor": "Google"}


def look_up_tpu(lookup: TpuLookup, settings: CollectorSettings) -> Found:
    """The workers in the order of the API.

    Raises:
        LookupFailed: The API cannot be asked, or the TPU is not ready.
    """
    project = settings.tpu_project or _metadata("project/project-id", "PROJECT", settings)
    zone = lookup.zone or settings.tpu_zone or _metadata("instance/zone", "ZONE", settings)
    node = _node(lookup.name, project, zone.rpartition("/")[2], settings)
    state = str(node.get("state") or "unknown")
    if state != "READY":
        msg = f"the TPU {lookup.name} is not ready (its state is {state[:40]})"
        raise LookupFailed(msg)
    endpoints = node.get("networkEndpoints")
    if not isinstance(endpoints, list) or not endpoints:
        endpoints = [node]
    return Found(tuple(_target(lookup, number, found) for number, found in enumerate(endpoints)))


def _target(lookup: TpuLookup, number: int, endpoint: Any) -> Target:
    try:
        address = ipaddress.ip_address(endpoint["ipAddress"])
        told = int(endpoint.get("port") or TPU_RUNTIME_PORT)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        msg = f"the Cloud TPU API names no address of worker {number} of {lookup.name}"
        raise LookupFailed(msg) from error
    port = lookup.port or (AGENT_PORT if told == TPU_RUNTIME_PORT else told)
    if not 1 <= port <= 65535:
        msg = f"the Cloud TPU API tells port {port} of worker {number} of {lookup.name}"
        raise LookupFailed(msg)
    host = str(address) if address.version == 4 else f"[{address}]"
    name = f"{lookup.name}-w{number}:{port}"
    return Target(f"{host}:{port}", lookup.given, str(address), port, name=name)


def _node(name: str, project: str, zone: str, settings: CollectorSettings) -> dict[str, Any]:
    timeout_s = settings.resolve_timeout.total_seconds()
    token = get_json(
        f"{_metadata_url(settings)}/instance/service-accounts/default/token",
        what=_METADATA_WHAT,
        timeout_s=timeout_s,
        headers=_FLAVOR,
    ).get("access_token")
    if not isinstance(token, str) or not token:
        msg = "the metadata server gives no token; attach a service account to this machine"
        raise LookupFailed(msg)
    try:
        return get_json(
            f"{settings.tpu_url.rstrip('/')}/projects/{project}/locations/{zone}/nodes/{name}",
            what=_TPU_WHAT,
            timeout_s=timeout_s,
            headers={"Authorization": f"Bearer {token}"},
            proxied=True,
        )
    except LookupFailed as error:
        if error.status == 404:
            msg = (
                f"project {project} has no TPU {name} in zone {zone}; name the zone: "
                f"tpu:ZONE/{name}"
            )
            raise LookupFailed(msg, status=404) from error
        if error.status == 403:
            msg = f"{error}; this machine's service account needs the role roles/tpu.viewer"
            raise LookupFailed(msg, status=403) from error
        raise


def _metadata(path: str, setting: str, settings: CollectorSettings) -> str:
    try:
        return get_text(
            f"{_metadata_url(settings)}/{path}",
            what=_METADATA_WHAT,
            timeout_s=settings.resolve_timeout.total_seconds(),
            headers=_FLAVOR,
        ).strip()
    except LookupFailed as error:
        msg = f"{error}; outside Google Cloud set PODSCOPE_COLLECTOR_TPU_{setting}"
        raise LookupFailed(msg, status=error.status) from error


def _metadata_url(settings: CollectorSettings) -> str:
    return settings.metadata_url.rstrip("/") + _METADATA
