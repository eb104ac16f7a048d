"""The fixtures, as a test of an application uses them."""

from __future__ import annotations

import pytest


def test_a_connection_finds_and_leaves_the_database_as_it_was(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("round", [1, 2])
        def test_objects_of_every_kind(dsql_connection, round):
            for statement in (
                "CREATE DOMAIN amount AS bigint CHECK (VALUE > 0)",
                'CREATE TABLE "odd name" (id bigint PRIMARY KEY, paid amount)',
                'CREATE VIEW seen AS SELECT id FROM "odd name"',
                "CREATE SEQUENCE numbers CACHE 1",
                "CREATE FUNCTION twice(a int) RETURNS int LANGUAGE sql AS 'SELECT a * 2'",
                "CREATE SCHEMA apart",
                "CREATE TABLE apart.things (id int PRIMARY KEY)",
            ):
                dsql_connection.execute(statement)
        """
    )
    attached.runpytest_subprocess().assert_outcomes(passed=2)


def test_roles_go_with_the_test_that_made_them(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import pytest

        ARN = "arn:aws:iam::123456789012:role/shop"
        OURS = "SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_'"

        @pytest.mark.parametrize("round", [1, 2])
        def test_roles(dsql_connection, round):
            for statement in (
                'CREATE ROLE "Odd role" WITH LOGIN',
                "CREATE ROLE other",
                f'AWS IAM GRANT "Odd role" TO {ARN!r}',
                "CREATE SCHEMA apart",
                'GRANT CREATE, USAGE ON SCHEMA apart TO "Odd role"',
                "CREATE TABLE apart.things (id int PRIMARY KEY)",
                "GRANT SELECT ON apart.things TO other",
                "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO other",
                'GRANT other TO "Odd role"',
            ):
                dsql_connection.execute(statement)

        def test_none_is_left(dsql_connection):
            assert dsql_connection.execute(OURS).fetchall() == [("admin",)]
        """
    )
    attached.runpytest_subprocess().assert_outcomes(passed=3)


def test_what_was_there_before_the_test_stays(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="module")
        def table(dsql_target):
            from pytest_dsql.connect.dialer import dial
            connection, _ = dial(dsql_target.endpoint, dsql_target.tokens)
            connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
            yield
            connection.execute("DROP TABLE kept")

        @pytest.mark.parametrize("round", [1, 2])
        def test_it(table, dsql_connection, round):
            dsql_connection.execute("INSERT INTO kept VALUES (%s)", (round,))
        """
    )
    attached.runpytest_subprocess().assert_outcomes(passed=2)


def test_an_open_transaction_of_the_tests_own_does_not_keep_its_objects(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("round", [1, 2])
        def test_it(dsql_connect, dsql_connection, round):
            dsql_connection.execute("CREATE TABLE held (id int PRIMARY KEY)")
            reader = dsql_connect(autocommit=False)
            assert reader.execute("SELECT count(*) FROM held").fetchone() == (0,)
        """
    )
    attached.runpytest_subprocess(timeout=300).assert_outcomes(passed=2)


def test_a_connection_left_in_a_transaction_does_not_keep_what_a_test_made(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        from pytest_dsql.connect.dialer import dial

        left = []

        def test_it(dsql_target, dsql_connection):
            dsql_connection.execute("CREATE TABLE left_behind (id int PRIMARY KEY)")
            connection, _ = dial(dsql_target.endpoint, dsql_target.tokens)
            connection.autocommit = False
            connection.execute("SELECT count(*) FROM left_behind")
            left.append(connection)

        def test_end(dsql_connection):
            left.pop().close()
            assert dsql_connection.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
        """
    )
    # DDL on DSQL waits for no reader.
    attached.runpytest_subprocess(timeout=300).assert_outcomes(passed=2)


def test_what_a_workload_loaded_during_a_test_stays(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        def test_first(dsql_connection, request):
            request.getfixturevalue("dsql_orders")

        def test_second(dsql_connection, dsql_orders):
            [count] = dsql_connection.execute("SELECT count(*) FROM pytest_dsql_orders.orders").fetchone()
            assert count >= 400  # more where an earlier run on the same engine measured cells
            dsql_orders.remove(lambda: dsql_connection)
        """
    )
    attached.runpytest_subprocess("--dsql-scale", "tiny").assert_outcomes(passed=2)


def test_pools_and_further_connections(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import asyncio

        def test_pool(dsql_pool):
            with dsql_pool.connection() as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)

        def test_async_pool(dsql_async_pool):
            async def use():
                async with dsql_async_pool as pool, pool.connection() as connection:
                    return await (await connection.execute("SELECT 1")).fetchone()
            assert asyncio.run(use()) == (1,)

        def test_connect(dsql_connect):
            first, second = dsql_connect(), dsql_connect(autocommit=False)
            assert (first.autocommit, second.autocommit) == (True, False)
            assert second.execute("SELECT current_user").fetchone() == ("admin",)

        def test_engine(dsql_local, dsql_target, dsql_endpoint):
            assert dsql_target.name == "local"
            assert dsql_endpoint.port == dsql_local.port
        """
    )
    attached.runpytest_subprocess().assert_outcomes(passed=4)


def test_every_xdist_worker_has_a_cluster_of_its_own(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(dsql_connect, number):
            me = os.environ["PYTEST_XDIST_WORKER"]
            connection = dsql_connect()
            connection.execute("CREATE TABLE IF NOT EXISTS mine (worker text PRIMARY KEY)")
            connection.execute("INSERT INTO mine VALUES (%s) ON CONFLICT DO NOTHING", (me,))
            assert connection.execute("SELECT count(*) FROM mine").fetchone() == (1,)
        """
    )
    attached.runpytest_subprocess("-n", "2").assert_outcomes(passed=4)


def test_a_run_starts_an_engine_of_its_own_and_ends_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pathlib

        def test_it(dsql_local):
            pathlib.Path("pid").write_text(str(dsql_local.engine.pid))
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
    import os

    with pytest.raises(ProcessLookupError):
        os.kill(int((pytester.path / "pid").read_text()), 0)


def test_xdist_workers_share_one_engine(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pathlib, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(dsql_local, number):
            pathlib.Path(f"pid-{dsql_local.engine.pid}").touch()
        """
    )
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=4)
    assert len(list(pytester.path.glob("pid-*"))) == 1


def test_nothing_listens_at_the_dsn(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(dsql_connection): pass")
    result = pytester.runpytest_subprocess("--dsql-dsn", "postgresql://me:hunter2@127.0.0.1:1/app")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: could not connect to me@127.0.0.1:1: *"])
    assert "hunter2" not in result.stdout.str() + result.stderr.str()


def test_a_missing_extra_is_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['uvloop'] = None")
    pytester.makepyfile("def test_it(dsql_connection): pass")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: the embedded engine needs *: pip install 'pytest-dsql[[]local]'"])


def test_a_test_is_told_that_the_engine_was_killed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pathlib, select, signal

        def test_kills_it(dsql_local, dsql_connect):
            pathlib.Path("secret").write_text(dsql_local.engine.credentials.secret_access_key)
            os.kill(dsql_local.engine.pid, signal.SIGKILL)
            select.select([dsql_local.engine], [], [], 20)
            dsql_connect()

        def test_after_it(dsql_connect, dsql_orders):
            dsql_connect()
        """
    )
    result = pytester.runpytest_subprocess("--showlocals", "--tb=long")
    result.assert_outcomes(failed=1, errors=1)
    lines = [
        "the embedded engine has ended: its process was killed",
        ">*dsql_connect()",
        "E*ended: its process was killed",
    ]
    result.stdout.fnmatch_lines(lines)
    text = result.stdout.str()
    assert (pytester.path / "secret").read_text() not in text
    assert "pytest_dsql/" not in text, "the way through this package"


def test_what_a_test_sets_is_gone_when_the_next_begins(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import time

        def test_sets(dsql_local, dsql_connection):
            assert dsql_local.limits.set(session_s=2, transaction_rows=5).session_s == 2
            dsql_local.clock.move(1_000_000)
            assert dsql_local.clock.now() > time.time() + 999_999

        def test_finds_dsqls(dsql_local):
            limits = dsql_local.limits.get()
            assert (limits.session_s, limits.transaction_rows) == (3600, 3000)
            assert abs(dsql_local.clock.now() - time.time()) < 1000
        """
    )
    attached.runpytest_subprocess().assert_outcomes(passed=2)


def test_the_limits_of_the_options_are_what_a_test_begins_with(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ndsql_set =\n  session_s=7\n  durable=on")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("_", range(4))
        def test_it(dsql_local, dsql_connection, _):
            assert dsql_local.limits.get().session_s == 7
            dsql_local.limits.set(session_s=8)
            assert dsql_connection.execute("SHOW fsync").fetchone() == ("on",)
        """
    )
    pytester.runpytest_subprocess("-n", "2").assert_outcomes(passed=4)


def test_a_process_of_its_own_finds_the_tests_cluster(attached: pytest.Pytester) -> None:
    attached.makepyfile(
        """
        import os, subprocess, sys

        SCRIPT = "import psycopg; psycopg.connect(autocommit=True).execute('INSERT INTO found VALUES (1)')"

        def test_it(monkeypatch, request):
            connection = request.getfixturevalue("dsql_connection")
            with monkeypatch.context() as user:
                user.setenv("PGSERVICE", "elsewhere")
                user.setenv("AWS_PROFILE", "mine")
                environment = request.getfixturevalue("dsql_environment")
            connection.execute("CREATE TABLE found (id int PRIMARY KEY)")
            subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True)
            assert connection.execute("SELECT id FROM found").fetchall() == [(1,)]
            assert "AWS_PROFILE" not in environment and environment["PATH"] == os.environ["PATH"]
        """
    )
    # Under xdist each worker has a cluster of its own, and the process must find that one.
    attached.runpytest_subprocess("-n", "1").assert_outcomes(passed=1)
