"""What was acknowledged is there after everything was killed at once."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.local.cleanup import command_lines
from pytest_dsql.local.client import Engine
from pytest_dsql.local.options import EngineOptions
from tests.local.conftest import Place
from tests.local.engines import connect
from tests.local.gateway.harness import wait_until

#: Enough for each writer to be in the middle of something.
ACKNOWLEDGED = 300


class Writer:
    """Inserts rows one after the other, in autocommit and in transactions, and notes which were acknowledged."""

    def __init__(self, engine: Engine, number: int) -> None:
        self.acknowledged: list[int] = []
        self._connection = connect(engine)
        self._numbers = itertools.count(number * 1_000_000)
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with contextlib.suppress(psycopg.OperationalError):
            for number in self._numbers:
                if number % 2:
                    self._connection.execute("INSERT INTO kept VALUES (%s)", [number])
                else:
                    with self._connection.transaction():
                        self._connection.execute("INSERT INTO kept VALUES (%s)", [number])
                self.acknowledged.append(number)


def kill_everything(engine: Engine, place: Place) -> None:
    """SIGKILL to PostgreSQL's processes and the gateway; nobody gets to tidy up."""
    postmasters = {int(path.read_text().split()[0]) for path in place.base.glob("*/*/data/postmaster.pid")}
    children = {int(path.name) for path in Path("/proc").glob("[0-9]*") if parent_of(path) in postmasters}
    for pid in (*postmasters, engine.pid, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(str(place.directory) in " ".join(words) for _, words in command_lines()), 300)


def parent_of(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes can't be listed here")
def test_what_was_acknowledged_survives_a_kill_of_everything(place: Place, tmp_path: Path) -> None:
    options = EngineOptions(data=tmp_path / "data").with_settings({"durable": "on"})
    engine = Engine.start_or_attach(options=options)
    with connect(engine) as connection:
        connection.execute("CREATE TABLE kept (id bigint PRIMARY KEY)")
    writers = [Writer(engine, number) for number in range(1, 5)]
    for writer in writers:
        writer.thread.start()
    wait_until(lambda: sum(len(writer.acknowledged) for writer in writers) > ACKNOWLEDGED, 300)
    kill_everything(engine, place)
    for writer in writers:
        writer.thread.join(300)
    engine.close()
    with Engine.start_or_attach(options=options) as again, connect(again) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        kept = {number for (number,) in connection.execute("SELECT id FROM kept").fetchall()}
    acknowledged = {number for writer in writers for number in writer.acknowledged}
    assert not acknowledged - kept
    # At most one statement of each writer was done and not yet answered.
    assert len(kept - acknowledged) <= len(writers)
