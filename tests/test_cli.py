"""The command `pytest-dsql`, run as a person runs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsql.results.run import RunInfo
from pytest_dsql.results.writer import ResultsFile
from tests.local.conftest import Place, place

__all__ = ["place"]

COMMAND = [sys.executable, "-c", "import sys; from pytest_dsql.cli import main; sys.exit(main())"]

needs_psql = pytest.mark.skipif(shutil.which("psql") is None, reason="no psql on this machine")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert run("--version").stdout == f"pytest-dsql {version('pytest-dsql')}\n"


@pytest.mark.parametrize("arguments", [("--help",), ("local", "--help")])
def test_help_is_given(arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 0
    assert "local" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "say what to do: local, cost"),
        (("remote",), "invalid choice: 'remote'"),
        (("local", "--port", "0"), "'0' is not a port"),
        (("local", "--port", "http"), "'http' is not a port"),
        (("local", "--latency", "x"), "no latency profile 'x': name one of none, multi-region"),
        (("local", "--faults", "/nowhere.toml"), "/nowhere.toml: No such file or directory"),
        (("local", "--speed", "x"), "unknown argument '--speed'; a command goes after --"),
        (("local", "psql"), "unknown argument 'psql'; a command goes after --"),
        (("local", "--"), "no command after --"),
        (("local", "--set", "rules"), "write NAME=VALUE; known names: region, rules"),
        (("local", "--set", "speed=9"), "unknown setting 'speed'; known: region, rules"),
        (("local", "--set", "rules=soon"), "write it like rules=2026-07-01"),
        (("local", "--data", "/etc/passwd"), "is not a directory"),
    ],
)
def test_a_wrong_option_is_one_line_before_anything_is_made(
    place: Place, arguments: tuple[str, ...], words: str
) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert not place.left()


def test_a_command_that_does_not_exist_is_one_line(place: Place) -> None:
    result = run("local", "--", "no-such-command")
    assert (result.returncode, result.stderr) == (127, "pytest-dsql local: no-such-command: no such command\n")
    assert not place.left()


def test_a_taken_port_fails_the_engine(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run("local", "--port", str(port), "--", "true")
    assert result.returncode == 125
    assert result.stderr == f"pytest-dsql local: port {port} on 127.0.0.1 can't be used: Address already in use\n"
    assert not place.left()


@needs_psql
def test_psql_finds_the_engine(place: Place) -> None:
    result = run("local", "--", "psql", "-XAtc", "SELECT current_user, version()")
    assert (result.returncode, result.stdout) == (0, "admin|PostgreSQL 16\n"), result.stderr
    assert not place.left()


@needs_psql
def test_a_users_own_settings_do_not_lead_elsewhere(place: Place) -> None:
    result = run(
        *("local", "--", "psql", "-XAtc", "SELECT 1"),
        PGSERVICE="production",
        PGOPTIONS="-c statement_timeout=1",
        PGCHANNELBINDING="require",
        PGSSLROOTCERT="/nonexistent",
    )
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


def test_the_environment_leads_to_the_engine_and_to_no_account(place: Place) -> None:
    result = run(
        *("local", "--set", "region=eu-west-1", "--", "env"),
        AWS_PROFILE="production",
        AWS_ACCESS_KEY_ID="AKIAREAL",
        AWS_SECRET_ACCESS_KEY="real",
        AWS_SESSION_TOKEN="real",
    )
    variables = dict(text.partition("=")[::2] for text in result.stdout.splitlines())
    assert re.fullmatch(r"[a-z0-9]{26}\.dsql\.eu-west-1\.on\.aws", variables["PGHOST"])
    assert variables["DSQL_ENDPOINT"] == variables["PGHOST"]
    expected = {"PGHOSTADDR": "127.0.0.1", "PGUSER": "admin", "PGDATABASE": "postgres", "PGSSLMODE": "verify-full"}
    assert expected.items() <= variables.items()
    assert variables["AWS_REGION"] == "eu-west-1"
    assert variables["AWS_ACCESS_KEY_ID"] not in ("AKIAREAL", "")
    assert variables["AWS_SECRET_ACCESS_KEY"] not in ("real", "")
    assert "X-Amz-Expires=604800" in variables["PGPASSWORD"]
    assert variables["AWS_ACCESS_KEY_ID"] in variables["PGPASSWORD"]
    assert not {"AWS_PROFILE", "AWS_SESSION_TOKEN"} & variables.keys()


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)])
def test_the_status_is_the_commands(place: Place, script: str, status: int) -> None:
    assert run("local", "--", "sh", "-c", script).returncode == status
    assert not place.left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_command(place: Place, number: signal.Signals) -> None:
    script = f"trap 'exit 9' {number.value}; echo ready; while :; do sleep 0.05; done"
    process = start("local", "--", "sh", "-c", script)
    assert line(process) == "ready\n"
    process.send_signal(number)
    process.communicate(timeout=300)
    assert process.returncode == 9
    assert not place.left()


def test_a_command_in_the_command_attaches_to_the_same_engine(place: Place) -> None:
    code = (
        "import os, pathlib; from pytest_dsql.local.client import Engine; "
        "engine = Engine.attach(pathlib.Path(os.environ['DSQL_LOCAL_ENGINE'])); "
        "print(engine.status()['holders'], engine.cluster.host == os.environ['PGHOST']); engine.close()"
    )
    assert run("local", "--", sys.executable, "-c", code).stdout == "2 True\n"


def test_an_engine_killed_under_a_command_is_told(place: Place) -> None:
    code = (
        "import os, pathlib, signal; from pytest_dsql.local.client import Engine; "
        "engine = Engine.attach(pathlib.Path(os.environ['DSQL_LOCAL_ENGINE'])); os.kill(engine.pid, signal.SIGKILL); "
        "engine.close()"
    )
    result = run("local", "--", sys.executable, "-c", code)
    assert (result.returncode, result.stderr) == (125, "pytest-dsql local: its process was killed\n")
    assert not place.left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_without_a_command_it_runs_until_interrupted(place: Place, number: signal.Signals) -> None:
    process = start("local")
    assert line(process).startswith("The engine runs: PostgreSQL 16.")
    assert place.processes()
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stderr) == (0, "")
    assert "X-Amz" not in stdout
    assert not place.left()


@needs_psql
def test_without_a_command_the_environment_is_a_private_file(place: Place) -> None:
    process = start("local")
    try:
        while ". /" not in (text := line(process)):
            assert text
        path = Path(text.split()[1])
        assert path.stat().st_mode & 0o777 == 0o600
        answer = subprocess.check_output(["sh", "-c", f". {path} && psql -XAtc 'SELECT 1'"], text=True)
        assert answer == "1\n"
    finally:
        process.terminate()
        process.communicate(timeout=300)


def test_an_engine_that_ends_ends_it_with_the_reason(place: Place) -> None:
    process = start("local")
    line(process)
    (server,) = place.base.glob("*/*/data/postmaster.pid")
    os.kill(int(server.read_text().split()[0]), signal.SIGKILL)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 125
    assert re.fullmatch(r"pytest-dsql local: PostgreSQL of cluster .* ended \(killed by SIGKILL\): .*\n", stderr)
    assert not place.left()


def test_the_cost_of_a_run_on_the_engine_is_told_without_asking_anybody(tmp_path: Path) -> None:
    info = RunInfo.collect(id="20261130T100000Z-abcdef", plan="quick", seed=1)
    file = ResultsFile(tmp_path, info)
    file.put_target("local", cost_dpu=1234.5, cost_usd=0.009876, cost_estimated=True, cost_prices="table of 2026-04-28")
    file.finish()
    result = run("cost", info.id, "--results", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "during the run   1,234.5 DPU, $0.0099 (estimated; prices: table of 2026-04-28)" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cost",), "the following arguments are required: RUN"),
        (("cost", "x", "--nothing"), "unknown argument '--nothing'"),
        (("cost", "no-such-run"), "there are no results of a run 'no-such-run' in .dsql"),
    ],
)
def test_a_wrong_cost_command_is_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    result = run(*arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
