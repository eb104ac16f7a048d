"""The function against the engine: as an ordinary function, and as the zip with nothing else than Lambda has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from array import array
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import distribution
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.cost.books import AwsBooks, Budget
from pytest_dsql.cost.engine import EngineBooks
from pytest_dsql.cost.functions import Work
from pytest_dsql.cost.meters import AwsMeter
from pytest_dsql.cost.prices import Prices
from pytest_dsql.cost.shape import CostShape
from pytest_dsql.errors import BudgetReached
from pytest_dsql.local.client import Engine
from pytest_dsql.runner import package
from pytest_dsql.runner.function import VARIABLE, described, handler, packed, unpacked
from pytest_dsql.runner.functions import Functions, Here
from pytest_dsql.targets.target import Target
from pytest_dsql.workloads.inserts.workload import Inserts

#: What Lambda's Python runtimes bring besides Python: boto3 and what it needs (Lambda developer guide, "Building Lambda
#: functions with Python").
RUNTIME = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "six", "urllib3")


@pytest.fixture
def inserts(target: Target) -> Inserts:
    inserts = Inserts()
    inserts.load(target.connect, dialect="dsql")
    return inserts


@pytest.fixture
def functions(target: Target, inserts: Inserts) -> Iterator[Functions]:
    here = Here({str(target.endpoint.region): target.endpoint})
    yield Functions(here, inserts, target.connect, seed=1, test="test")
    here.close()


def libraries_of_this_machine() -> Iterator[tuple[str, bytes]]:
    """The psycopg that is installed, in place of the one for Lambda's processor."""
    for name in ("psycopg", "psycopg-binary", "typing-extensions"):
        installed = distribution(name)
        for one in installed.files or ():
            path = Path(str(installed.locate_file(one)))
            if ".." not in one.parts and "__pycache__" not in one.parts and path.is_file():
                yield one.as_posix(), path.read_bytes()


def test_calls_are_admitted_counted_and_paid_for(functions: Functions, engine: Engine) -> None:
    counted: list[Work] = []
    books = EngineBooks(engine.dpu, "us-east-1", Prices())
    paid = replace(functions, books=books, count=counted.append)
    called = paid.call("insert", calls=2, concurrency=1, times=3, keep=False)
    [work] = counted
    assert (work.calls, work.starts) == (2, 1)
    assert work.busy_s > 0
    assert called.cost is not None
    assert called.cost.dpu is not None
    assert called.figures()["dpu"] == round(called.cost.dpu, 3) > 0

    budget = Budget(1.0)
    budget.count(lambda: 0.95)
    exhausted = AwsBooks(AwsMeter(CostShape("attach"), Prices(), None, began_s=0.0), Prices(), budget)
    with pytest.raises(BudgetReached, match="test was not started"):
        replace(functions, books=exhausted).call("insert", calls=1, concurrency=1, keep=False)


@pytest.mark.parametrize("operation", ["insert", "read"])
@pytest.mark.parametrize("keep", [True, False])
def test_calls_do_what_they_are_asked(functions: Functions, operation: Any, keep: bool) -> None:
    called = functions.call(operation, calls=3, concurrency=1, times=4, keep=keep)
    assert (called.calls, called.operations, called.committed, called.failed) == (3, 12, 12, {})
    assert called.connected == (1 if keep else 12)
    assert called.cold == 1, "one at a time needs one function"
    assert not any(called.violations.values())
    assert called.latency.n == 12
    assert called.latency.p50_ms > 0
    assert called.rate_per_s > 0


def test_many_functions_at_once(functions: Functions, target: Target) -> None:
    with target.connect() as connection:
        before = connection.execute("SELECT count(*) FROM pytest_dsql_inserts.rows").fetchone()
        called = functions.call("insert", calls=8, concurrency=4, times=25, keep=True)
        after = connection.execute("SELECT count(*) FROM pytest_dsql_inserts.rows").fetchone()
    assert before
    assert after
    assert after[0] - before[0] == called.committed == 200
    assert called.connected <= 4


def test_what_the_database_refuses_is_counted(functions: Functions, target: Target) -> None:
    with target.connect() as connection:
        connection.execute("ALTER TABLE pytest_dsql_inserts.rows RENAME TO hidden")
        try:
            fleet = functions.fleet
            event = {
                "operation": "read",
                "times": 2,
                "keep": True,
                "run": {"number": 1, "prefix": "x", "slots": 1},
                "slot": 0,
                "seed": 1,
            }
            [answer] = fleet.call([event], concurrency=1)
        finally:
            connection.execute("ALTER TABLE pytest_dsql_inserts.hidden RENAME TO rows")
    assert answer["failed"] == {"42P01": 2}
    assert answer["committed"] == 0


def test_durations_are_packed_small() -> None:
    durations = array("I", (8_000 + (index * 7_919) % 3_000 for index in range(1_000)))
    assert unpacked(packed(durations)) == durations
    assert len(packed(durations)) < 3_000


def test_the_handler_is_told_by_its_environment(
    target: Target, inserts: Inserts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_dsql.runner import function

    monkeypatch.setenv(VARIABLE, described({"us-east-1": target.endpoint}))
    monkeypatch.setattr(function, "_function", None)
    event = {"operation": "read", "times": 1, "keep": True, "run": {"number": 1, "prefix": "x", "slots": 1}}
    answers = [handler({**event, "slot": 0, "seed": 1}) for _ in range(2)]
    assert [(one["committed"], one["connected"], one["cold"]) for one in answers] == [(1, 1, True), (1, 0, False)]
    with pytest.raises(ValueError, match="no operation is called 'drop'"):
        handler({**event, "operation": "drop"})
    assert function._function is not None
    function._function.close()  # type: ignore[attr-defined]


def test_the_environment_holds_no_secret(target: Target, engine: Engine) -> None:
    assert engine.credentials.secret_access_key not in described({"us-east-1": target.endpoint})


def test_the_zip_runs_with_nothing_else_than_lambda_has(target: Target, inserts: Inserts, tmp_path: Path) -> None:
    content = package.build_package(libraries_of_this_machine)
    zipfile.ZipFile(BytesIO(content)).extractall(tmp_path / "task")
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    for name in RUNTIME:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        origin = Path(spec.origin)
        real = origin.parent if origin.name == "__init__.py" else origin
        (runtime / real.name).symlink_to(real)
    program = (
        "import json, sys; sys.path[:0] = sys.argv[1:3]; from pytest_dsql.runner.function import handler;"
        "event = json.loads(sys.argv[3]); print(json.dumps([handler(event), handler(event)]));"
        "print(sorted({'pytest', '_pytest', 'hdrh', 'cloudpickle'} & set(sys.modules)))"
    )
    event = {"operation": "insert", "times": 2, "keep": True, "run": {"number": 9, "prefix": "zip-", "slots": 1}}
    keys = {name: os.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            program,
            tmp_path / "task",
            runtime,
            json.dumps({**event, "slot": 0, "seed": 1}),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**keys, "AWS_REGION": "us-east-1", VARIABLE: described({"us-east-1": target.endpoint})},
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answers, others = done.stdout.splitlines()
    assert [(one["committed"], one["failed"]) for one in json.loads(answers)] == [(2, {}), (2, {})]
    assert others == "[]"


def test_the_light_part_is_light() -> None:
    content = package.build_package(lambda: ())
    names = zipfile.ZipFile(BytesIO(content)).namelist()
    assert len(content) < 150_000
    assert not any("/local/" in name or "/runner/ec2" in name or "__pycache__" in name for name in names)


def test_too_large_a_zip_is_one_line() -> None:
    with pytest.raises(Exception, match="and Lambda takes 50,000,000"):
        package.build_package(lambda: [("big", os.urandom(50_000_001))])
