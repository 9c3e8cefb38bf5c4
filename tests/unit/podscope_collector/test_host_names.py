import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_collector.host_names import (
    distinct_host_names,
    is_part_of,
    part_name,
    safe_host_name,
)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1:9999", "10.0.0.1_9999"),
        ("worker-0.jobs.svc.cluster.local:9999", "worker-0.jobs.svc.cluster.local_9999"),
        ("[::1]:7011", "__1_7011"),
    ],
)
def test_an_address_is_named_as_stock_clients_name_it(address: str, name: str) -> None:
    assert safe_host_name(address) == name


@pytest.mark.parametrize("name", ["..", "../../etc/passwd", "a/b", "", ".hidden", "a\\b", "\x00"])
def test_a_name_never_leaves_its_folder_or_hides(name: str) -> None:
    safe = safe_host_name(name)
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", safe)
    assert ".." not in safe


@pytest.mark.parametrize("name", ["ALL_HOSTS", "no_host", "con", "NUL.txt", "com1"])
def test_reserved_names_are_changed(name: str) -> None:
    assert safe_host_name(name).lower().startswith("host-")


def test_two_ports_of_one_host_and_names_that_differ_in_case_stay_apart() -> None:
    names = distinct_host_names(["h:1", "h:2", "H:1", "h:1", "é:1", "è:1"])
    assert len({name.lower() for name in names}) == 6


def test_a_long_name_is_cut_and_stays_distinct() -> None:
    one, other = distinct_host_names(["x" * 400 + ":1", "x" * 400 + ":2"])
    assert one != other
    assert max(len(one), len(other)) <= 180


@given(st.lists(st.text(max_size=300), max_size=20))
def test_any_names_become_safe_and_distinct(names: list[str]) -> None:
    found = distinct_host_names(names)
    assert len({name.lower() for name in found}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", name) for name in found)


def test_the_parts_of_a_host_are_named_after_it_whatever_an_agent_says() -> None:
    assert part_name("w0", "process-12") == "w0.process-12"
    for suffix in ("", "svc", "../x", "process-", "process-../x", "process-" + "9" * 300):
        name = part_name("w0", suffix)
        assert is_part_of(name, "w0")
        assert re.fullmatch(r"w0\.process-[A-Za-z0-9._-]{1,200}", name)
    assert not is_part_of("w0.svc", "w0")
    assert not is_part_of("w0", "w0")
