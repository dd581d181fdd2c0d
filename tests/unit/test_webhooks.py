"""Allowed URLs of webhooks, and checks of signatures."""

from __future__ import annotations

import pytest

from taskloom.contract.webhooks import is_genuine, signature
from taskloom.server.webhooks.targets import is_allowed


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://ci.example.org/hooks", True),
        ("https://ci.example.org/hooks/", True),
        ("https://ci.example.org:443/hooks/a?token=b", True),
        ("https://ci.example.org/hooksy", False),
        ("https://ci.example.org/", False),
        ("https://ci.example.org/hooks/../admin", False),
        ("https://ci.example.org/hooks/%2e%2e/admin", False),
        ("https://ci.example.org/hooks/..%5cadmin", False),
        ("https://ci.example.org.evil.org/hooks", False),
        ("https://evil.org@ci.example.org/hooks", False),
        ("https://ci.example.org@evil.org/hooks", False),
        ("http://ci.example.org/hooks", False),
        ("https://ci.example.org:8443/hooks", False),
        ("http://10.0.0.1:8000/", True),
        ("http://10.0.0.1:8000/any", True),
        ("http://10.0.0.1/any", False),
        ("https://[::1/hooks", False),
    ],
)
def test_addresses_below_a_target(url: str, allowed: bool) -> None:
    assert is_allowed(url, "https://ci.example.org/hooks, http://10.0.0.1:8000") is allowed


def test_nothing_is_allowed_without_targets() -> None:
    assert not is_allowed("https://ci.example.org/", "")


def test_an_old_message_is_a_replay() -> None:
    header = signature("secret", 1000, b"{}")
    assert is_genuine("secret", header, b"{}", now_s=1299.0)
    assert not is_genuine("secret", header, b"{}", now_s=1301.0)
    assert not is_genuine("secret", "t=1000,v1=0", b"{}", now_s=1000.0)
