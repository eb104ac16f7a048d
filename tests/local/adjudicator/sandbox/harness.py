"""Running statements as the gateway would: on the tables, or in the sandbox by the text of their plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psycopg
from psycopg import pq

from pytest_dsql.local.adjudicator.sandbox import CATALOG_QUERY, ENTER, Catalog, Plan, Text, form, plan
from pytest_dsql.local.adjudicator.sandbox.errors import seen_by_client
from pytest_dsql.local.cluster import Cluster
from pytest_dsql.local.postgres import SUPERUSER

#: The fields of an error that a client may look at; file, line and routine are PostgreSQL's own.
FIELDS = {
    "C": pq.DiagnosticField.SQLSTATE,
    "M": pq.DiagnosticField.MESSAGE_PRIMARY,
    "D": pq.DiagnosticField.MESSAGE_DETAIL,
    "H": pq.DiagnosticField.MESSAGE_HINT,
    "W": pq.DiagnosticField.CONTEXT,
    "s": pq.DiagnosticField.SCHEMA_NAME,
    "t": pq.DiagnosticField.TABLE_NAME,
    "c": pq.DiagnosticField.COLUMN_NAME,
    "d": pq.DiagnosticField.DATATYPE_NAME,
    "n": pq.DiagnosticField.CONSTRAINT_NAME,
}

Row = tuple[str | None, ...]


@dataclass(frozen=True)
class Outcome:
    """What a client sees of a statement; rows in an order of ours."""

    tag: str = ""
    names: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    error: dict[str, str] = field(default_factory=dict)
    last: tuple[str | None, ...] = field(default=(), compare=False)  #: the column that the client doesn't see


class Server:
    """A cluster's PostgreSQL; what clients made in it is removed when it is entered."""

    def __init__(self, cluster: Cluster) -> None:
        self._host = str(Path(cluster.socket_path).parent)
        self.superuser = self.connect(SUPERUSER)
        self.admin = self.connect("admin")
        self.schemas = ("public",)
        self.cached: Catalog | None = None  #: for tests that leave the tables as they are

    def connect(self, user: str) -> psycopg.Connection:
        return psycopg.connect(host=self._host, user=user, dbname="postgres", autocommit=True)

    def make(self, script: str) -> None:
        """Run a client's script, each statement a transaction of its own: it creates tables, and fills them."""
        for statement in script.split(";\n"):
            if statement.strip():
                self.admin.execute(statement.encode())

    def __enter__(self) -> Self:
        schemas = self.superuser.execute(
            "SELECT nspname FROM pg_namespace WHERE pytest_dsql_engine_sandbox.is_clients(nspname)"
        ).fetchall()
        for (schema,) in schemas:
            self.superuser.execute(f'DROP SCHEMA "{schema}" CASCADE')
        self.superuser.execute(
            "CREATE SCHEMA public; ALTER SCHEMA public OWNER TO admin; GRANT USAGE ON SCHEMA public TO PUBLIC"
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.superuser.close()
        self.admin.close()

    def catalog(self) -> Catalog:
        if self.cached is not None:
            return self.cached
        row = self.superuser.execute(CATALOG_QUERY).fetchone()
        assert row is not None
        return Catalog.read(row[0])

    def plan(self, sql: str) -> Plan:
        return plan(form(sql), self.catalog(), self.schemas)

    def on_tables(self, sql: str, parameters: Sequence[str | None] = (), *looks: str) -> list[Outcome]:
        """Run a statement, and after it some that look at what it did, in a transaction that is rolled back."""
        return self._in_transaction([], [(sql, Text(), parameters), *((look, Text(), ()) for look in looks)])

    def by_plan(self, sql: str, parameters: Sequence[str | None] = (), *looks: str) -> list[Outcome]:
        """The same with the text that the gateway sends to the tables in place of the client's."""
        texts = [(sql, self.plan(sql).physical, parameters), *((look, Text(), ()) for look in looks)]
        return self._in_transaction([], texts)

    def in_sandbox(self, sql: str, parameters: Sequence[str | None] = (), *looks: str) -> list[Outcome]:
        """The same in the sandbox."""
        texts = [(sql, self.plan(sql).sandbox, parameters), *((look, self.plan(look).sandbox, ()) for look in looks)]
        return self._in_transaction([ENTER], texts)

    def _in_transaction(
        self, first: Sequence[str], texts: Sequence[tuple[str, Text, Sequence[str | None]]]
    ) -> list[Outcome]:
        connection = self.admin.pgconn
        catalog = self.catalog()
        outcomes = []
        for sql in ("BEGIN", *first):
            assert not connection.exec_(sql.encode()).error_message
        try:
            for sql, text, parameters in texts:
                result = connection.exec_params(
                    (text.sql or sql).encode(), [None if p is None else p.encode() for p in parameters] or None
                )
                outcomes.append(outcome(result, text, catalog))
                if outcomes[-1].error:
                    break
        finally:
            connection.exec_(b"ROLLBACK")
        return outcomes


def outcome(result: pq.abc.PGresult, text: Text, catalog: Catalog) -> Outcome:
    """What the client of a statement sees of PostgreSQL's answer to its text."""
    if result.status == pq.ExecStatus.FATAL_ERROR:
        found = {name: result.error_field(place) for name, place in FIELDS.items()}
        seen = seen_by_client({name: value for name, value in found.items() if value is not None}, catalog)
        return Outcome(error={name: value.decode() for name, value in seen.items()})
    width = result.nfields - (text.last != "client")
    names = tuple((result.fname(column) or b"").decode() for column in range(width))
    cells = [
        [
            None if (value := result.get_value(row, column)) is None else value.decode()
            for column in range(result.nfields)
        ]
        for row in range(result.ntuples)
    ]
    tag = text.tag or (result.command_status or b"").decode()
    if text.insert:
        assert tag.startswith("SELECT ")
        tag = f"INSERT 0 {result.ntuples}"
    rows = tuple(sorted((tuple(cell[:width]) for cell in cells), key=str)) if text.rows else ()
    last = tuple(cell[-1] for cell in cells) if text.last != "client" else ()
    return Outcome(tag, names if text.rows else (), rows, last=last)
