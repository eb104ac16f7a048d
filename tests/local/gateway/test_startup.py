"""What a connection may ask for in its startup packet."""

from __future__ import annotations

import pytest

from pytest_dsql.local.gateway import frames, startup
from pytest_dsql.local.gateway.startup import StartupRefused


def packet(*texts: str, version: int = startup.PROTOCOL_3_0, end: bytes = b"\0") -> bytes:
    return frames.packet(version.to_bytes(4, "big") + b"".join(text.encode() + b"\0" for text in texts) + end)


def test_user_and_database_are_read() -> None:
    wanted = startup.read(packet("user", "app", "database", "postgres", "TimeZone", "UTC"))
    assert (wanted.user, wanted.database, wanted.settings) == ("app", "postgres", (("TimeZone", "UTC"),))
    wanted.check()


def test_the_database_is_the_users_name_when_none_is_given() -> None:
    with pytest.raises(StartupRefused, match='database "admin" does not exist'):
        startup.read(packet("user", "admin")).check()


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("-c search_path=a,b", (("search_path", "a,b"),)),
        (r"-csearch_path=a\ b --extra-float-digits=2", (("search_path", "a b"), ("extra_float_digits", "2"))),
        ("", ()),
    ],
)
def test_options_are_read_as_settings(options: str, settings: tuple[tuple[str, str], ...]) -> None:
    wanted = startup.read(packet("user", "admin", "database", "postgres", "options", options))
    assert wanted.settings == settings
    wanted.check()


def test_the_engines_own_schemas_are_no_part_of_a_search_path() -> None:
    with pytest.raises(StartupRefused, match="search_path"):
        startup.read(
            packet("user", "admin", "database", "postgres", "search_path", "public,PYTEST_dsql_engine")
        ).check()


@pytest.mark.parametrize(
    ("texts", "name"),
    [
        (("statement_timeout", "5"), "statement_timeout"),
        (("replication", "database"), "replication"),
        (("options", "-c statement_timeout=5"), "statement_timeout"),
        (("options", "--default-transaction-isolation=serializable"), "default_transaction_isolation"),
        (("options", "-B 5"), "-B"),
        (("my.own", "x"), "my.own"),
    ],
)
def test_other_settings_are_refused(texts: tuple[str, ...], name: str) -> None:
    with pytest.raises(StartupRefused) as refused:
        startup.read(packet("user", "admin", "database", "postgres", *texts)).check()
    assert (refused.value.sqlstate, refused.value.message) == (
        "0A000",
        f'setting configuration parameter "{name}" not supported',
    )


@pytest.mark.parametrize(
    "bad",
    [
        packet("user", "admin", end=b""),
        packet("user", end=b""),
        packet("user", "admin", end=b"\0\0\0"),
        packet(),
        packet("database", "postgres"),
        packet("user", "admin", version=2 << 16),
    ],
)
def test_malformed_packets_are_refused(bad: bytes) -> None:
    with pytest.raises(StartupRefused):
        startup.read(bad)


def test_a_newer_minor_version_is_negotiated_down() -> None:
    wanted = startup.read(packet("user", "admin", "_pq_.new", "1", version=startup.PROTOCOL_3_0 + 2))
    assert wanted.negotiation == b"v" + (8 + 4 + 9).to_bytes(4, "big") + b"\0\3\0\0" + b"\0\0\0\1" + b"_pq_.new\0"


def test_postgresql_gets_what_the_client_asked_for() -> None:
    wanted = startup.read(packet("user", "a", "database", "postgres", "disable_sync_create_index", "on", "role", "b"))
    assert wanted.packet() == packet("user", "a", "database", "postgres", "role", "b")
