"""The script that makes a machine ready, run for real: a fresh environment, the built wheel, files from a bucket."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dsql.aws.run import AwsRun
from pytest_dsql.runner import machines
from pytest_dsql.runner.ec2 import OWNER, Ec2Session
from pytest_dsql.runner.options import Ec2Options
from pytest_dsql.settings import Settings
from pytest_dsql.targets.target import Target
from tests.runner.agent import Agent
from tests.runner.conftest import Fast

RUN = "20261130T100000Z-abcdef"


def test_a_fresh_machine_runs_the_session(
    server: str, nowhere: Target, agent: Callable[..., Agent], tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_it.py").write_text(
        "import os, sys, pytest_dsql\n"
        "def test_it(dsql_plan):\n"
        "    assert os.path.realpath(pytest_dsql.__file__).startswith(os.path.realpath(sys.prefix))\n"
        "    assert dsql_plan.name == 'full'\n"
        "    from pytest_dsql import benchmarks\n"
        "    import boto3, pytest_benchmark\n"
    )
    run = AwsRun.begin(RUN, OWNER, region="us-east-1")
    run.clock = Fast().clock()
    shown: list[str] = []
    session = Ec2Session(
        run=run,
        options=Ec2Options.of({}, plan="quick"),
        settings=Settings(target="attach", plan="full", runner="ec2"),
        target=nowhere,
        results=project / ".dsql" / RUN,
        show=shown.append,
    )
    # What this environment has on its PATH must not help.
    machine = agent(bootstrap=True, environment={"PYTHONPATH": "", "VIRTUAL_ENV": ""})
    assert session.measure(["test_it.py"], root=project, where=project) == 0, (
        "".join(shown) + (machine.directory / "machine-1" / "stderr").read_text()
    )
    assert "1 passed" in "".join(shown)
    python = machine.directory / "machine-1" / "venv" / "bin" / "python"
    done = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True)
    assert "Editable" not in done.stdout
    shutil.rmtree(machine.directory)
    machines.remove_all(run)


def test_a_machine_without_python_says_so(tmp_path: Path) -> None:
    lines = machines.commands("bucket", "us-east-1", "m/", str(tmp_path / "there"))
    (tmp_path / "bin").mkdir()
    for name in ("mkdir", "rm", "sh"):
        path = shutil.which(name)
        assert path
        (tmp_path / "bin" / name).symlink_to(path)
    done = subprocess.run(
        ["/bin/sh", "-c", "\n".join(lines)],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 70
    assert done.stderr == "no Python 3.11 or newer is here, and none could be installed\n"


def test_the_script_holds_nothing_secret(nowhere: Target) -> None:
    text = "\n".join(machines.commands("bucket", "us-east-1", "m/", "/x"))
    assert "SECRET" not in text.upper()
    assert "BUCKET='bucket'" in text


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_script_is_valid(shell: str) -> None:
    text = "\n".join(machines.commands("bucket", "us-east-1", "m/", "/x"))
    assert subprocess.run([shell, "-n", "-c", text], check=False).returncode == 0
