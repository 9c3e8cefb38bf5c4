"""The pods of this node that say by an annotation where their profiler listens."""

import asyncio
import http.client
import ipaddress
import json
import re
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import structlog

from podscope_agent.errors import AgentError
from podscope_agent.inventory import KnownTarget, TargetInventory

log = structlog.get_logger()

PORT_ANNOTATION: Final = "podscope.dev/port"
_PAGE: Final = 500
_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 64 << 20
_KEPT_LABELS: Final = (
    "jobset.sigs.k8s.io/jobset-name",
    "batch.kubernetes.io/job-name",
    "batch.kubernetes.io/job-completion-index",
    "app.kubernetes.io/name",
    "app",
)


class PodsError(AgentError):
    """The API server cannot be asked."""

    code = "kubernetes"


class PodWatcher:
    """Asks the API server every few seconds for the pods of one node.

    Args:
        url: Of the API server.
        node: Name of this agent's node.
        selector: Labels that the pods must have; empty for all.
        token_file: The service account's; read each time, since it is renewed.
        ca_file: Authorities that sign the server's certificate.
        inventory: Where the pods go.
    """

    def __init__(
        self,
        url: str,
        node: str,
        selector: str,
        token_file: Path,
        ca_file: Path,
        inventory: TargetInventory,
    ) -> None:
        self._url = url.rstrip("/")
        self._node = node
        self._selector = selector
        self._token_file = token_file
        self._ca_file = ca_file
        self._inventory = inventory
        self._has_failed = False

    async def run(self, every_s: float) -> None:
        """Look until cancelled; while the server is away, what was known stays."""
        while True:
            try:
                found = await asyncio.to_thread(self.look)
            except PodsError as error:
                if not self._has_failed:
                    log.warning("pods_not_listed", problem=str(error))
                self._has_failed = True
            else:
                self._has_failed = False
                self._inventory.replace_all("kubernetes", found)
            await asyncio.sleep(every_s)

    def look(self) -> list[KnownTarget]:
        """The pods of the node that can be captured; blocks.

        Raises:
            PodsError: The server cannot be asked, or refuses.
        """
        query = {"fieldSelector": f"spec.nodeName={self._node}", "limit": str(_PAGE)}
        if self._selector:
            query["labelSelector"] = self._selector
        targets: list[KnownTarget] = []
        while True:
            page = self._get(f"{self._url}/api/v1/pods?{urllib.parse.urlencode(query)}")
            for pod in page.get("items") or []:
                target = _target(pod)
                if target is not None:
                    targets.append(target)
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return targets
            query["continue"] = str(more)

    def _get(self, url: str) -> dict[str, Any]:
        if not url.startswith(("http://", "https://")):
            msg = f"'{url[:80]}' is no URL of an API server"
            raise PodsError(msg)
        request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - http(s) alone, see above
        tls: ssl.SSLContext | None = None
        try:
            if self._token_file.exists():
                token = self._token_file.read_text(encoding="ascii").strip()
                request.add_header("Authorization", f"Bearer {token}")
            if self._ca_file.exists():
                tls = ssl.create_default_context(cafile=str(self._ca_file))
            with _opener(tls).open(request, timeout=_TIMEOUT_S) as answer:
                body = answer.read(_MAX_ANSWER_BYTES + 1)
            found = json.loads(body) if len(body) <= _MAX_ANSWER_BYTES else None
        except urllib.error.HTTPError as error:
            with error:
                advice = (
                    "; the agent's service account needs the right to list pods"
                    if error.code in {401, 403}
                    else ""
                )
                msg = f"the Kubernetes API answers {error.code} {error.reason}{advice}"
                raise PodsError(msg) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            msg = f"the Kubernetes API at {self._url} cannot be asked ({error})"
            raise PodsError(msg) from error
        if not isinstance(found, dict):
            msg = f"the Kubernetes API at {self._url} does not answer with a list of pods"
            raise PodsError(msg)
        return found


def _opener(tls: ssl.SSLContext | None) -> urllib.request.OpenerDirector:
    """Asks the server itself: a proxy of the environment is for the web, and not told the token."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=tls), _NoRedirects()
    )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Where an answer leads, the token does not follow."""

    def redirect_request(self, *_: object) -> None:
        return None


def _target(pod: Any) -> KnownTarget | None:
    """The target of a running pod that carries the annotation; None for every other."""
    if not isinstance(pod, dict):
        return None
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    given = str((metadata.get("annotations") or {}).get(PORT_ANNOTATION, ""))
    if status.get("phase") != "Running" or metadata.get("deletionTimestamp"):
        return None
    if not (re.fullmatch(r"[0-9]{1,5}", given) and 1 <= int(given) <= 65535):
        return None
    try:
        address = ipaddress.ip_address(str(status.get("podIP")))
    except ValueError:
        return None
    host = str(address) if address.version == 4 else f"[{address}]"
    labels = metadata.get("labels") or {}
    kept = {name: str(labels[name])[:253] for name in _KEPT_LABELS if name in labels}
    kept |= {
        "pod": str(metadata.get("name", ""))[:253],
        "namespace": str(metadata.get("namespace", ""))[:63],
    }
    return KnownTarget(f"{host}:{int(given)}", source="kubernetes", labels=kept)
