"""Transfers at the same time: the books add up. And hot rows move on."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import Final

import pytest

from tests.local.adjudicator.bank import TABLES, assert_books, open_accounts, transfers
from tests.local.adjudicator.racing import Connect, Make, Racer, assert_free, change, race, rows

THREADS: Final = 16


@pytest.fixture
def bank(connect: Connect, make: Make) -> None:
    make(TABLES)
    open_accounts(connect)


@pytest.mark.usefixtures("bank")
def test_transfers_add_up(connect: Connect) -> None:
    acknowledged: set[str] = set()
    outcome = race(connect, *[transfers(acknowledged, 25)] * THREADS)
    assert len(acknowledged) == 25 * THREADS
    assert outcome.lost > 0
    assert_books(connect, acknowledged)
    assert_free(connect, "r_account.balance", "r_ledger.amount")


def test_everybody_gets_through_on_hot_rows(connect: Connect, make: Make) -> None:
    make("CREATE TABLE r_hot (k int PRIMARY KEY, n int)")
    with connect() as connection:
        connection.execute("INSERT INTO r_hot VALUES (0, 0), (1, 0)")
    clients = 64
    done: Counter[int] = Counter()
    commits: list[float] = []
    lock = threading.Lock()
    everybody = threading.Event()
    began = time.monotonic()

    def job(racer: Racer) -> None:
        attempt = 0
        while not everybody.is_set() or time.monotonic() - began < 5:
            attempt += 1
            if racer.once(change, "UPDATE r_hot SET n = n + 1 WHERE k = %s", racer.number % 2):
                attempt = 0
                with lock:
                    done[racer.number] += 1
                    commits.append(time.monotonic())
                    if len(done) == clients:
                        everybody.set()
            else:
                racer.pause(attempt)

    outcome = race(connect, *[job] * clients)
    assert rows(connect, "SELECT sum(n) FROM r_hot") == [(sum(done.values()),)]
    longest_s = max(later - earlier for earlier, later in itertools.pairwise(sorted(commits)))
    print(
        f"\n64 connections, two hot rows: {len(commits) / outcome.seconds:.0f} commits/s, {outcome.lost} lost, "
        f"longest pause {longest_s:.2f} s, fewest per connection {min(done.values())}"
    )
    assert longest_s < 5, "nobody committed for seconds"
    assert_free(connect, "r_hot.n")
