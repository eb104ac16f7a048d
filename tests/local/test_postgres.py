from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pytest_dsql.errors import EngineError
from pytest_dsql.local.account import choose_account
from pytest_dsql.local.installation import Installation, find_installation
from pytest_dsql.local.postgres import SUPERUSER, Postgres, initdb
from tests.local.conftest import Place
from tests.plain_postgres import plain_postgres, tls_installation


@pytest.fixture
def postgres(place: Place) -> Postgres:
    """A server that was made and not started."""
    installation, account = find_installation(), choose_account()
    data = place.directory / "data"
    initdb(installation, account, data, "--auth=trust")
    return Postgres(installation, account, data, place.directory, place.directory / "log")


def settings(place: Place, **more: str) -> dict[str, str]:
    return {"listen_addresses": "", "unix_socket_directories": str(place.directory), "fsync": "off", **more}


def test_a_server_answers_on_its_socket_only(place: Place, postgres: Postgres) -> None:
    postgres.start(settings(place))
    try:
        postgres.wait_ready()
        with psycopg.connect(host=str(place.directory), user=SUPERUSER, dbname="postgres") as connection:
            row = connection.execute("SELECT current_setting('listen_addresses')").fetchone()
        assert row == ("",)
    finally:
        postgres.stop()
    assert not postgres.running
    assert not place.processes()


def test_settings_with_quotes_arrive_as_they_are(place: Place, postgres: Postgres) -> None:
    postgres.start(settings(place, search_path="a'b\\c"))
    try:
        postgres.wait_ready()
        with psycopg.connect(host=str(place.directory), user=SUPERUSER, dbname="postgres") as connection:
            row = connection.execute("SHOW search_path").fetchone()
        assert row == ("a'b\\c",)
    finally:
        postgres.stop()


def test_a_server_that_does_not_start_says_why(place: Place, postgres: Postgres) -> None:
    postgres.start(settings(place, shared_buffers="no number"))
    with pytest.raises(EngineError, match=r"did not start \(exit status 1\): .*shared_buffers"):
        postgres.wait_ready()


def test_a_program_that_is_not_there_is_named(place: Place) -> None:
    missing = Installation(place.directory / "nowhere", "test")
    account = choose_account("own")
    with pytest.raises(EngineError, match=r"nowhere/initdb can't be started: No such file"):
        initdb(missing, account, place.directory / "data")


def test_initdb_tells_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"initdb failed: .*exists but is not empty"):
        initdb(find_installation(), choose_account(), tmp_path)


@pytest.mark.parametrize("tls", [False, True])
def test_the_plain_server_serves_and_leaves_nothing(place: Place, tls: bool) -> None:
    if tls and tls_installation() is None:
        pytest.skip("no PostgreSQL with TLS on this machine")
    with plain_postgres(tls=tls) as server, psycopg.connect(server.dsn) as connection:
        row = connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
        assert row == (tls,)
        assert server.password not in repr(server)
    assert not place.left()
