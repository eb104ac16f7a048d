"""A statement in the sandbox gives what it gives on the tables: tag, rows, RETURNING, errors, and its effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsql.local.cluster import Cluster
from tests.local.adjudicator.sandbox.harness import Server

SCHEMA = Path(__file__).with_name("schema.sql").read_text()
STATEMENTS = [
    line for line in Path(__file__).with_name("statements.sql").read_text().splitlines() if not line.startswith("--")
]

#: Values of identity columns are left out: each run takes new ones.
LOOKS = (
    *("SELECT * FROM account", "SELECT * FROM plain", "SELECT * FROM pair", "SELECT * FROM node", "SELECT * FROM rich"),
    *("SELECT * FROM strict_child", "SELECT * FROM emptied", "SELECT * FROM defaulted", "SELECT * FROM full_match"),
    *("SELECT * FROM domains", "SELECT * FROM statement", "SELECT * FROM other.account", "SELECT v FROM always"),
    *('SELECT * FROM "Weird ""Name"".x"', "SELECT account, amount, note FROM entry"),
)


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    with Server(cluster) as server:
        server.make(SCHEMA)
        yield server


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_sandbox_gives_what_the_tables_give(server: Server, sql: str) -> None:
    assert server.in_sandbox(sql, (), *LOOKS) == server.on_tables(sql, (), *LOOKS)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_the_text_for_the_tables_gives_what_the_clients_gives(server: Server, sql: str) -> None:
    assert server.by_plan(sql, (), *LOOKS) == server.on_tables(sql, (), *LOOKS)
