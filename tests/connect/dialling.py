"""Endpoints of this host for tests of the dialer, and how it fails there."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.connect.dialer import dial
from pytest_dsql.connect.endpoint import Endpoint, PasswordAuth
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.errors import ConnectionFailed

SECRET = "geheim-9f86d081884c7d65"


def plain(port: int, **fields: Any) -> Endpoint:
    """An endpoint without TLS on this host."""
    given: dict[str, Any] = {
        "host": "127.0.0.1",
        "user": "u",
        "sslmode": "disable",
        "auth": PasswordAuth(SECRET),
    } | fields
    return Endpoint(port=port, dialect="postgresql", **given)


def failure(endpoint: Endpoint, timeout_s: float = 10.0) -> ConnectionFailed:
    with pytest.raises(ConnectionFailed) as caught:
        dial(endpoint, TokenSource(endpoint), timeout_s=timeout_s, patient=False)
    error = caught.value
    assert "\n" not in str(error)
    assert SECRET not in str(error) + repr(error)
    return error
