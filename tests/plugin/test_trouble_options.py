"""Latency and faults by option: they hold from the start, for every test anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "import sys; from pytest_dsql.cli import main; sys.exit(main())"]
FAULTS = '[[fault]]\nwhat = "unavailable"\non = "select"\nsql = "special"\nfirst = 1\n'
PROFILE = "rtt = 20\n"
TESTS = """
import time
import psycopg
import pytest

@pytest.mark.parametrize("_", range(2))
def test_trouble(dsql_local, dsql_connection, _):
    assert dsql_local.latency.profile == "near"
    began = time.monotonic()
    with pytest.raises(psycopg.errors.InternalError_, match="server unavailable"):
        dsql_connection.execute("SELECT 'special'")
    assert time.monotonic() - began > 0.015
    assert dsql_connection.execute("SELECT 'special'").fetchone() == ("special",)
    assert list(dsql_local.faults.counts().values()) == [1]
    dsql_local.faults.clear()
    dsql_local.latency.use("none")

@pytest.mark.dsql
def test_cell(dsql_load):
    dsql_load.sequential_connects(1)
"""


@pytest.fixture
def files(pytester: pytest.Pytester) -> tuple[Path, Path]:
    (pytester.path / "near.toml").write_text(PROFILE)
    (pytester.path / "faults.toml").write_text(FAULTS)
    return pytester.path / "near.toml", pytester.path / "faults.toml"


def test_they_hold_for_every_test_anew(pytester: pytest.Pytester, files: tuple[Path, Path]) -> None:
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\ndsql_faults = faults.toml")
    result = pytester.runpytest_subprocess("--dsql-latency", "near.toml")
    result.assert_outcomes(passed=3)
    content = json.loads((pytester.path / ".dsql/latest/results.json").read_text())
    assert [target["latency"] for target in content["targets"]] == ["near"]
    assert [cell["simulated"] for cell in content["cells"]] == [True]


def test_a_command_runs_under_them(files: tuple[Path, Path], tmp_path: Path) -> None:
    latency, faults = files
    script = tmp_path / "client.py"
    script.write_text(
        "import os, psycopg\n"
        "with psycopg.connect('', autocommit=True) as connection:\n"
        "    try:\n"
        "        connection.execute(\"SELECT 'special'\")\n"
        "    except psycopg.errors.InternalError_ as error:\n"
        "        print(error.sqlstate, len(os.environ['DSQL_ENDPOINTS'].split(',')))\n"
    )
    command = [*COMMAND, "local", "--latency", str(latency), "--faults", str(faults)]
    command += ["--set", "regions=us-east-1+us-west-2", "--", sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))
    assert (done.stdout, done.stderr, done.returncode) == ("XX000 2\n", "", 0)


def test_a_region_that_the_target_is_not_in_is_named(attached: pytest.Pytester) -> None:
    attached.makepyfile("def test_it(dsql_connect): dsql_connect(region='mars-1')")
    result = attached.runpytest_subprocess()
    message = "the target is not in mars-1; its Regions: us-east-1; --dsql-set regions=us-east-1+mars-1 adds it"
    result.stdout.fnmatch_lines([f"*{message}*"])
