"""Threads that really run at the same time: what was acknowledged is there once, and what was refused isn't.

An interleaving that goes statement by statement sees no races; these do, and afterwards every sum is checked.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

import psycopg

from tests.local.adjudicator.racing import Connect, Connection, Make, Racer, assert_free, change, race, rows

THREADS: Final = 16


def test_one_of_many_inserts_of_a_key_is_kept(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_insert (k int PRIMARY KEY, who int, tries int)")
    rounds = 40
    acknowledged: list[tuple[int, int]] = []

    def job(racer: Racer) -> None:
        sql = "INSERT INTO r_insert VALUES (%s, %s, 0)"
        for number in range(rounds):
            if number % 4 == 0:
                racer.together()
            if (number + racer.number) % 2:
                done = racer.once(change, sql, number, racer.number)
            else:
                done = racer.at_once(sql, (number, racer.number))
            if done:
                acknowledged.append((number, racer.number))

    race(connect, *[job] * THREADS)
    assert sorted(acknowledged) == sorted(rows(connect, "SELECT k, who FROM r_insert"))
    assert len(acknowledged) == rounds
    assert_free(connect, "r_insert.tries")


def test_a_unique_value_has_one_holder(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_unique (k uuid PRIMARY KEY DEFAULT gen_random_uuid(), u int UNIQUE, who int)")
    acknowledged: dict[str, int] = {}

    def take(connection: Connection, value: int, who: int, *, free: bool) -> str:
        if free:
            connection.execute("DELETE FROM r_unique WHERE u = %s", (value,))
        found = connection.execute("INSERT INTO r_unique (u, who) VALUES (%s, %s) RETURNING k", (value, who)).fetchone()
        assert found is not None
        return str(found[0])

    def job(racer: Racer) -> None:
        for _ in range(40):
            value = racer.random.randrange(12)
            for key in racer.once(take, value, racer.number, free=racer.random.random() < 0.5):
                acknowledged[key] = value

    race(connect, *[job] * THREADS)
    assert rows(connect, "SELECT u FROM r_unique GROUP BY u HAVING count(*) > 1") == []
    # The keys that the server made up are those that were answered.
    assert {str(k): u for k, u in rows(connect, "SELECT k, u FROM r_unique")}.items() <= acknowledged.items()
    assert_free(connect, "r_unique.who")


def test_inserts_and_deletes_of_a_key_alternate(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_toggle (k int PRIMARY KEY, n int)")
    inserted: Counter[int] = Counter()
    deleted: Counter[int] = Counter()
    lock = threading.Lock()

    def job(racer: Racer) -> None:
        for _ in range(60):
            key = racer.random.randrange(3)
            insert = racer.random.random() < 0.5
            sql = "DELETE FROM r_toggle WHERE k = %s"
            if insert:
                sql = "INSERT INTO r_toggle VALUES (%s, 0) ON CONFLICT DO NOTHING"
            done = racer.once(change, sql, key) if racer.random.random() < 0.7 else racer.at_once(sql, (key,))
            with lock:
                (inserted if insert else deleted)[key] += sum(done)

    race(connect, *[job] * THREADS)
    present = {key for (key,) in rows(connect, "SELECT k FROM r_toggle")}
    for key in range(3):
        assert inserted[key] - deleted[key] == (key in present), (key, inserted, deleted, present)
    assert sum(inserted.values()) > 10
    assert_free(connect, "r_toggle.n")


def test_updates_and_deletes_of_a_row_exclude_each_other(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_gone (k int PRIMARY KEY, n int)")
    with connect() as connection:
        connection.execute("INSERT INTO r_gone SELECT g, 0 FROM generate_series(1, 60) g")
    updates: Counter[int] = Counter()
    deletes: dict[int, list[int]] = {}
    lock = threading.Lock()

    def act(connection: Connection, sql: str, key: int) -> list[int]:
        return [n for (n,) in connection.execute(sql, (key,)).fetchall()]

    def job(racer: Racer) -> None:
        deletes_it = racer.number % 4 == 0
        sql = "UPDATE r_gone SET n = n + 1 WHERE k = %s RETURNING n"
        if deletes_it:
            sql = "DELETE FROM r_gone WHERE k = %s RETURNING n"
        for key in range(1, 61):
            if key % 6 == 0:
                racer.together()
            for found in racer.once(act, sql, key):
                with lock:
                    if deletes_it:
                        deletes.setdefault(key, []).extend(found)
                    else:
                        updates[key] += len(found)

    race(connect, *[job] * THREADS)
    left = dict(rows(connect, "SELECT k, n FROM r_gone"))
    for key in range(1, 61):
        final = [left[key]] if key in left else []
        # The one who deleted it saw every update that was acknowledged, and nobody deleted it again.
        assert deletes.get(key, []) + final == [updates[key]], key
    assert_free(connect, "r_gone.n")


def test_every_acknowledged_upsert_counts_once(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_upsert (k int PRIMARY KEY, n int)")
    counted: Counter[int] = Counter()
    lock = threading.Lock()

    def job(racer: Racer) -> None:
        sql = "INSERT INTO r_upsert VALUES (%s, 1) ON CONFLICT (k) DO UPDATE SET n = r_upsert.n + 1"
        for _ in range(25):
            key = racer.random.randrange(4)
            if racer.random.random() < 0.5:
                racer.execute_until_done(sql, (key,))
            else:
                racer.until_done(change, sql, key)
            with lock:
                counted[key] += 1

    race(connect, *[job] * THREADS)
    assert dict(rows(connect, "SELECT k, n FROM r_upsert")) == dict(counted)
    assert_free(connect, "r_upsert.n")


def test_unique_values_that_are_swapped_stay_the_same_set(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_swap (k int PRIMARY KEY, u int UNIQUE, n int)")
    with connect() as connection:
        connection.execute("INSERT INTO r_swap SELECT g, g * 10, 0 FROM generate_series(1, 6) g")

    def swap(connection: Connection, one: int, other: int) -> None:
        found = dict(connection.execute("SELECT k, u FROM r_swap WHERE k IN (%s, %s)", (one, other)).fetchall())
        connection.execute("UPDATE r_swap SET u = NULL WHERE k = %s", (one,))
        connection.execute("UPDATE r_swap SET u = %s WHERE k = %s", (found[one], other))
        connection.execute("UPDATE r_swap SET u = %s, n = n + 1 WHERE k = %s", (found[other], one))

    def job(racer: Racer) -> None:
        for _ in range(15):
            one, other = racer.random.sample(range(1, 7), 2)
            racer.until_done(swap, one, other)

    race(connect, *[job] * 8)
    assert [u for (u,) in rows(connect, "SELECT u FROM r_swap ORDER BY u")] == [10, 20, 30, 40, 50, 60]
    assert rows(connect, "SELECT sum(n) FROM r_swap") == [(8 * 15,)]
    assert_free(connect, "r_swap.n")


def test_a_queue_hands_out_every_job_once(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_queue (k int PRIMARY KEY, taken_by int, n int)")
    with connect() as connection:
        connection.execute("INSERT INTO r_queue SELECT g, NULL, 0 FROM generate_series(1, 80) g")
    taken: list[tuple[int, int]] = []

    def take(connection: Connection, who: int) -> int | None:
        row = connection.execute(
            "SELECT k FROM r_queue WHERE taken_by IS NULL ORDER BY random() LIMIT 1 FOR UPDATE SKIP LOCKED"
        ).fetchone()
        if row is None:
            return None
        sql = "UPDATE r_queue SET taken_by = %s, n = n + 1 WHERE k = %s"
        assert connection.execute(sql, (who, row[0])).rowcount == 1
        return int(row[0])

    def job(racer: Racer) -> None:
        while (found := racer.until_done(take, racer.number)) is not None:
            taken.append((found, racer.number))

    race(connect, *[job] * 8)
    assert sorted(taken) == rows(connect, "SELECT k, taken_by FROM r_queue ORDER BY k")
    assert rows(connect, "SELECT min(n), max(n) FROM r_queue") == [(1, 1)]


def test_a_guard_row_read_for_update_prevents_write_skew(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_guard (k int PRIMARY KEY); CREATE TABLE r_call (k int PRIMARY KEY, on_call boolean)")
    with connect() as connection:
        connection.execute("INSERT INTO r_guard VALUES (1)")
        connection.execute("INSERT INTO r_call SELECT g, true FROM generate_series(1, 16) g")

    def leave(connection: Connection, who: int) -> None:
        connection.execute("SELECT k FROM r_guard FOR UPDATE")
        row = connection.execute("SELECT count(*) FROM r_call WHERE on_call").fetchone()
        assert row is not None
        if row[0] > 1:
            connection.execute("UPDATE r_call SET on_call = false WHERE k = %s", (who,))

    race(connect, *[lambda racer: racer.until_done(leave, racer.number + 1)] * THREADS)
    assert rows(connect, "SELECT count(*) FROM r_call WHERE on_call") == [(1,)]


def test_crossing_updates_never_deadlock(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_cross (k int PRIMARY KEY, n int)")
    with connect() as connection:
        connection.execute("INSERT INTO r_cross SELECT g, 0 FROM generate_series(0, 5) g")

    def update(connection: Connection, keys: list[int]) -> None:
        for key in keys:
            connection.execute("UPDATE r_cross SET n = n + 1 WHERE k = %s", (key,))

    def job(racer: Racer) -> None:
        for _ in range(15):
            racer.until_done(update, racer.random.sample(range(6), 4))

    race(connect, *[job] * THREADS)
    assert rows(connect, "SELECT sum(n) FROM r_cross") == [(THREADS * 15 * 4,)]
    assert_free(connect, "r_cross.n")


def test_children_of_a_parent_that_is_deleted_are_never_orphans(connect: Connect, make: Make) -> None:
    make(
        "CREATE TABLE r_parent (k int PRIMARY KEY, n int);"
        "CREATE TABLE r_child (k int PRIMARY KEY, p int REFERENCES r_parent (k))"
    )
    with connect() as connection:
        connection.execute("INSERT INTO r_parent SELECT g, 0 FROM generate_series(0, 39) g")
    children: set[int] = set()
    gone: list[int] = []

    def job(racer: Racer) -> None:
        for parent in range(40):
            if parent % 4 == 0:
                racer.together()
            key = parent * 100 + racer.number
            try:
                if racer.number % 4 == 0:
                    gone.extend([parent] * sum(racer.once(change, "DELETE FROM r_parent WHERE k = %s", parent)))
                elif racer.number % 4 == 1:
                    racer.once(change, "UPDATE r_parent SET n = n + 1 WHERE k = %s", parent)
                elif racer.once(change, "INSERT INTO r_child VALUES (%s, %s)", key, parent):
                    children.add(key)
            except psycopg.errors.ForeignKeyViolation:
                racer.connection.execute("ROLLBACK")

    race(connect, *[job] * THREADS)
    assert {key for (key,) in rows(connect, "SELECT k FROM r_child")} == children
    assert sorted({key for (key,) in rows(connect, "SELECT k FROM r_parent")} ^ set(range(40))) == sorted(gone)
    assert {key // 100 for key in children}.isdisjoint(gone)
    assert_free(connect, "r_parent.n", "r_child.p")


def test_a_cascade_takes_every_child_or_loses(connect: Connect, make: Make) -> None:
    make(
        "CREATE TABLE r_boss (k int PRIMARY KEY);"
        "CREATE TABLE r_staff (k int PRIMARY KEY, p int REFERENCES r_boss (k) ON DELETE CASCADE, n int)"
    )
    with connect() as connection:
        connection.execute("INSERT INTO r_boss SELECT g FROM generate_series(0, 29) g")
        connection.execute("INSERT INTO r_staff SELECT g, g, 0 FROM generate_series(0, 29) g")
    gone: list[int] = []
    raised: Counter[int] = Counter()
    lock = threading.Lock()

    def job(racer: Racer) -> None:
        for key in range(30):
            if key % 5 == 0:
                racer.together()
            if racer.number % 3 == 0:
                gone.extend([key] * sum(racer.once(change, "DELETE FROM r_boss WHERE k = %s", key)))
                continue
            done = racer.once(change, "UPDATE r_staff SET n = n + 1 WHERE k = %s", key)
            with lock:
                raised[key] += sum(done)

    race(connect, *[job] * THREADS)
    left = dict(rows(connect, "SELECT k, n FROM r_staff"))
    assert set(left) == {key for (key,) in rows(connect, "SELECT k FROM r_boss")}
    assert sorted(set(range(30)) - set(left)) == sorted(gone)
    assert left == {key: raised[key] for key in left}
    assert_free(connect, "r_staff.n")
