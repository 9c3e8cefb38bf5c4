"""The token that requests carry, as both sides read it from a file.

Apart from ``security``, so that a client loads nothing of a server.
"""

from pathlib import Path

from pydantic import SecretStr

from podscope_collector.errors import InputNotFoundError, RequestError

_MIN_TOKEN_LENGTH = 16


def read_token(path: Path) -> SecretStr:
    """The token in the file.

    Raises:
        InputNotFoundError: the file cannot be read.
        RequestError: what it holds is no token.
    """
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text"
        message = f"cannot read the token file {path}: {reason}"
        raise InputNotFoundError(message) from error
    if len(token) < _MIN_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
        message = (
            f"the token in {path} must be {_MIN_TOKEN_LENGTH} or more printable ASCII characters; "
            "make one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        )
        raise RequestError(message)
    return SecretStr(token)


def read_agent_token(path: Path | None) -> str | None:
    """The token that agents ask for; None without a file.

    Raises:
        InputNotFoundError: the file cannot be read.
        RequestError: what it holds is no token.
    """
    return None if path is None else read_token(path).get_secret_value()
