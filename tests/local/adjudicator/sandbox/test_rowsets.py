"""Random logs, done again at once and one by one: where the first does what the log says, the second does the same.

Also on rows that are others than those that the log was written on, as after a rival's commit.
`DSQL_INTERLEAVINGS=8000 DSQL_INTERLEAVINGS_SEED=7 pytest tests/local/adjudicator/sandbox/test_rowsets.py` tries more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence

import pytest

from pytest_dsql.local.adjudicator import batching
from pytest_dsql.local.adjudicator.batching import Step, parts, steps, undescribed
from pytest_dsql.local.adjudicator.commands import AS_BEFORE_SQL, BY_INDEX_SQL
from pytest_dsql.local.adjudicator.literals import with_parameters
from pytest_dsql.local.adjudicator.sandbox import ENTER, Plan, form
from pytest_dsql.local.adjudicator.sandbox import plan as plan_of
from pytest_dsql.local.adjudicator.work import Entry, rows_of
from pytest_dsql.local.cluster import Cluster
from tests.local.adjudicator.sandbox.harness import Server

LOGS = int(os.environ.get("DSQL_INTERLEAVINGS", "200")) // 8
SEED = int(os.environ.get("DSQL_INTERLEAVINGS_SEED", "0"))

SCHEMA = """
CREATE TABLE item (k integer PRIMARY KEY, n numeric(6,2) DEFAULT 1.5, note varchar(9), made date DEFAULT now(),
  code text UNIQUE, up integer REFERENCES item, CHECK (n > -20), "T w" integer NOT NULL DEFAULT 7);
CREATE TABLE part (a integer, b text, item integer REFERENCES item,
  twice integer GENERATED ALWAYS AS (a * 2) STORED,
  v jsonb, PRIMARY KEY (a, b));
CREATE TABLE strict (a integer PRIMARY KEY, code text REFERENCES item (code) ON DELETE RESTRICT);
INSERT INTO item SELECT g, g, 'old', now(), 'c' || g FROM generate_series(1, 8) AS g;
INSERT INTO part SELECT g, 'b', g FROM generate_series(1, 4) AS g;
INSERT INTO strict VALUES (1, 'c8');
"""
LOOKS = ("SELECT * FROM item", "SELECT * FROM part", "SELECT * FROM strict")
KEY, SMALL, CODE, TEXT = "key", "small", "code", "text"

#: Texts, and what their parameters are drawn from.
STATEMENTS: tuple[tuple[str, Sequence[str]], ...] = (
    ("INSERT INTO item (k, n) VALUES ($1, $2)", (KEY, SMALL)),
    ("INSERT INTO item (k, code) VALUES ($1, $2)", (KEY, CODE)),
    ("INSERT INTO item (up, k) VALUES ($1, $2)", (KEY, KEY)),
    ("INSERT INTO item (k, note) VALUES ($1 + 3, 'x') RETURNING *", (KEY,)),
    ("UPDATE item SET n = n + $2 WHERE k = $1", (KEY, SMALL)),
    (
        "UPDATE public.item AS i SET n = 1.005 * i.n, note = 'now', made = '2026-01-01', \"T w\" = NULL WHERE k = $1",
        (KEY,),
    ),
    ('UPDATE item SET n = $2, note = NULL, "T w" = 1.6 WHERE item.k = $1 AND n > 2 RETURNING note', (KEY, SMALL)),
    ("UPDATE item SET note = note || $2 -- more\n WHERE $1 = k", (KEY, TEXT)),
    ("DELETE FROM item WHERE k = $1", (KEY,)),
    ("DELETE FROM item AS x WHERE x.k = $1 AND n < $2", (KEY, SMALL)),
    ("INSERT INTO item AS i (k, n) VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET n = i.n + excluded.n", (KEY, SMALL)),
    (
        """INSERT INTO item (k, note, n) VALUES ($1, $2, $3) ON CONFLICT (k) DO UPDATE SET n = $3, note = excluded.note
           WHERE item.n IS DISTINCT FROM excluded.n AND item.n < 4 RETURNING k""",
        (KEY, TEXT, SMALL),
    ),
    (
        """INSERT INTO item AS i (k, note) VALUES ($1, $2)
           ON CONFLICT (k) DO UPDATE SET n = i.n + $3, note = 'b' || $2 WHERE i.n < $4""",
        (KEY, TEXT, SMALL, SMALL),
    ),
    ("INSERT INTO item (k, code) VALUES ($1, $2) ON CONFLICT (k) DO NOTHING", (KEY, CODE)),
    ("INSERT INTO item (k, up, n) VALUES ($1, $2, 1.239) ON CONFLICT (k) DO UPDATE SET n = excluded.n * 3", (KEY, KEY)),
    ("UPDATE part SET v = '{\"a\": 1}' WHERE a = $1 AND b = $2", (KEY, TEXT)),
    ("DELETE FROM part WHERE b = $2 AND a = $1", (KEY, TEXT)),
    ("INSERT INTO strict VALUES ($1, $2)", (KEY, CODE)),
    ("INSERT INTO strict VALUES ($1, $2) ON CONFLICT (a) DO NOTHING", (KEY, CODE)),
    ("DELETE FROM strict WHERE a = $1", (KEY,)),
    # Of many rows.
    ("UPDATE item SET n = n + $1", (SMALL,)),
    ("UPDATE public.item AS i SET note = 'z' || $2 WHERE i.k > $1 RETURNING i.k, *", (KEY, TEXT)),
    ("DELETE FROM part WHERE a > $1 -- some", (KEY,)),
    ("DELETE FROM item WHERE n > $1 AND k > 4", (SMALL,)),
    ("INSERT INTO item (k, n) SELECT $1 + g, g FROM generate_series(1, 3) AS g RETURNING *", (KEY,)),
    ("INSERT INTO item AS i (up, k) VALUES ($1, 11), (11, 12), (12, $2)", (KEY, KEY)),
    ("INSERT INTO strict SELECT k, code FROM item WHERE k > $1", (KEY,)),
    # No batch: they keep their places.
    ("INSERT INTO part (a, b, item) VALUES ($1, 'b', $2)", (KEY, KEY)),
    ("UPDATE item SET k = k + $2 WHERE k = $1", (KEY, SMALL)),
)
OIDS = {KEY: 23, SMALL: 1700, CODE: 25, TEXT: 25}


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[Server]:
    with Server(cluster) as server:
        server.make(SCHEMA)
        server.cached = server.catalog()
        yield server


def drawn(random_: random.Random) -> tuple[str, Sequence[str], Sequence[str | None]]:
    sql, kinds = random_.choice(STATEMENTS)
    return sql, kinds, [value(kind, random_) for kind in kinds]


def value(kind: str, random_: random.Random) -> str | None:
    if random_.random() < 0.05:
        return None
    number = random_.randrange(1, 13)
    return {KEY: str(number), SMALL: f"{number - 4}.5", CODE: f"c{number}", TEXT: random_.choice("bcd")}[kind]


def execute(
    server: Server, sql: str | bytes, values: Sequence[str | None] = (), types: Sequence[int] = ()
) -> int | None:
    """How many rows a statement says to have written; None: it failed."""
    text = sql.encode() if isinstance(sql, str) else sql
    bound = [None if value is None else value.encode() for value in values]
    result = server.admin.pgconn.exec_params(text, bound, list(types) or None)
    return None if result.error_message else (rows_of(result.command_status) or 0)


def in_text(sql: str, values: Sequence[str | None], kinds: Sequence[str]) -> str:
    """The statement with its values in the text."""
    for number, (value, kind) in reversed(list(enumerate(zip(values, kinds, strict=True), 1))):
        literal = "NULL" if value is None else value if kind in (KEY, SMALL) else f"'{value}'"
        sql = sql.replace(f"${number}", literal)
    return sql


def log_of(server: Server, plans: dict[str, Plan], random_: random.Random) -> list[tuple[Entry, Sequence[str | None]]]:
    """What succeeds of some statements, and writes something."""
    log: list[tuple[Entry, Sequence[str | None]]] = []
    execute(server, "BEGIN")
    for _ in range(random_.randrange(10, 80)):
        sql, kinds, values = drawn(random_)
        types = [OIDS[kind] for kind in kinds]
        if random_.random() < 0.4:
            sql, values, types = in_text(sql, values, kinds), [], []
            plans[sql] = plan_of(form(sql), server.catalog(), server.schemas)
        execute(server, "SAVEPOINT s")
        rows = execute(server, sql, values, types)
        if not rows:
            execute(server, "ROLLBACK TO SAVEPOINT s")
            continue
        count = len(values).to_bytes(2, "big")
        given = [b"\xff" * 4 if v is None else len(v).to_bytes(4, "big") + v.encode() for v in values]
        bound = b"\0\0" + count + b"".join(given) + b"\0\0"
        plan = plans[sql]
        log.append(
            (Entry(sql.encode(), plan, count + b"".join(o.to_bytes(4, "big") for o in types), bound, rows=rows), values)
        )
    execute(server, "ROLLBACK")
    return log


def sandboxed(server: Server, before: Sequence[tuple[str, Sequence[str | None], Sequence[int]]]) -> None:
    execute(server, "BEGIN")
    for sql, values, types in before:
        execute(server, "SAVEPOINT s")
        if execute(server, sql, values, types) is None:
            execute(server, "ROLLBACK TO SAVEPOINT s")
    execute(server, ENTER)


def contents(server: Server) -> list[object]:
    seen: list[object] = []
    for look in (*LOOKS, "SELECT pytest_dsql_engine_limits.written() >> 36"):
        result = server.admin.pgconn.exec_(look.encode())
        cells = [[result.get_value(r, c) for c in range(result.nfields)] for r in range(result.ntuples)]
        seen.append(sorted(cells, key=str))
    return seen


def at_once(server: Server, made: Sequence[Step], values: dict[int, Sequence[str | None]]) -> bool:
    """Whether everything did what the log says."""
    for part in parts(made):
        if isinstance(part, Step):
            sql, types, bound = part.execution()
            width = int.from_bytes(types[:2], "big")
            oids = [int.from_bytes(types[2 + 4 * n : 6 + 4 * n], "big") for n in range(width)]
            texts = [None if v is None else v.decode() for v in batching._values(bound)]
            if part.by_index:
                execute(server, BY_INDEX_SQL)
            rows = execute(server, sql, texts, oids)
            if part.by_index:
                execute(server, AS_BEFORE_SQL)
        else:
            rows = one(server, part, values[id(part)])
        if rows is None or rows != part.rows:
            return False
    return True


def types_of(server: Server, sql: bytes, given: bytes) -> tuple[int, ...]:
    connection = server.admin.pgconn
    width = int.from_bytes(given[:2], "big")
    oids = [int.from_bytes(given[2 + 4 * n : 6 + 4 * n], "big") for n in range(width)]
    assert not connection.prepare(b"", sql, oids).error_message
    result = connection.describe_prepared(b"")
    return tuple(result.param_type(number) for number in range(result.nparams))


def one(server: Server, entry: Entry, values: Sequence[str | None]) -> int | None:
    sql, types, _ = entry.execution(sandbox=True)
    width = int.from_bytes(types[:2], "big")
    oids = [int.from_bytes(types[2 + 4 * n : 6 + 4 * n], "big") for n in range(width)]
    return execute(server, sql, values, oids)


@pytest.mark.parametrize("disturbed", [False, True], ids=["alone", "after a rival"])
def test_at_once_is_one_by_one(server: Server, monkeypatch: pytest.MonkeyPatch, *, disturbed: bool) -> None:
    monkeypatch.setattr(batching, "MANY", 2)
    plans = {sql: server.plan(sql) for sql, _ in STATEMENTS}
    done = joined = 0
    for number in range(LOGS):
        random_ = random.Random(f"{SEED} {disturbed} {number}")
        log = log_of(server, plans, random_)
        before = []
        for _ in range(random_.randrange(1, 4) if disturbed else 0):
            sql, kinds, values = drawn(random_)
            before.append((sql, values, [OIDS[kind] for kind in kinds]))
        sandboxed(server, before)
        stand_ins = with_parameters([entry for entry, _ in log], server.catalog(), server.schemas)
        described = {parsed: types_of(server, sql, parsed[1]) for parsed, sql in undescribed(stand_ins).items()}
        made = steps([entry for entry, _ in log], described, stand_ins)
        succeeded = at_once(server, made, {id(entry): values for entry, values in log})
        found = contents(server) if succeeded else []
        execute(server, "ROLLBACK")
        done += succeeded
        if not succeeded:
            continue
        joined += any(step.at_once for step in made)
        sandboxed(server, before)
        for entry, values in log:
            assert one(server, entry, values) == entry.rows, (number, entry.sql, values)
        assert contents(server) == found, (number, [(entry.sql, values) for entry, values in log])
        execute(server, "ROLLBACK")
    print(f"\n{done} of {LOGS} logs were done again as they were, {joined} of them by fewer statements")
    assert joined > LOGS // 3
