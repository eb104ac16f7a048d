"""A whole run as a new user would do it: one command creates, measures and removes. The account is another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aws.conftest import KEYS, moto_server
from tests.plain_postgres import PlainPostgres
from tests.targets.rds import stand_ins
from tests.targets.rds.account import contents
from tests.targets.rds.conftest import GENERATOR

ROOT = Path(__file__).parents[3]

BENCHMARK = """
from pytest_dsql import Slo

def test_orders(dsql_load, dsql_orders):
    dsql_load.closed(dsql_orders.mix, connections=2, warmup=0.1, duration=2.0).assert_meets(Slo(min_tps=1))
"""


def test_one_command_creates_two_databases_measures_the_same_on_both_and_removes_them(
    postgres: PlainPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test_orders.py").write_text(BENCHMARK)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DSQL_", "PG"))}
    with moto_server(tmp_path) as address:
        environment = (
            own
            | KEYS
            | {
                "AWS_ENDPOINT_URL": address,
                "XDG_STATE_HOME": str(tmp_path / "state"),
                "HOME": str(tmp_path),
                "PYTHONPATH": str(ROOT),
                stand_ins.ADDRESS: f"{postgres.host}:{postgres.port}",
            }
        )
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.targets.rds.stand_ins"),
                *(
                    "--dsql-target=rds-multi-az,aurora-serverless",
                    "--dsql-budget=20",
                    "--dsql-scale=tiny",
                    "--dsql-workers=1",
                ),
                f"--dsql-target-option=generator={GENERATOR}",
                f"--dsql-target-option=sslrootcert={postgres.sslrootcert}",
            ],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        shown = done.stdout + done.stderr
        assert done.returncode == 0, shown
        assert "2 passed" in done.stdout
        for name, value in environment.items():
            if name.startswith("AWS_"):
                monkeypatch.setenv(name, value)
        assert contents() == {}
    text = (tmp_path / ".dsql" / "latest" / "results.json").read_text()
    results = json.loads(text)
    classes = {"rds-multi-az": "db.r6g.xlarge", "aurora-serverless": "db.serverless"}
    assert [one["name"] for one in results["targets"]] == list(classes)
    for target in results["targets"]:
        assert (target["dialect"], target["region"], target["engine_version"]) == ("postgresql", "us-east-1", "16.10")
        assert target["instance_class"] == classes[target["name"]]
        assert target["creation_s"] > 0
        assert target["cost_usd"] > 0
        assert f"removed all of {target['name']}: " in done.stdout
    cells = [(one["target"], one["verdict"]["outcome"]) for one in results["cells"]]
    assert cells == [("rds-multi-az", "pass"), ("aurora-serverless", "pass")]
    for secret in (stand_ins.MOTO_PASSWORD, "123456789012", KEYS["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in shown + text
    assert list((tmp_path / "state" / "pytest-dsql" / "runs").iterdir()) == []
