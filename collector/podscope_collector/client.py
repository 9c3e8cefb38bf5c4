"""The REST API as the command line uses it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from podscope_collector.errors import (
    CollectorError,
    ConflictError,
    DeniedError,
    InputNotFoundError,
    RequestError,
    ServiceUnreachableError,
)
from podscope_collector.tokens import read_token

DEFAULT_URL: Final = "http://127.0.0.1:8080"


@contextmanager
def as_of_podscope(url: str) -> Iterator[None]:
    """Read an answer of ``url`` in the block: one that lacks what we read is not podscope's.

    Raises:
        ServiceUnreachableError: a field is missing or has a value that it cannot have.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _foreign(url) from error


def _foreign(url: str) -> ServiceUnreachableError:
    message = (
        f"{url} answers, but not as a podscope service of this version; "
        "check --url, or upgrade the older of the two"
    )
    return ServiceUnreachableError(message)


class ServiceClient:
    """Asks a podscope service; every failure becomes one of our errors.

    Args:
        url: Where it is served, without ``/api``.
        token_file: File with its token, when it asks for one.
        timeout_s: For an answer.

    Attributes:
        url: As it was given.
    """

    def __init__(self, url: str, token_file: Path | None = None, *, timeout_s: float = 30) -> None:
        if not url.startswith(("http://", "https://")):
            message = f"--url '{url[:80]}' is no URL; write {DEFAULT_URL}"
            raise RequestError(message)
        try:
            httpx.URL(url)
        except httpx.InvalidURL as error:
            message = f"--url '{url[:80]}' is no URL ({error}); write {DEFAULT_URL}"
            raise RequestError(message) from error
        headers = {}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(token_file).get_secret_value()}"
        self.url = url
        self._base = f"{url.rstrip('/')}/api/v1"
        self._headers = headers
        self._timeout_s = timeout_s

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The JSON object that the service answers; empty when it answers nothing.

        Raises:
            ServiceUnreachableError: nothing answers, or not a podscope.
            CollectorError: the service refused; of the class that fits its status.
        """
        try:
            with httpx.Client(timeout=self._timeout_s, trust_env=False) as client:
                answer = client.request(
                    method, self._base + path, params=query, json=body, headers=self._headers
                )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"no podscope service answers at {self.url} ({error}); start one: podscope up"
            raise ServiceUnreachableError(message) from error
        return self._content(answer)

    def events(self, path: str, silence_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """The server-sent events of a route as they come, each with the object that it carries.

        Args:
            path: Of the route.
            silence_s: How long the service may say nothing.

        Raises:
            ServiceUnreachableError: nothing answers, the stream broke off or fell silent, or it
                is not podscope's.
            CollectorError: the service refused; of the class that fits its status.
        """
        limits = httpx.Timeout(self._timeout_s, read=silence_s)
        try:
            with (
                httpx.Client(timeout=limits, trust_env=False) as client,
                client.stream("GET", self._base + path, headers=self._headers) as answer,
            ):
                if not answer.is_success:
                    answer.read()
                    self._content(answer)
                if "text/event-stream" not in answer.headers.get("content-type", ""):
                    raise _foreign(self.url)
                event = ""
                for line in answer.iter_lines():
                    field, _, text = line.partition(": ")
                    if field == "event":
                        event = text
                    elif field == "data":
                        with as_of_podscope(self.url):
                            told = dict(json.loads(text))
                        yield event, told
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            message = f"the events of {self.url} broke off ({error})"
            raise ServiceUnreachableError(message) from error

    def _content(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code == httpx.codes.NO_CONTENT:
            return {}
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            if answer.status_code in {401, 403}:
                # A proxy in front of the service answers so, in words of its own.
                message = f"{self.url} wants to know who asks; pass --token-file"
                raise DeniedError(message)
            raise _foreign(self.url)
        if answer.is_success:
            return found
        if answer.status_code == httpx.codes.NOT_FOUND and "code" not in found:
            # Every problem that we answer has a code: this server only lacks our routes.
            raise _foreign(self.url)
        if answer.status_code == httpx.codes.METHOD_NOT_ALLOWED:
            # A page of podscope's own or of another server: no route of the API refuses a method
            # that this client uses.
            raise _foreign(self.url)
        detail = str(found.get("detail") or answer.reason_phrase)
        raise _error_of(answer.status_code)(detail)


def _error_of(status: int) -> type[CollectorError]:
    match status:
        case 401 | 403:
            return DeniedError
        case 404:
            return InputNotFoundError
        case 409:
            return ConflictError
        case 400 | 413 | 422:
            return RequestError
        case 503:
            return ServiceUnreachableError
        case _:
            return CollectorError
