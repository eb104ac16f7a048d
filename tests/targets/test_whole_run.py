"""A whole run as a new user would do it: one command, an account in another process, the engine as data plane."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import boto3
import pytest

from tests.aws.conftest import until_it_answers

ROOT = Path(__file__).parents[2]

BENCHMARK = """
from pytest_dsql import Mix, Slo, Latency, ms

SLO = Slo(reads=Latency(p95=ms(5000)), writes=Latency(p95=ms(5000)))

def test_orders(dsql_load, dsql_orders):
    dsql_load.closed(dsql_orders.mix, connections=2, warmup=0.1, duration=1.0).assert_meets(SLO)
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

    def clusters(self, region: str = "us-east-1") -> list[Any]:
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
                "--dsql-region=us-east-1",
                "--dsql-budget=1",
                "--dsql-target-option=hostaddr=127.0.0.1",
                f"--dsql-target-option=port={engine['port']}",
            ]
            yield Cloud(address, environment, options)
        finally:
            process.terminate()
            process.wait(timeout=60)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def one_region(tmp_path: Path) -> Iterator[Cloud]:
    with cloud(tmp_path, "us-east-1") as there:
        yield there


def test_one_command_creates_measures_and_removes(one_region: Cloud, tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(BENCHMARK)
    done = one_region.run(
        tmp_path,
        "pytest",
        "-p",
        "no:cacheprovider",
        "--dsql-target=dsql",
        "--dsql-scale=tiny",
        "--dsql-workers=1",
        *one_region.options,
    )
    assert "1 passed" in done.stdout
    assert one_region.clusters() == []
    results = json.loads((tmp_path / ".dsql" / "latest" / "results.json").read_text())
    target = results["targets"][0]
    assert target["name"] == "dsql"
    assert target["region"] == "us-east-1"
    assert target["creation_s"] > 0
    assert results["cells"][0]["verdict"]["outcome"] == "pass"
    assert "123456789012" not in done.stdout + json.dumps(results)
    assert list((tmp_path / "state" / "pytest-dsql" / "runs").iterdir()) == []
