import os
import socket
from pathlib import Path

from podscope_agent.processes import owners_of_ports, port_of, shared_port_text

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid "


def table(*sockets: tuple[int, int, str]) -> str:
    rows = [
        f"   {i}: 00000000:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 "
        f"00000000     0        0 {inode} 1"
        for i, (port, inode, state) in enumerate(sockets)
    ]
    return "\n".join([HEADER, *rows]) + "\n"


def process(proc: Path, pid: int, *inodes: int) -> None:
    folder = proc / str(pid) / "fd"
    folder.mkdir(parents=True)
    for number, inode in enumerate(inodes):
        (folder / str(number)).symlink_to(f"socket:[{inode}]")
    (folder / "9").symlink_to("/dev/null")


def test_processes_that_share_a_port_are_told_from_parent_and_child(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        table((9999, 11, "0A"), (9999, 12, "0A"), (9000, 13, "0A"), (9001, 14, "01"))
    )
    (tmp_path / "net" / "tcp6").write_text(table((9002, 15, "0A")))
    process(tmp_path, 100, 11)
    process(tmp_path, 200, 12, 14)
    process(tmp_path, 300, 13)
    process(tmp_path, 301, 13)  # a fork of it
    process(tmp_path, 400, 15)
    (tmp_path / "self").mkdir()
    assert owners_of_ports(tmp_path) == {9999: (100, 200), 9000: (300,), 9002: (400,)}


def test_a_port_of_this_process_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        owners = owners_of_ports()
        assert owners[listener.getsockname()[1]] == (os.getpid(),)


def test_what_is_said_of_a_shared_port_names_it_and_the_way_out() -> None:
    text = shared_port_text("localhost:9999", (100, 200))
    assert text.startswith("localhost:9999: processes 100, 200 share this port")
    assert port_of("[::1]:9999") == 9999
