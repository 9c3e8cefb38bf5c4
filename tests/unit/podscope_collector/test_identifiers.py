import time

from podscope_collector.identifiers import uuid7


def test_ids_are_uuids_of_version_7_in_the_order_of_their_making() -> None:
    made = [uuid7() for _ in range(10_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)
    assert {(made_id.version, made_id.variant) for made_id in made} == {
        (7, "specified in RFC 4122")
    }


def test_the_first_48_bits_are_the_milliseconds_of_the_day() -> None:
    before = time.time_ns() // 1_000_000
    stamp = uuid7().int >> 80
    assert before <= stamp <= time.time_ns() // 1_000_000 + 10
