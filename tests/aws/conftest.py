"""An AWS account of the test's own: moto in process, or as a server in a process that outlives what is killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import botocore.loaders
import pytest
from moto import mock_aws

from pytest_dsql.aws.run import AwsRun
from pytest_dsql.connect.credentials import forget_credentials
from tests.aws.clusters import REGION, Hours

ROOT = Path(__file__).parents[2]
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

_LOADER = botocore.loaders.create_loader()


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Keys that no account has, and a state directory of the test's own."""
    # Service models are read once, not once for each session of botocore's: EC2's alone takes a third of a second.
    monkeypatch.setattr("botocore.session.create_loader", lambda *_ignored, **_also: _LOADER)
    environment = {**KEYS, "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path / "home")}
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    forget_credentials()
    yield environment
    forget_credentials()


@pytest.fixture
def account(aws_environment: dict[str, str]) -> Iterator[None]:
    """An empty account in this process."""
    with mock_aws():
        yield


@pytest.fixture
def run(account: None) -> AwsRun:
    """A run in an empty account, with a clock that doesn't wait."""
    run = AwsRun.begin("run-1", "dsql", region=REGION)
    run.clock = Hours().clock()
    return run


def emptied(address: str) -> None:
    """Have an account in another process be empty again."""
    with urllib.request.urlopen(urllib.request.Request(f"{address}/moto-api/reset", method="POST"), timeout=300):
        pass


@contextmanager
def moto_server(directory: Path, module: str = "moto.server", *options: str) -> Iterator[str]:
    """Run moto_server on 127.0.0.1 until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (directory / "moto.log").open("wb") as log:
        where = ("-H", "127.0.0.1", "-p", str(port)) if module == "moto.server" else (str(port),)
        process = subprocess.Popen([sys.executable, "-m", module, *where, *options], cwd=ROOT, stdout=log, stderr=log)
        try:
            until_it_answers(address, process, directory / "moto.log")
            yield address
        finally:
            process.kill()  # nothing of it is kept; told to end, it would first forget its account, which takes long
            process.wait()


def until_it_answers(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 300
    while True:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/moto-api/", timeout=60):
                return
        except OSError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
