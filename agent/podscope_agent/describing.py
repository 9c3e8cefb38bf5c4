"""Asks a running agent what it can capture."""

from typing import Any, Final

import grpc

from podscope_agent.errors import AgentDeniedError, AgentUnreachableError
from podscope_agent.inventory import TargetState
from podscope_protos import methods
from podscope_protos.tokens import may_carry_token
from podscope_protos.v1 import agent_service_pb2 as own

_TIMEOUT_S: Final = 10.0
_STATES: Final = {
    own.TargetDescription.STATE_READY: TargetState.READY,
    own.TargetDescription.STATE_BUSY: TargetState.BUSY,
    own.TargetDescription.STATE_UNREACHABLE: TargetState.UNREACHABLE,
    own.TargetDescription.STATE_INCOMPATIBLE: TargetState.INCOMPATIBLE,
}


def describe(
    address: str,
    token: str | None = None,
    tls: grpc.ChannelCredentials | None = None,
    *,
    token_in_plain_text: bool = False,
) -> own.DescribeResponse:
    """What the agent at ``host:port`` says of its host.

    Raises:
        AgentUnreachableError: No agent answers there.
        AgentDeniedError: It wants a token that it was not given, or that may not be sent there.
    """
    is_safe = may_carry_token(address, is_encrypted=tls is not None) or token_in_plain_text
    sent = () if token is None or not is_safe else (("authorization", f"Bearer {token}"),)
    options = (("grpc.enable_http_proxy", 0),)
    with (
        grpc.insecure_channel(address, options=options)
        if tls is None
        else grpc.secure_channel(address, tls, options=options)
    ) as channel:
        method = channel.unary_unary(
            methods.AGENT_DESCRIBE, request_serializer=bytes, response_deserializer=bytes
        )
        try:
            return own.DescribeResponse.FromString(method(b"", timeout=_TIMEOUT_S, metadata=sent))
        except grpc.RpcError as error:
            code = error.code()
            if code is grpc.StatusCode.UNAUTHENTICATED:
                msg = f"the agent at {address} wants its token; give --token-file"
                if token is not None:
                    msg = f"the agent at {address} wants another token"
                if not is_safe:
                    msg = (
                        f"the agent at {address} wants its token, which is not sent in plain text; "
                        "give --ca-file, or --token-in-plain-text"
                    )
                raise AgentDeniedError(msg) from error
            what = (
                "a server without podscope's agent service"
                if code is grpc.StatusCode.UNIMPLEMENTED
                else f"no agent ({code.name})"
            )
            msg = f"{what} answers at {address}; start one with: podscope agent"
            raise AgentUnreachableError(msg) from error


def described_target(target: own.TargetDescription) -> dict[str, Any]:
    """A target as ``--json`` shows it."""
    state = _STATES.get(target.state)
    return {
        "address": target.address,
        "state": None if state is None else str(state),
        "detail": target.detail,
        "source": target.source,
        "pid": target.pid or None,
        "framework": target.framework or None,
        "labels": dict(target.labels),
        "started_at_ns": target.started_at_ns or None,
    }
