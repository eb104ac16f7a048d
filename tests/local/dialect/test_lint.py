"""AWS's own linter as an oracle in one direction: what it rejects, the engine rejects."""

from __future__ import annotations

import json
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pytest_dsql.targets.target import Target

DATA = tomllib.loads((Path(__file__).parent / "lint_statements.toml").read_text(encoding="utf-8"))
STATEMENTS = [(rule, statement) for rule, statements in DATA["rules"].items() for statement in statements]
ACCEPTED = [(one["rule"], one["statement"]) for one in DATA["accepted"]]

#: What the statements mention, so that they can't fail for its absence.
OBJECTS = (
    "CREATE TABLE p (k int PRIMARY KEY)",
    "CREATE TABLE t (k int PRIMARY KEY, v text, w bigint NOT NULL, CONSTRAINT c CHECK (k > 0))",
    "CREATE TABLE n (k int NOT NULL)",
    "CREATE SEQUENCE s CACHE 1",
    "CREATE STATISTICS st ON k, v FROM t",
    "CREATE VIEW v AS SELECT k FROM t",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE ROLE r",
    "CREATE UNIQUE INDEX ASYNC i ON n (k)",
)
#: Not supported; out of range; mutable function in an index; syntax; no such type.
REFUSALS = {"0A000", "22023", "42P17", "42601", "42704"}


def test_the_linter_reports_the_statements(tmp_path: Path) -> None:
    linter = Path(sysconfig.get_path("scripts"), "dsql-lint")
    if not linter.exists():
        pytest.skip("dsql-lint has no wheel for this platform")
    pairs = STATEMENTS + ACCEPTED
    files = [tmp_path / f"{number:03}.sql" for number in range(len(pairs))]
    for file, (_, statement) in zip(files, pairs, strict=True):
        file.write_text(statement + ";\n")
    ran = subprocess.run([linter, "--format", "json", *files], capture_output=True, text=True, check=False)
    reported = [{one["rule"] for one in file["diagnostics"]} for file in json.loads(ran.stdout)["files"]]
    assert not [pair for pair, rules in zip(pairs, reported, strict=True) if pair[0] not in rules]


@pytest.fixture(scope="module")
def connection(dsql_target: Target) -> Iterator[psycopg.Connection[Any]]:
    """A connection whose search path leads to the objects above, in a cluster that other tests share."""
    if dsql_target.engine is None:
        pytest.skip("the oracle is for the embedded engine")
    with dsql_target.connect() as connection:
        connection.execute("CREATE SCHEMA lint")
        connection.execute("SET search_path = lint")
        for statement in OBJECTS:
            _retried(connection, statement)
        yield connection
        _retried(connection, "DROP SCHEMA lint CASCADE")
        _retried(connection, "DROP ROLE r")


def _retried(connection: psycopg.Connection[Any], statement: str) -> None:
    for _ in range(5):
        try:
            connection.execute(statement.encode())
        except psycopg.errors.SerializationFailure:
            continue
        return


def _refusal(connection: psycopg.Connection[Any], statements: str) -> str | None:
    """Run statements one after the other; return the SQLSTATE of the first that fails, after undoing them."""
    try:
        for statement in statements.split("; "):
            _retried(connection, statement)
    except psycopg.Error as error:
        return error.sqlstate
    finally:
        _retried(connection, "ROLLBACK")
        _retried(connection, "DROP TABLE IF EXISTS x")
    return None


@pytest.mark.parametrize(("rule", "statement"), STATEMENTS)
def test_the_engine_rejects_what_the_linter_rejects(
    connection: psycopg.Connection[Any], rule: str, statement: str
) -> None:
    assert _refusal(connection, statement) in REFUSALS


@pytest.mark.parametrize("one", DATA["accepted"], ids=lambda one: one["statement"])
def test_the_engine_knows_better(connection: psycopg.Connection[Any], one: dict[str, str]) -> None:
    assert one["reason"]
    assert _refusal(connection, one["statement"]) is None
