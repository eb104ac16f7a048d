"""`--dsql-runner ec2` as a user gives it: one command; an account of moto's, the machine a process here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aws.conftest import aws_environment, moto_server

__all__ = ["aws_environment"]

HOST = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws"
#: The session's own process has no fixtures of this project: it is given Systems Manager's side of an instance (see
#: `tests.runner.agent`), and a cluster that nobody connects to: what is measured there is tests/runner/test_ec2.py's.
STUBS = """
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, {root!r})

if "DSQL_RUNNER_JOB" not in os.environ:
    import pytest_dsql.targets.attach as attach
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.target import Target
    from tests.runner.agent import Agent

    patch = pytest.MonkeyPatch()
    Agent(Path("machines").absolute()).install(patch)
    endpoint = Endpoint({host!r}, hostaddr="127.0.0.1")
    target = Target(name="attach", endpoint=endpoint, tokens=TokenSource(endpoint), facts={{"dialect": "dsql"}})
    patch.setattr(attach, "attach", lambda settings: target)
"""
TESTS = """
import pytest

@pytest.mark.dsql
def test_right(dsql_plan):
    assert dsql_plan.name == "quick"

@pytest.mark.dsql
def test_wrong():
    assert 1 == 2

def test_not_asked_for():
    raise AssertionError
"""


def test_one_command(
    pytester: pytest.Pytester,
    aws_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(pytester.path / "state"))
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
    pytester.makeconftest(STUBS.format(root=str(Path(__file__).parents[2]), host=HOST))
    pytester.makepyfile(TESTS)
    with moto_server(tmp_path_factory.mktemp("account")) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        # pytest-xdist, too, is for the machine.
        result = pytester.runpytest_subprocess(
            *("--dsql-endpoint", HOST, "--dsql-runner", "ec2", "--dsql-budget", "5", "-m", "dsql", "-n", "1")
        )
        left = pytester.run("pytest-dsql", "verify", "--region", "us-east-1")
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "*dsql: i-* (c7i.xlarge, spot) starts in us-east-1?",
            "*1 failed, 1 passed*",
            "*dsql: removed all of runner-ec2: *, remaining: 0",
        ]
    )
    assert left.ret == 0
    left.stdout.fnmatch_lines(["remaining: 0"])
    assert aws_environment["AWS_SECRET_ACCESS_KEY"] not in result.stdout.str() + result.stderr.str()
