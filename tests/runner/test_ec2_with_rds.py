"""A whole run in one command: a database of RDS is made, the session runs on an instance beside it, all is removed.

The account is moto in another process, the database a PostgreSQL with a password and TLS, the instance a process here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsql.results.reader import read_results
from tests.aws.conftest import KEYS, moto_server
from tests.plain_postgres import tls_installation
from tests.runner.agent_here import DIRECTORY
from tests.targets.rds import stand_ins
from tests.targets.rds.account import contents

ROOT = Path(__file__).parents[2]
ACCOUNT = "123456789012"

BENCHMARK = """
from pathlib import Path

from pytest_dsql import Slo

def test_orders(dsql_load, dsql_orders):
    Path("it-ran-here").touch()
    dsql_load.closed(dsql_orders.mix, connections=2, warmup=0.1, duration=2.0).assert_meets(Slo(min_tps=1))
"""


@pytest.mark.parametrize("auth", ["password"])
def test_a_session_on_an_instance_beside_a_database_of_rds(
    auth: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tls_installation() is None:
        pytest.skip("needs a PostgreSQL with TLS on this machine")
    project = tmp_path / "project"
    project.mkdir()
    (project / "test_orders.py").write_text(BENCHMARK)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DSQL_", "PG"))}
    monkeypatch.setenv("MOTO_IAM_LOAD_MANAGED_POLICIES", "true")
    with stand_ins.database_of_moto() as postgres, moto_server(tmp_path) as address:
        environment = own | KEYS
        environment |= {
            "AWS_ENDPOINT_URL": address,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            stand_ins.ADDRESS: f"{postgres.host}:{postgres.port}",
            DIRECTORY: str(tmp_path / "machines"),
        }
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.targets.rds.stand_ins"),
                *("-p", "tests.runner.agent_here", "--dsql-target=rds-multi-az", "--dsql-budget=20"),
                *("--dsql-runner=ec2", "--dsql-runner-option=restarts=0", "--dsql-scale=tiny", "--dsql-workers=1"),
                "--dsql-target-option=generator=203.0.113.7",
                f"--dsql-target-option=sslrootcert={postgres.sslrootcert}",
                f"--dsql-target-option=auth={auth}",
                "test_orders.py",
            ],
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        shown = done.stdout + done.stderr
        assert done.returncode == 0, shown
        for name, value in environment.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        assert contents() == {}
    assert "1 passed" in done.stdout
    assert "dsql: removed all of runner-ec2: 6, remaining: 0" in done.stdout
    assert "dsql: removed all of rds-multi-az: 7, remaining: 0" in done.stdout
    assert (tmp_path / "machines" / "machine-1" / "tests" / "it-ran-here").exists()
    assert not (project / "it-ran-here").exists()
    results = read_results(project / ".dsql" / "latest")
    [target], [cell] = results["targets"], results["cells"]
    assert (target["name"], target["dialect"], target["region"]) == ("rds-multi-az", "postgresql", "us-east-1")
    assert target["creation_s"] > 0
    assert cell["verdict"]["outcome"] == "pass"
    assert cell["cost"]["usd"] > 0
    assert target["cost_usd"] > 0
    assert target["runner_usd"] > 0
    assert (target["runner_source"], target["budget_usd"]) == ("time", 20.0)
    assert list((tmp_path / "state" / "pytest-dsql" / "runs").iterdir()) == []
    written = "".join(
        path.read_text(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file() and path.name != "moto.log" and path.suffix != ".py"
    )
    for secret in (stand_ins.MOTO_PASSWORD, ACCOUNT, KEYS["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in shown + written + json.dumps(results)
