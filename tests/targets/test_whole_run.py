"""A whole run as a new user would do it: one command, an account in another process, the engine as data plane."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from tests.aws.conftest import until_it_answers

#: moto's account.
ACCOUNT = "123456789012"
ROOT = Path(__file__).parents[2]

BENCHMARK = """
from pytest_dsql import Slo

def test_orders(dsql_load, dsql_orders):
    dsql_load.closed(dsql_orders.mix, connections=2, warmup=0.1, duration=2.0).assert_meets(Slo(min_tps=1))
"""


class Cloud(NamedTuple):
    address: str
    environment: dict[str, str]
    options: list[str]

    def run(self, directory: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=directory,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def nothing_is_left(self) -> None:
        assert self.clusters("ap-northeast-1") == self.clusters("ap-northeast-2") == []
        runs = Path(self.environment["XDG_STATE_HOME"], "pytest-dsql", "runs")
        assert list(runs.iterdir()) == []

    def no_secret_in(self, text: str) -> None:
        """Neither the account's id, nor the secret key, nor any part of a token."""
        for secret in (ACCOUNT, self.environment["AWS_SECRET_ACCESS_KEY"], "X-Amz-Signature=", "X-Amz-Credential="):
            assert secret not in text

    def clusters(self, region: str = "ap-northeast-1") -> list[Any]:
        client = boto3.client(
            "dsql",
            region_name=region,
            endpoint_url=self.address,
            aws_access_key_id="x",
            aws_secret_access_key="y",
        )
        found: list[Any] = client.list_clusters()["clusters"]
        return found


@contextmanager
def cloud(tmp_path: Path, regions: str) -> Iterator[Cloud]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DSQL_", "PG"))}
    log = tmp_path / "cloud.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.aws.dsql_service", str(port), "--engine", regions],
            cwd=ROOT,
            env=own,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            engine = json.loads(line)
            address = f"http://127.0.0.1:{port}"
            until_it_answers(address, process, log)
            environment = {
                **own,
                "AWS_ENDPOINT_URL": address,
                "AWS_ACCESS_KEY_ID": engine["access_key_id"],
                "AWS_SECRET_ACCESS_KEY": engine["secret_access_key"],
                "AWS_EC2_METADATA_DISABLED": "true",
                "PGSSLROOTCERT": engine["ca_file"],
                "XDG_STATE_HOME": str(tmp_path / "state"),
                "HOME": str(tmp_path),
            }
            options = [
                f"--dsql-region={regions.partition('+')[0]}",
                "--dsql-budget=1",
                "--dsql-target-option=hostaddr=127.0.0.1",
                f"--dsql-target-option=port={engine['port']}",
            ]
            yield Cloud(address, environment, options)
        finally:
            process.terminate()  # with its engine
            process.wait(timeout=300)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with cloud(tmp_path_factory.mktemp("cloud"), "ap-northeast-1+ap-northeast-2") as one:
        yield one


def all_that_was_written(directory: Path) -> str:
    return "\n".join(
        path.read_text(errors="replace")
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.suffix != ".py"
    )


def test_one_command_creates_measures_and_removes(there: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(BENCHMARK)
    done = there.run(
        tmp_path,
        "pytest",
        "-p",
        "no:cacheprovider",
        "--junitxml=junit.xml",
        "--dsql-target=dsql",
        "--dsql-scale=tiny",
        *there.options,
    )
    assert "1 passed" in done.stdout
    assert "dsql: removed all of dsql: 1, remaining: 0" in done.stdout
    results = json.loads((tmp_path / ".dsql" / "latest" / "results.json").read_text())
    target = results["targets"][0]
    assert target["name"] == "dsql"
    assert target["region"] == "ap-northeast-1"
    assert target["creation_s"] > 0
    assert results["cells"][0]["verdict"]["outcome"] == "pass"
    there.nothing_is_left()
    # What it writes, and what is made of that later: the comparison of costs, the list of what is left.
    said = [done.stdout, done.stderr]
    for arguments in (["cost", results["run"]["id"]], ["verify"]):
        after = there.run(tmp_path, "pytest_dsql.cli", *arguments)
        said += [after.stdout, after.stderr]
    assert "remaining: 0" in said[-2]
    written = all_that_was_written(tmp_path)
    assert "<testsuites" in written
    there.no_secret_in("".join(said) + written)


def test_two_regions_are_peered_measured_and_removed(there: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_regions.py").write_text(
        "def test_both(dsql_connect):\n"
        "    dsql_connect().execute('CREATE TABLE t (id int PRIMARY KEY)')\n"
        "    here, over_there = dsql_connect(), dsql_connect(region='ap-northeast-2')\n"
        "    over_there.execute('INSERT INTO t VALUES (1)')\n"
        "    assert here.execute('SELECT count(*) FROM t').fetchone() == (1,)\n"
    )
    done = there.run(
        tmp_path,
        "pytest",
        "-p",
        "no:cacheprovider",
        "--dsql-target=dsql-multi-region",
        "--dsql-target-option=peer=ap-northeast-2",
        "--dsql-target-option=witness=ap-northeast-3",
        *there.options,
    )
    assert "1 passed" in done.stdout
    assert "dsql: removed all of dsql-multi-region: 2, remaining: 0" in done.stdout
    there.nothing_is_left()
    there.no_secret_in(done.stdout + done.stderr + all_that_was_written(tmp_path))


def test_what_is_kept_can_be_attached_to_verified_and_reaped(there: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "def test_it(dsql_connection):\n    assert dsql_connection.execute('SELECT 1').fetchone() == (1,)\n"
    )
    done = there.run(tmp_path, "pytest", "-p", "no:cacheprovider", "--dsql-target=dsql", "--dsql-keep", *there.options)
    said = re.search(r"attach with --dsql-endpoint (\S+), remove with `(.*)`", done.stdout)
    assert said is not None, done.stdout
    assert len(there.clusters()) == 1
    seen = there.run(tmp_path, "pytest_dsql.cli", "verify", check=False)
    assert seen.returncode == 1
    assert re.search(r"dsql-cluster \S+ in ap-northeast-1, run \S+: kept\n", seen.stdout), seen.stdout + seen.stderr
    assert seen.stdout.endswith("remaining: 1\n")
    # A reap that names no run leaves it.
    assert there.run(tmp_path, "pytest_dsql.cli", "reap", check=False).stdout.endswith("remaining: 1\n")
    assert len(there.clusters()) == 1
    reaped = there.run(tmp_path, "pytest_dsql.cli", *said[2].split()[1:])
    assert "removed: 1\n" in reaped.stdout
    assert reaped.stdout.endswith("remaining: 0\n")
    there.nothing_is_left()
    there.no_secret_in(done.stdout + seen.stdout + reaped.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_removes_what_was_created(there: Cloud, tmp_path: Path, number: int) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pathlib, time\n"
        "def test_it(dsql_connection):\n    pathlib.Path('running').touch()\n    time.sleep(120)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--dsql-target=dsql", *there.options],
        cwd=tmp_path,
        env=there.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not (tmp_path / "running").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(there.clusters()) == 1
    process.send_signal(number)
    out, _ = process.communicate(timeout=300)
    assert "remaining: 0" in out
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    there.nothing_is_left()


def test_workers_of_xdist_share_one_cluster(there: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest, time\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_it(dsql_endpoint, n):\n    time.sleep(0.3)\n    print('host', dsql_endpoint.host)\n"
    )
    done = there.run(tmp_path, "pytest", "-p", "no:cacheprovider", "-n2", "-rP", "--dsql-target=dsql", *there.options)
    hosts = re.findall(r"^host (\S+)", done.stdout, re.MULTILINE)
    assert len(hosts) == 4
    assert len(set(hosts)) == 1
    there.nothing_is_left()
