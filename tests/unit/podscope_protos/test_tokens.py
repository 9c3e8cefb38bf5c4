import pytest

from podscope_protos.tokens import may_carry_token


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("localhost:8466", True),
        ("LocalHost:8466", True),
        ("127.0.0.1:8466", True),
        ("127.8.9.10:8466", True),
        ("[::1]:8466", True),
        ("unix:/run/a.sock", True),
        ("0.0.0.0:8466", False),
        ("10.0.0.7:8466", False),
        ("[fd00::7]:8466", False),
        ("localhost.evil.example:8466", False),
        ("127.0.0.1.nip.example:8466", False),
        ("worker-0:8466", False),
        ("", False),
    ],
)
def test_a_token_goes_in_plain_text_to_this_machine_alone(address: str, *, is_own: bool) -> None:
    assert may_carry_token(address, is_encrypted=False) is is_own
    assert may_carry_token(address, is_encrypted=True)
