"""Writes profiles to a shared repository, where the agent may: a folder or an object store."""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from podscope_agent.errors import RepositoryError
from podscope_agent.pieces import Pieces
from podscope_protos.v1 import profiler_service_pb2 as wire

if TYPE_CHECKING:
    from obstore.store import RetryConfig

_SCHEMES: Final = ("s3://", "gs://")
# The collector waits for the profile meanwhile, usually 60 s: it is to hear what is wrong.
_RETRIES: Final["RetryConfig"] = {"max_retries": 5, "retry_timeout": timedelta(seconds=20)}
# Brackets: clients name their files after addresses, of IPv6 too.
_NAME = re.compile(r"(?!\.)[A-Za-z0-9._\[\]-]{1,240}")
_SUFFIX: Final = ".xplane.pb"


@dataclass(frozen=True, slots=True)
class WrittenProfile:
    """A profile in a repository.

    Attributes:
        path: As people find it.
        sha256: Digest in hex.
    """

    path: str
    size: int
    sha256: str


def file_stem(request: wire.ProfileRequest) -> str:
    """What the client calls this host by, as stock servers make a file's name of it."""
    return request.opts.override_hostname or request.host_name.replace(":", "_")


class Repository:
    """Roots below which this agent may write ``session/host.xplane.pb``.

    Args:
        allowed_roots: Folders, ``s3://bucket/prefix`` or ``gs://bucket/prefix``; a request may
            name one of them or something below.
    """

    def __init__(self, allowed_roots: Sequence[str]) -> None:
        self.allowed_roots = tuple(root.rstrip("/") for root in allowed_roots if root.strip("/ "))

    def allows(self, root: str) -> bool:
        """Whether a request may have its profile written below ``root``."""
        return self._normal(root) is not None

    def check(self, root: str, session: str, host: str) -> str:
        """The folder or prefix that a profile would be written below.

        Raises:
            RepositoryError: The root is not allowed, or a name is no name.
        """
        base = self._normal(root)
        if base is None:
            msg = f"'{root[:200]}' is no root that this agent may write to; see --allow-root"
            raise RepositoryError(msg)
        for name in (session, host):
            if not _NAME.fullmatch(name):
                msg = f"'{name[:80]}' is no name of a session or a host"
                raise RepositoryError(msg)
        return base

    def write(self, root: str, session: str, host: str, profile: Pieces) -> WrittenProfile:
        """Write a profile under a temporary name and move it to its own.

        Raises:
            RepositoryError: The root is not allowed, a name is no name, or it cannot be written.
        """
        base = self.check(root, session, host)
        key = f"{session}/{host}{_SUFFIX}"
        try:
            if base.startswith(_SCHEMES):
                digest = _put_object(base, key, profile)
            elif self._normal(f"{base}/{session}") != f"{base}/{session}":
                msg = f"'{session}' in {base} is a link; profiles are written to folders alone"
                raise RepositoryError(msg)
            else:
                digest = _put_file(Path(base) / session, f"{host}{_SUFFIX}", profile)
        except OSError as error:
            msg = f"cannot write {base}/{key}: {error.strerror or error}"
            raise RepositoryError(msg) from error
        return WrittenProfile(f"{base}/{key}", profile.size, digest)

    def _normal(self, root: str) -> str | None:
        """The root without detours, when it is an allowed one or below one."""
        if root.startswith(_SCHEMES):
            scheme, _, rest = root.partition("://")
            parts = rest.rstrip("/").split("/")
            if any(part in {"", ".", ".."} for part in parts):
                return None
            normal = f"{scheme}://{'/'.join(parts)}"
        elif root.startswith("/"):
            # A link inside an allowed folder must not lead out of it.
            normal = os.path.realpath(root)
        else:
            return None
        for allowed in self.allowed_roots:
            own = allowed if allowed.startswith(_SCHEMES) else os.path.realpath(allowed)
            if normal == own or normal.startswith(f"{own}/"):
                return normal
        return None


def _put_file(folder: Path, name: str, profile: Pieces) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("wb") as file:
            digest = profile.write_to(file)
        temporary.replace(folder / name)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return digest


def _put_object(base: str, key: str, profile: Pieces) -> str:
    # Sixteen megabytes that an agent without an object store never loads.
    try:
        import obstore
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        msg = "writing to an object store needs: pip install 'podscope[agent,upload]'"
        raise RepositoryError(msg) from error
    digest = hashlib.sha256()

    def hashed() -> Iterator[bytes]:
        for piece in profile.slices():
            digest.update(piece)
            yield bytes(piece)

    try:
        # An object store shows an object only when it is whole.
        obstore.put(from_url(base, retry_config=_RETRIES), key, hashed())
    except BaseError as error:
        reason = str(error).strip().partition("\n")[0]
        msg = f"cannot write {base}/{key}: {reason}"
        raise RepositoryError(msg) from error
    return digest.hexdigest()
