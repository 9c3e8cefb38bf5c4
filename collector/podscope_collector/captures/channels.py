"""How every channel to a host is opened."""

from typing import Final

from podscope_protos.methods import MAX_MESSAGE_BYTES

CHANNEL_OPTIONS: Final = (
    # A proxy of the environment is for the web, never for the hosts of a job.
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Connections of an earlier capture would bring their back-off with them.
    ("grpc.use_local_subchannel_pool", 1),
    # The window would grow to megabytes of an answer that nobody reads yet; when it is read, the
    # window is as large as the message anyway.
    ("grpc.http2.bdp_probe", 0),
)
