"""An endpoint that exists already, as a user's tests and cells meet it: here a plain PostgreSQL by its DSN."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsql.errors import ConnectionFailed
from pytest_dsql.settings import Settings
from pytest_dsql.targets import attach as attach_module
from tests.load import fake_server
from tests.plain_postgres import plain_postgres
from tests.plugin.conftest import CELL


def test_a_plain_postgresql_is_measured_and_nothing_in_it_is_dropped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        CELL
        + """
@pytest.mark.parametrize("exists", [False, True])
def test_objects_stay(dsql_connection, exists):
    [(found,)] = dsql_connection.execute("SELECT to_regclass('mine') IS NOT NULL").fetchall()
    assert found == exists
    dsql_connection.execute("CREATE TABLE IF NOT EXISTS mine (id int PRIMARY KEY)")

def test_there_is_no_engine(dsql_target, dsql_local):
    raise AssertionError(dsql_target)

def test_cell(dsql_load):
    cell = dsql_load.closed(MIX, connections=2, warmup=0.1, duration=0.5)
    cell.assert_meets(Slo(reads=Latency(p95=ms(5000))))

def test_a_process_of_its_own_gets_there(dsql_environment, dsql_endpoint):
    import subprocess, sys
    script = "import psycopg; print(psycopg.connect().info.port)"
    done = subprocess.run([sys.executable, "-c", script], env=dsql_environment, check=True, capture_output=True)
    assert int(done.stdout) == dsql_endpoint.port
"""
    )
    with plain_postgres() as server:
        result = pytester.runpytest_subprocess("--dsql-dsn", server.dsn, "-rs")
    result.assert_outcomes(passed=4, skipped=1)
    result.stdout.fnmatch_lines(["*dsql_local is the embedded engine, and the target is attach"])
    content = json.loads((pytester.path / ".dsql/latest/results.json").read_text())
    assert [cell["verdict"]["outcome"] for cell in content["cells"]] == ["pass"]
    [target] = content["targets"]
    assert (target["name"], target["dialect"]) == ("attach", "postgresql")
    assert target["server"].startswith("PostgreSQL ")
    assert server.password not in json.dumps(content) + result.stdout.str() + result.stderr.str()


def test_a_server_that_speaks_half_of_the_protocol_is_refused_in_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(dsql_connection): pass")
    server = Path(fake_server.__file__)
    with subprocess.Popen([sys.executable, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as fake:
        assert fake.stdout is not None
        dsn = f"postgresql://me@127.0.0.1:{fake.stdout.readline().strip()}/app?sslmode=disable"
        result = pytester.runpytest_subprocess("--dsql-dsn", dsn)
        fake.terminate()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *127.0.0.1* does not answer as PostgreSQL does: *"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_xdist_workers_say_once_that_nothing_listens(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_it(dsql_connection, n): pass")
    result = pytester.runpytest_subprocess("-n", "2", "--dsql-dsn", "postgresql://me@127.0.0.1:1/app")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = (result.stdout.str() + result.stderr.str()).count("could not connect to me@127.0.0.1:1")
    assert said == 1
    assert "failed" not in result.stdout.str()


def test_a_server_that_never_answers_a_query_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attach_module, "_PATIENCE_S", 0.2)
    server = Path(fake_server.__file__)
    with subprocess.Popen([sys.executable, server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as fake:
        assert fake.stdout is not None
        dsn = f"postgresql://me@127.0.0.1:{fake.stdout.readline().strip()}/mute?sslmode=disable"
        with pytest.raises(ConnectionFailed, match=r"127.0.0.1.* accepted the login, but did not answer .* 0.2 s"):
            attach_module.attach(Settings(target="attach", dsn=dsn))
        fake.terminate()
