"""A synchronized capture that cannot start together is refused beforehand, with its numbers."""

import resource

import pytest

from podscope_collector.captures.addresses import Target
from podscope_collector.captures.fitting import DoesNotFitError, check_descriptors, check_together
from podscope_collector.captures.targets import parse_targets

MIB = 1 << 20


def hosts(text: str) -> tuple[Target, ...]:
    return parse_targets([text]).targets


def test_what_fits_to_the_byte_is_let_through() -> None:
    check_together(hosts("w[0-127]:1"), 8 * MIB, byte_budget=1024 * MIB, width=128)


@pytest.mark.parametrize(
    ("count", "host_bytes", "words"),
    [
        (129, 8 * MIB, ("129 hosts", "8 MiB each", "1,032 MiB", "MEMORY_BYTES to 1082130432")),
        (128, 8 * MIB + 1, ("1,024 MiB", "MEMORY_BYTES to 1073741952")),
        (257, 1, ("257 hosts", "256 may be in flight", "CAPTURE_WIDTH to 257")),
    ],
)
def test_a_refusal_names_the_numbers_and_what_to_raise(
    count: int, host_bytes: int, words: tuple[str, ...]
) -> None:
    with pytest.raises(DoesNotFitError) as caught:
        check_together(hosts(f"w[1-{count}]:1"), host_bytes, byte_budget=1024 * MIB, width=256)
    for word in words:
        assert word in str(caught.value)
    assert caught.value.http_status == 422


def test_a_host_with_an_agent_needs_room_for_a_piece_alone() -> None:
    check_together(hosts("agent://w[1-64]"), 500 * MIB, byte_budget=64 * MIB, width=64)
    with pytest.raises(DoesNotFitError):
        check_together(hosts("grpc://w[1-64]:1"), 500 * MIB, byte_budget=64 * MIB, width=64)


def test_one_host_alone_always_fits() -> None:
    check_together(hosts("w0:1"), 2000 * MIB, byte_budget=64 * MIB, width=1)


def test_too_few_open_files_are_refused_with_the_limit_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 1024))
    check_descriptors(896)
    with pytest.raises(DoesNotFitError, match=r"allows 896 connections; raise it .* to 1,128"):
        check_descriptors(1000)
