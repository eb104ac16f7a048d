"""A PostgreSQL that loses one of its processes: sessions end, and what was acknowledged is there when it is back."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from pytest_dsql.local.client import Engine
from tests.local.adjudicator.breaking import again, assert_ends, backends
from tests.local.engines import connect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds PostgreSQL's processes in /proc")


def test_what_was_acknowledged_outlives_a_killed_backend() -> None:
    with Engine.start_or_attach() as engine:
        writer, bystander = connect(engine), connect(engine)
        writer.execute("CREATE TABLE crashed (k int PRIMARY KEY)")
        for key in range(50):
            writer.execute("INSERT INTO crashed VALUES (%s)", (key,))
        writer.execute("BEGIN")
        writer.execute("INSERT INTO crashed VALUES (50)")
        os.kill(backends(engine)[0], signal.SIGKILL)
        # PostgreSQL ends all of its sessions when it loses one that way.
        assert_ends(writer)
        assert_ends(bystander)
        with again(engine) as connection:
            assert connection.execute("SELECT k FROM crashed ORDER BY k").fetchall() == [(key,) for key in range(50)]
            connection.execute("INSERT INTO crashed VALUES (50)")
