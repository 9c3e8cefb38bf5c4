"""The failure that an RPC answers with."""

import grpc


class RpcFailure(Exception):  # noqa: N818 - it is the answer of an RPC, not only an error
    """A status to answer a call with.

    Attributes:
        status: The gRPC status code.
        details: Its text.
    """

    def __init__(self, status: grpc.StatusCode, details: str) -> None:
        self.status = status
        self.details = details
        super().__init__(f"{status.name}: {details}")
