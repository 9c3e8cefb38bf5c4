import pytest
from hypothesis import given
from hypothesis import strategies as st

from podscope_collector.captures.targets import (
    NoTargetError,
    TargetError,
    parse_targets,
    split_targets,
)
from podscope_protos.errors import ExitCode


def addresses(text: str | list[str]) -> list[str]:
    return [target.address for target in parse_targets(text).targets]


def test_commas_and_blanks_separate_and_empty_items_are_dropped() -> None:
    assert addresses(" a:1,, b:2\n\tc:3 ,") == ["a:1", "b:2", "c:3"]


def test_the_scheme_is_stripped_from_every_item_in_any_case() -> None:
    assert addresses("grpc://a:1,GRPC://b:2 gRpC://c:3/") == ["a:1", "b:2", "c:3"]


def test_duplicates_are_one_target_at_the_first_place() -> None:
    assert addresses("a:1 b:1 grpc://a:1 A:1 a:2") == ["a:1", "b:1", "a:2"]


def test_ranges_multiply_and_keep_leading_zeros() -> None:
    assert addresses("worker-[0-2].svc:9999") == [f"worker-{i}.svc:9999" for i in range(3)]
    assert addresses("h[08-10]:[1-2]") == [
        f"h{host}:{port}" for host in ("08", "09", "10") for port in (1, 2)
    ]
    assert addresses("h[0, 2,5-6]:1") == ["h0:1", "h2:1", "h5:1", "h6:1"]


def test_an_ipv6_address_keeps_its_brackets_and_is_normalised() -> None:
    (target,) = parse_targets("grpc://[0:0::1]:7011").targets
    assert (target.address, target.host, target.port) == ("[::1]:7011", "::1", 7011)
    assert addresses("[::1]:[80-81]") == ["[::1]:80", "[::1]:81"]


def test_a_name_beyond_ascii_is_dialled_by_its_idna_form() -> None:
    (target,) = parse_targets("bücher.example:9999").targets
    assert target.address == "xn--bcher-kva.example:9999"
    assert target.given == "bücher.example:9999"


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("a:0", 1, "1 to 65535"),
        ("a:1,b:65536", 2, "1 to 65535"),
        ("a:1 b:99999999999999999999", 2, "1 to 65535"),
        ("a:-1", 1, "'-1' is no port"),
        ("a:abc", 1, "'abc' is no port"),
        ("a:²", 1, "is no port"),
        ("a:", 1, "no port"),
        ("a", 1, "write a:9999"),
        (":9999", 1, "names no host"),
        ("http://a:1", 1, "'http://' is no profiler address"),
        ("a:1,,/b:2", 2, "is no host name"),
        ("::1:9999", 1, "brackets"),
        ("w0:x:1", 1, "more than one ':'"),
        ("[::1]", 1, "no port"),
        ("[::1", 1, "never closed"),
        ("[::zz]:1", 1, "no IPv6 address"),
        ("300.1.1.1:1", 1, "no IPv4 address"),
        ("-a:1", 1, "is no host name"),
        ("a..b:1", 1, "is no host name"),
        ("../x:1", 1, "is no host name"),
        ("h[5-2]:1", 1, "runs backwards"),
        ("h[a-z]:1", 1, "is not understood"),
        ("h[0-9999999]:1", 1, "at most 100,000"),
        ("h[0-999][0-999]:1", 1, "1,000,000 targets"),
        ("a" * 64 + ":1", 1, "is no host name"),
    ],
)
def test_an_error_names_the_item_its_position_and_the_problem(
    text: str, position: int, words: str
) -> None:
    with pytest.raises(TargetError, match=f"^target {position} ") as caught:
        parse_targets(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.wrong[0].position == position
    assert caught.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    "text",
    [
        "w[" + ",".join(["0-99999"] * 50_000) + "]:1",
        " ".join(["w[0-99999]:1"] * 50_000),
        "w[0-999]-[0-999]:1",
    ],
)
def test_a_text_that_stands_for_too_many_targets_is_refused_before_they_are_made(text: str) -> None:
    with pytest.raises(TargetError, match="100,000"):
        parse_targets(text)


def test_every_error_names_its_item_and_position_and_the_first_few_are_told() -> None:
    with pytest.raises(TargetError) as caught:
        parse_targets("a:0 b:1 c d:x")
    assert str(caught.value) == (
        "target 1 ('a:0'): port 0 is out of range; a port is a number from 1 to 65535; "
        "target 3 ('c'): it has no port; write c:9999; "
        "target 4 ('d:x'): 'x' is no port; a port is a number from 1 to 65535"
    )
    with pytest.raises(TargetError, match=r"target 5 .*9999 \(and 2 more\)$") as caught:
        parse_targets("a b c d e f g")
    assert [one.position for one in caught.value.wrong] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("text", ["", " , ", []])
def test_an_empty_list_is_an_error(text: str | list[str]) -> None:
    with pytest.raises(NoTargetError, match="empty"):
        parse_targets(text)


def test_control_characters_are_escaped_in_the_message() -> None:
    with pytest.raises(TargetError) as caught:
        parse_targets("a\x1b[31mb:1")
    assert "\x1b" not in str(caught.value)


def test_ten_thousand_targets_parse() -> None:
    text = ",".join(f"grpc://worker-{i}.jobs.svc.cluster.local:9999" for i in range(10_000))
    assert len(parse_targets(text).targets) == 10_000


names = st.from_regex(r"[a-z][a-z0-9-]{0,10}[a-z0-9](\.[a-z0-9]{1,5}[a-z])?", fullmatch=True)
hosts = st.tuples(names, st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}")


@given(st.lists(hosts, min_size=1), st.sampled_from([",", " ", ", ", "\n", ",,"]))
def test_any_list_of_good_items_comes_back_distinct_and_in_order(
    items: list[str], separator: str
) -> None:
    text = separator.join(items)
    assert addresses(text) == list(dict.fromkeys(items))
    assert addresses(split_targets(text)) == addresses(text)


@given(st.text(max_size=60))
def test_any_text_gives_targets_or_one_clear_error(text: str) -> None:
    problem = ""
    wanted = None
    try:
        wanted = parse_targets(text)
    except (TargetError, NoTargetError) as error:
        problem = str(error)
    assert (wanted is not None) != bool(problem)
    assert "\n" not in problem
    found = wanted.targets if wanted else ()
    assert all(1 <= target.port <= 65535 and target.host for target in found)
    if found:
        assert addresses([target.address for target in found]) == [t.address for t in found]
