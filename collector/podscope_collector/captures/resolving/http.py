"""Small JSON and text answers over HTTP, with a limit on everything."""

import json
import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx

from podscope_collector.captures.resolving.errors import LookupFailed

MAX_ANSWER_BYTES: Final = 64 << 20


def get_json(
    url: str,
    *,
    what: str,
    timeout_s: float,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    proxied: bool = False,
) -> dict[str, Any]:
    """The JSON object at a URL.

    Args:
        url: Where, without the query.
        what: Who is asked, for messages: "the Kubernetes API".
        timeout_s: For each step of the exchange.
        params: The query.
        headers: Beyond those that every request has.
        tls: How the server is verified; the system's authorities when absent.
        proxied: Whether a proxy of the environment may be used.

    Raises:
        LookupFailed: No answer, an error status, or no JSON object.
    """
    text = get_text(
        url,
        what=what,
        timeout_s=timeout_s,
        params=params,
        headers=headers,
        tls=tls,
        proxied=proxied,
    )
    try:
        found = json.loads(text)
    except ValueError as error:
        msg = f"{what} at {url} does not answer in JSON"
        raise LookupFailed(msg) from error
    if not isinstance(found, dict):
        msg = f"{what} at {url} does not answer with a JSON object"
        raise LookupFailed(msg)
    return found


def get_text(
    url: str,
    *,
    what: str,
    timeout_s: float,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    proxied: bool = False,
) -> str:
    """The text at a URL, as ``get_json``."""
    try:
        with (
            httpx.Client(
                timeout=timeout_s, trust_env=proxied, verify=True if tls is None else tls
            ) as client,
            client.stream("GET", url, params=params, headers=headers) as answer,
        ):
            body = bytearray()
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    msg = f"{what} at {url} answers with more than {MAX_ANSWER_BYTES >> 20} MiB"
                    raise LookupFailed(msg)
            if answer.is_success:
                return body.decode("utf-8", "replace")
            raise LookupFailed(_refusal(what, url, answer, bytes(body)), status=answer.status_code)
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError) as error:
        why = str(error) or type(error).__name__
        msg = f"{what} at {url} cannot be reached ({why})"
        raise LookupFailed(msg) from error


def _refusal(what: str, url: str, answer: httpx.Response, body: bytes) -> str:
    """One line out of the answers of Kubernetes and of Google's APIs."""
    reason = answer.reason_phrase
    try:
        found = json.loads(body)
        told = found.get("message") or found["error"]["message"]
        reason = " ".join(str(told).split())[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return f"{what} at {url} answers {answer.status_code}: {reason}"
