import pytest

from podscope_collector.captures.lookups import DnsLookup, Lookup, PodLookup, TpuLookup
from podscope_collector.captures.targets import TargetError, parse_targets


def lookup(text: str, *, is_tpu_name: bool = False) -> Lookup:
    wanted = parse_targets(text, is_tpu_name=is_tpu_name)
    assert wanted.targets == ()
    (found,) = wanted.lookups
    assert found.given == text
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dns:///headless.svc:9999", DnsLookup("", "headless.svc", 9999)),
        ("k8s:train/app=llm:9999", PodLookup("", "train", "app=llm", 9999)),
        ("k8s:train/app=llm", PodLookup("", "train", "app=llm", None)),
        ("k8s:train/a.io/b=c&role=w:1", PodLookup("", "train", "a.io/b=c,role=w", 1)),
        ("jobset:llm-7b", PodLookup("", "", "jobset.sigs.k8s.io/jobset-name=llm-7b", None)),
        ("jobset:ns/j:9999", PodLookup("", "ns", "jobset.sigs.k8s.io/jobset-name=j", 9999)),
        ("tpu:v5e-pod", TpuLookup("", "v5e-pod", "", None)),
        ("tpu:us-east1-c/v5e:9012", TpuLookup("", "v5e", "us-east1-c", 9012)),
        ("TPU:v5e", TpuLookup("", "v5e", "", None)),
    ],
)
def test_each_kind_of_lookup_is_understood(text: str, expected: Lookup) -> None:
    found = lookup(text)
    assert type(found) is type(expected)
    for name in type(expected).__slots__:
        if name != "given":
            assert getattr(found, name) == getattr(expected, name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("dns://8.8.8.8/name:1", "three '/'"),
        ("dns:name:1", "dns:///name:9999"),
        ("dns:///name", "no port"),
        ("dns:///:1", "no host name"),
        ("k8s:app=llm:9999", "k8s:namespace/label=value"),
        ("k8s:Train/app=llm:9", "k8s:namespace/label=value"),
        ("k8s:train/app:9", "'app' is no label"),
        ("k8s:train/app=llm&=x:9", "'=x' is no label"),
        ("k8s:train/app=llm:0", "1 to 65535"),
        ("k8s:train/app=l?limit=1:9", "is no label"),
        ("jobset:../x:9", "is no JobSet"),
        ("tpu:../../x", "is no TPU"),
        ("tpu:", "write tpu:name"),
        ("jobset:", "write jobset:name:9999"),
        ("dns:", "a DNS name is written dns:///name:9999"),
        ("tpu:1abc", "is no TPU"),
        ("tpu:local", "no remote TPU"),
    ],
)
def test_a_lookup_that_is_none_is_one_clear_error(text: str, words: str) -> None:
    with pytest.raises(TargetError, match=r"^target 1 ") as caught:
        parse_targets(text)
    assert words in str(caught.value)


def test_a_machine_may_be_called_like_a_kind_of_lookup() -> None:
    wanted = parse_targets("tpu:8466 k8s:[1-2] dns:53 jobset:1")
    assert [t.address for t in wanted.targets] == [
        "tpu:8466",
        "k8s:1",
        "k8s:2",
        "dns:53",
        "jobset:1",
    ]


def test_addresses_and_lookups_mix_freely_and_keep_their_order() -> None:
    wanted = parse_targets("w0:1, tpu:a\nw1:1 k8s:n/a=b:2,tpu:a agent://h[0-1] agent://[::1]:7")
    assert [t.address for t in wanted.targets] == ["w0:1", "w1:1", "h0:8466", "h1:8466", "[::1]:7"]
    assert [found.given for found in wanted.lookups] == ["tpu:a", "k8s:n/a=b:2"]


def test_bare_names_are_tpus_when_the_request_says_so() -> None:
    assert lookup("v5e-pod", is_tpu_name=True) == TpuLookup("v5e-pod", "v5e-pod", "", None)
    wanted = parse_targets(
        "grpc://10.0.0.1:8470 grpc://10.0.0.2 grpc://[::2]:8470 10.0.0.3:9999", is_tpu_name=True
    )
    assert [t.address for t in wanted.targets] == [
        "10.0.0.1:8466",
        "10.0.0.2:8466",
        "[::2]:8466",
        "10.0.0.3:9999",
    ]
