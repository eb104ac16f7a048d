"""Threads that start together, and what clients of DSQL do when they lose: try again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, final

import psycopg

Connection: TypeAlias = "psycopg.Connection[Any]"
Connect: TypeAlias = Callable[[], Connection]
#: Makes tables from statements with semicolons between them.
Make: TypeAlias = Callable[[str], None]

P = ParamSpec("P")
T = TypeVar("T")

#: A race that takes longer than this hangs.
PATIENCE_S: Final = 180.0
#: Somebody who tries this often without success starves.
_MOST_TRIES: Final = 500


@final
@dataclass(slots=True)
class Racer:
    """One thread's connection and its own random numbers."""

    number: int
    connection: Connection
    random: random.Random
    started: threading.Barrier
    lost: int = 0  #: conflicts met
    stale: int = 0  #: changes of the catalog met

    def together(self) -> None:
        """Wait for the others."""
        self.started.wait(PATIENCE_S)

    def once(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> list[T]:
        """Run a transaction; give what it gave, in a list, which stays empty when it lost: a conflict is no failure."""
        try:
            self.connection.execute("BEGIN")
            found = work(self.connection, *args, **options)
            self.connection.execute("COMMIT")
        except psycopg.errors.SerializationFailure as error:
            self._note(error)
            self._roll_back()
            return []
        except psycopg.errors.UniqueViolation:
            # Somebody's key, committed before the snapshot.
            self._roll_back()
            return []
        return [found]

    def until_done(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **options: P.kwargs) -> T:
        """Run a transaction until it commits, pausing a little longer each time."""
        for attempt in range(_MOST_TRIES):
            if found := self.once(work, *args, **options):
                return found[0]
            self.pause(attempt)
        raise AssertionError(f"racer {self.number} lost {_MOST_TRIES} times running")

    def at_once(self, sql: str, values: Sequence[object] = ()) -> list[int]:
        """Run an autocommit statement; give the number of rows it affected, in a list, empty when it lost."""
        try:
            return [self.connection.execute(sql, values).rowcount]
        except psycopg.errors.SerializationFailure as error:
            self._note(error)
        except psycopg.errors.UniqueViolation:
            pass
        return []

    def execute_until_done(self, sql: str, values: Sequence[object] = ()) -> psycopg.Cursor[Any]:
        """Run an autocommit statement until it succeeds."""
        for attempt in range(_MOST_TRIES):
            try:
                return self.connection.execute(sql, values)
            except psycopg.errors.SerializationFailure as error:
                self._note(error)
                self.pause(attempt)
        raise AssertionError(f"racer {self.number} lost {_MOST_TRIES} times running")

    def pause(self, attempt: int) -> None:
        """Back off, with jitter."""
        time.sleep(self.random.uniform(0, min(0.001 * 2 ** min(attempt, 6), 0.1)))

    def _note(self, error: psycopg.errors.SerializationFailure) -> None:
        text = error.diag.message_primary or ""
        if "(OC001)" in text:
            self.stale += 1
        else:
            assert text == "change conflicts with another transaction (OC000)", text
            self.lost += 1

    def _roll_back(self) -> None:
        if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
            self.connection.execute("ROLLBACK")


@final
@dataclass(slots=True)
class Race:
    """What came of a race."""

    racers: list[Racer] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """Conflicts that were met."""
        return sum(racer.lost for racer in self.racers)

    @property
    def stale(self) -> int:
        """Changes of the catalog that were met."""
        return sum(racer.stale for racer in self.racers)


def race(connect: Connect, *jobs: Callable[[Racer], None], seed: int = 1) -> Race:
    """Run each job in a thread with a connection of its own, all at once. Raises what a job raised.

    Raises AssertionError when they don't all end in time.
    """
    started = threading.Barrier(len(jobs))
    racers = [Racer(n, connect(), random.Random(f"{seed} {n}"), started) for n in range(len(jobs))]
    errors: list[BaseException] = []

    def run(racer: Racer, job: Callable[[Racer], None]) -> None:
        try:
            racer.together()
            job(racer)
        except BaseException as error:
            errors.append(error)
            started.abort()

    threads = [
        threading.Thread(target=run, args=pair, daemon=True, name=f"racer {pair[0].number}")
        for pair in zip(racers, jobs, strict=True)
    ]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, began + PATIENCE_S - time.monotonic()))
    hanging = [thread.name for thread in threads if thread.is_alive()]
    for racer in racers:
        if not hanging:
            racer.connection.close()
    if errors:
        # One that broke the barrier for the others says why.
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    assert not hanging, f"no end after {PATIENCE_S:.0f} s: {', '.join(hanging)}"
    return Race(racers, time.monotonic() - began)


def assert_free(connect: Connect, *tables: str) -> None:
    """Touch every row of the tables at once, in one transaction and by single statements: nobody holds anything."""
    with connect() as connection:
        for table, column in (name.split(".") for name in tables):
            began = time.monotonic()
            connection.execute(f"UPDATE {table} SET {column} = {column}")
            connection.execute("BEGIN")
            connection.execute(f"SELECT * FROM {table} FOR UPDATE")
            connection.execute(f"UPDATE {table} SET {column} = {column}")
            connection.execute("COMMIT")
            took = time.monotonic() - began
            assert took < 5, f"{table} was touched in {took:.1f} s: somebody holds rows of it"


def change(connection: Connection, sql: str, *values: object) -> int:
    """A transaction's work: one statement; gives the number of rows it affected."""
    return connection.execute(sql, values).rowcount


def rows(connect: Connect, sql: str) -> list[tuple[Any, ...]]:
    """What a fresh connection finds."""
    with connect() as connection:
        return connection.execute(sql).fetchall()
