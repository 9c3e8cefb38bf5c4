"""Clients of object stores that neither wait for ever nor give up what is captured too soon."""

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError
from obstore.store import ObjectStore, from_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import RetryConfig

# A profile must not be lost to a store that is away for a moment, and may be large: a request is
# bounded by the silence in it, not by its length.
_PATIENT: Final = {"connect_timeout": "5s", "read_timeout": "60s", "timeout": "1h"}
_PATIENT_RETRIES: Final["RetryConfig"] = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=60),
}
# Whoever asks whether the store is there at all hears it in some 20 s at the worst.
_PROMPT: Final = {"connect_timeout": "3s", "read_timeout": "8s", "timeout": "8s"}
_PROMPT_RETRIES: Final["RetryConfig"] = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=10),
}
# Options of a client replace those that the library reads from the environment.
_FROM_ENVIRONMENT: Final = (
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "read_timeout",
    "timeout",
    "user_agent",
)
_PREFIXES: Final = {"s3": "AWS_", "gs": "GOOGLE_"}
# As the library has it by itself: Google's metadata server speaks HTTP alone.
_OWN: Final[dict[str, dict[str, str]]] = {"s3": {}, "gs": {"allow_http": "true"}}

_DENIALS: Final = (PermissionDeniedError, UnauthenticatedError, PermissionError)
# Listings that are denied raise none of them.
_DENIED: Final = ("401 Unauthorized", "403 Forbidden")
# Where the clouds' machines are asked for their identity.
_ASKED_THE_MACHINE: Final = ("/latest/api/token", "/computeMetadata/")
_NO_CREDENTIALS: Final = {
    "s3": "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "AWS_SKIP_SIGNATURE=true for a public bucket",
    "gs": "no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS, or "
    "GOOGLE_SKIP_SIGNATURE=true for a public bucket",
}


def connect(root: str, options: "Mapping[str, str]", *, is_prompt: bool = False) -> ObjectStore:
    """The store of a URL; nothing is sent yet.

    Args:
        root: ``s3://bucket/prefix`` or ``gs://bucket/prefix``.
        options: The store's own, beside those of the environment.
        is_prompt: Give up soon, instead of waiting for a store that is away for a moment.
    """
    scheme = root.partition("://")[0]
    prefix = _PREFIXES[scheme]
    told = {
        name: os.environ[variable]
        for name in _FROM_ENVIRONMENT
        if (variable := prefix + name.upper()) in os.environ
    }
    # The options' types differ per cloud; the library itself rejects unknown ones.
    store: ObjectStore = from_url(  # type: ignore[call-overload]
        root,
        client_options={**_OWN[scheme], **(_PROMPT if is_prompt else _PATIENT), **told},
        retry_config=_PROMPT_RETRIES if is_prompt else _PATIENT_RETRIES,
        **options,
    )
    return store


def explain(error: Exception, bucket: str | None) -> tuple[str, str]:
    """What is wrong in one line, and what to do about it.

    Args:
        error: Of the library, or of the system.
        bucket: URL that was asked; None for a folder of this machine.
    """
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    if bucket is not None and any(sign in reason for sign in _ASKED_THE_MACHINE):
        # Nothing else names an identity, so the machine's own was asked for.
        return reason, _NO_CREDENTIALS[bucket.partition(":")[0]]
    if isinstance(error, _DENIALS) or any(sign in reason for sign in _DENIED):
        return "permission denied", "give this user access or choose another place"
    if bucket is not None and "404 Not Found" in reason:
        return "there is no such bucket", "check its name and its region"
    if "error sending request" in reason:
        return reason, "check the address of the store and the network between"
    return reason, "check that the place exists, is writable and has space"
