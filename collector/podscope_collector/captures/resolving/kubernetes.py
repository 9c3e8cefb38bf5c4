"""The running pods that a label selector matches, from the Kubernetes API server."""

import ipaddress
import re
import ssl
from pathlib import Path
from typing import Any, Final

from podscope_collector.captures.addresses import MAX_TARGETS, Target
from podscope_collector.captures.lookups import PORT_ANNOTATION, PodLookup
from podscope_collector.captures.resolving.errors import LookupFailed
from podscope_collector.captures.resolving.found import Found, LeftOut
from podscope_collector.captures.resolving.http import get_json
from podscope_collector.settings import CollectorSettings

_PAGE: Final = 500
_WHAT: Final = "the Kubernetes API"


def look_up_pods(lookup: PodLookup, settings: CollectorSettings) -> Found:
    """The pods in the order of their names, numbers by value.

    A pod that matches and cannot be captured (not running, without an address or a port) is
    left out by name, never silently.

    Raises:
        LookupFailed: The API cannot be asked, or no pod matches.
    """
    namespace = lookup.namespace or _own_namespace(settings)
    targets: list[Target] = []
    left_out: list[LeftOut] = []
    for pod in sorted(_list_pods(lookup, namespace, settings), key=_order):
        name = _name(pod)
        problem = _why_not(pod)
        port = lookup.port or _annotated_port(pod)
        if problem is None and port is None:
            problem = (
                f"has no port: give one in the target, or annotate the pod with {PORT_ANNOTATION}"
            )
        if problem is not None or port is None:
            left_out.append(LeftOut(lookup.given, name, f"pod {name} {problem}"))
            continue
        address = ipaddress.ip_address(pod["status"]["podIP"])
        host = str(address) if address.version == 4 else f"[{address}]"
        targets.append(
            Target(f"{host}:{port}", lookup.given, str(address), port, name=f"{name}:{port}")
        )
    if not targets:
        why = f"; {left_out[0].message}" if left_out else ""
        msg = f"no running pod in namespace {namespace} matches {lookup.selector}{why}"
        raise LookupFailed(msg)
    return Found(tuple(targets), tuple(left_out))


def _list_pods(
    lookup: PodLookup, namespace: str, settings: CollectorSettings
) -> list[dict[str, Any]]:
    url = f"{settings.kubernetes_url.rstrip('/')}/api/v1/namespaces/{namespace}/pods"
    token = _read(settings.kubernetes_token_file)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    params = {"labelSelector": lookup.selector, "limit": str(_PAGE)}
    tls = _tls(settings)
    pods: list[dict[str, Any]] = []
    while True:
        try:
            page = get_json(
                url,
                what=_WHAT,
                timeout_s=settings.resolve_timeout.total_seconds(),
                params=params,
                headers=headers,
                tls=tls,
            )
        except LookupFailed as error:
            msg = f"{error}; {_advice(error, namespace)}"
            raise LookupFailed(msg) from error
        items = page.get("items") or []
        pods += [pod for pod in items if isinstance(pod, dict)]
        more = (page.get("metadata") or {}).get("continue")
        if not more:
            return pods
        if len(pods) >= MAX_TARGETS:
            msg = f"{lookup.selector} matches more than {MAX_TARGETS:,} pods; select fewer"
            raise LookupFailed(msg)
        params = {**params, "continue": str(more)}


def _advice(error: LookupFailed, namespace: str) -> str:
    if error.status in {401, 403}:
        return f"podscope's service account needs the right to list pods in {namespace}"
    if error.status is not None:
        return "check the target's namespace and labels"
    return (
        "outside a cluster start 'kubectl proxy' and set "
        "PODSCOPE_COLLECTOR_KUBERNETES_URL=http://127.0.0.1:8001"
    )


def _why_not(pod: dict[str, Any]) -> str | None:
    status = pod.get("status") or {}
    if (pod.get("metadata") or {}).get("deletionTimestamp"):
        return "is being deleted"
    if status.get("phase") != "Running":
        return f"is not running ({str(status.get('phase') or 'unknown')[:40]})"
    try:
        ipaddress.ip_address(str(status.get("podIP")))
    except ValueError:
        return "has no address yet"
    return None


def _annotated_port(pod: dict[str, Any]) -> int | None:
    text = str(((pod.get("metadata") or {}).get("annotations") or {}).get(PORT_ANNOTATION, ""))
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        return None
    return int(text)


def _name(pod: dict[str, Any]) -> str:
    # Pods of a JobSet have a stable host name and end their own in five random letters.
    name = (pod.get("spec") or {}).get("hostname") or (pod.get("metadata") or {}).get("name")
    return str(name or "?")[:253]


def _order(pod: dict[str, Any]) -> list[tuple[int, str]]:
    parts = re.split(r"([0-9]+)", _name(pod))
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _own_namespace(settings: CollectorSettings) -> str:
    return _read(settings.kubernetes_token_file.with_name("namespace")) or "default"


def _read(path: Path) -> str:
    """The text of a file of the service account; empty outside a cluster."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        msg = f"cannot read {path} ({error})"
        raise LookupFailed(msg) from error


def _tls(settings: CollectorSettings) -> ssl.SSLContext | None:
    if not settings.kubernetes_ca_file.exists():
        return None
    try:
        return ssl.create_default_context(cafile=str(settings.kubernetes_ca_file))
    except (OSError, ssl.SSLError) as error:
        msg = f"cannot use the certificates in {settings.kubernetes_ca_file} ({error})"
        raise LookupFailed(msg) from error
