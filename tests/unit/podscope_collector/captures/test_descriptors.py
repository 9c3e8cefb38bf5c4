import resource

import pytest

from podscope_collector.captures.descriptors import affordable_width


def test_a_low_soft_limit_is_raised_as_far_as_needed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1000:
        pytest.skip("the hard limit of this machine leaves no room")
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert affordable_width(500) == 500
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 628
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_the_hard_limit_leaves_is_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (200, 200))
    assert affordable_width(1000) == 72
    assert affordable_width(10) == 10
