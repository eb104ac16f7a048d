"""What is sent to another machine: the package as a wheel, the tests, the job; and what is said of the machines."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_dsql.connect.endpoint import Endpoint, IamAuth, PasswordAuth
from pytest_dsql.errors import UsageError
from pytest_dsql.runner.bundle import bundle
from pytest_dsql.runner.grants import EC2_ACTIONS, LAMBDA_ACTIONS, machine_statements, policy_of
from pytest_dsql.runner.job import Job, job_of, target_of
from pytest_dsql.runner.options import Ec2Options
from pytest_dsql.runner.wheel import build_wheel
from pytest_dsql.settings import Settings
from pytest_dsql.targets.target import Target


def test_the_wheel_is_whole(tmp_path: Path) -> None:
    path = build_wheel(tmp_path)
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        [record] = [one for one in names if one.endswith(".dist-info/RECORD")]
        listed = [one.split(",") for one in wheel.read(record).decode().splitlines()]
        assert [one[0] for one in listed] == names
        for name, digest, size in listed[:-1]:
            content = wheel.read(name)
            assert int(size) == len(content)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert digest == f"sha256={expected}"
    for wanted in ("plugin.py", "py.typed", "benchmarks/test_e002_closed_loop.py", "runner/bootstrap.sh"):
        assert f"pytest_dsql/{wanted}" in names
    assert not any("__pycache__" in one for one in names)


def test_pip_installs_the_wheel_with_its_entry_points(tmp_path: Path) -> None:
    path = build_wheel(tmp_path)
    command = [*(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target")]
    subprocess.run([*command, str(tmp_path / "x"), str(path)], check=True, timeout=300, capture_output=True)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from importlib.metadata import distribution as d;"
        "import pytest_dsql; print(pytest_dsql.__file__, [one.value for one in d('pytest-dsql').entry_points])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "x")], capture_output=True, text=True, check=True
    )
    assert str(tmp_path) in done.stdout
    assert "pytest_dsql.plugin" in done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in (
        "pytest.ini",
        "conftest.py",
        "README.md",
        "tests/conftest.py",
        "tests/__init__.py",
        "tests/shop/test_shop.py",
        "tests/shop/data.csv",
        "tests/shop/__pycache__/x.pyc",
        "tests/shop/.secret",
        "tests/other/test_other.py",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_the_arguments_files_are_sent_with_what_configures_them(project: Path, tmp_path: Path) -> None:
    sent = bundle(
        ["-q", "shop/test_shop.py::test_it[a/b]", "-m", "dsql"],
        root=project,
        directory=project / "tests",
        into=tmp_path,
    )
    assert sent.arguments == ("-q", "shop/test_shop.py::test_it[a/b]", "-m", "dsql")
    assert sent.directory == "tests"
    with tarfile.open(sent.path) as packed:
        assert sorted(packed.getnames()) == [
            "conftest.py",
            "pytest.ini",
            "tests/__init__.py",
            "tests/conftest.py",
            "tests/shop/test_shop.py",
        ]


def test_a_folder_is_sent_without_what_is_hidden(project: Path, tmp_path: Path) -> None:
    sent = bundle([str(project / "tests/shop")], root=project, directory=project, into=tmp_path)
    assert sent.arguments == ("tests/shop",)
    with tarfile.open(sent.path) as packed:
        names = packed.getnames()
    assert "tests/shop/data.csv" in names
    assert not any("secret" in one or "pyc" in one or "other" in one for one in names)


def test_what_pytest_finds_without_being_told_is_sent(project: Path, tmp_path: Path) -> None:
    sent = bundle(
        ["-m", "dsql"], collected=[str(project / "tests/shop")], root=project, directory=project, into=tmp_path
    )
    assert sent.arguments == ("-m", "dsql")
    with tarfile.open(sent.path) as packed:
        names = packed.getnames()
    assert "tests/shop/test_shop.py" in names
    assert not any("other" in one for one in names)


def test_tests_that_lie_elsewhere_are_refused(project: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").touch()
    with pytest.raises(UsageError, match=r"elsewhere\.py is not there"):
        bundle(["../elsewhere.py"], root=project, directory=project, into=tmp_path)


def test_too_much_is_refused(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsql.runner.bundle.MOST_BYTES", 20)
    with pytest.raises(UsageError, match="more than 20 bytes"):
        bundle(["tests"], root=project, directory=project, into=tmp_path)


SETTINGS = Settings(
    target="dsql", plan="full", seed=7, budget=5.0, profile="mine", runner="ec2", target_option={"life": "3"}
)


def job(target: Target, secret: str | None = None) -> Job:
    return job_of(SETTINGS, target, run="run-1", arguments=("x",), directory=".", secret=secret, resume=False)


def test_a_job_says_how_and_on_what(nowhere: Target, tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.write_text("PEM")
    endpoint = replace(nowhere.endpoint, sslrootcert=str(root))
    sent = Job.of_json(job(replace(nowhere, endpoint=endpoint, regions={"us-east-1": nowhere.endpoint})).to_json())
    settings = sent.adjusted(Settings())
    assert (settings.plan, settings.seed, settings.target, settings.runner) == ("full", 7, "dsql", "here")
    assert settings.profile is None
    assert settings.resume is None
    assert replace(sent, resume=True).adjusted(Settings()).resume == "run-1"
    (tmp_path / "there").mkdir()
    made = target_of(sent, folder=tmp_path / "there", password=None)
    assert made.endpoint.sslrootcert == str(tmp_path / "there" / "root.pem")
    assert (tmp_path / "there" / "root.pem").read_text() == "PEM"
    assert replace(made.endpoint, sslrootcert=None) == nowhere.endpoint
    assert made.regions == {"us-east-1": nowhere.endpoint}


def test_a_password_is_read_there(nowhere: Target, tmp_path: Path) -> None:
    endpoint = Endpoint(
        "db.example", hostaddr="127.0.0.1", region="eu-west-1", auth=PasswordAuth("geheim"), dialect="postgresql"
    )
    sent = job(replace(nowhere, endpoint=endpoint), secret="rds!db-1")
    assert "geheim" not in sent.to_json()
    asked: list[tuple[str, str]] = []

    def password(secret: str, region: str) -> str:
        asked.append((secret, region))
        return "geheim"

    assert target_of(sent, folder=tmp_path, password=password).endpoint == endpoint
    assert asked == [("rds!db-1", "eu-west-1")]
    with pytest.raises(UsageError, match="sends no password"):
        job(replace(nowhere, endpoint=endpoint))


def test_a_job_holds_no_keys(nowhere: Target) -> None:
    auth = IamAuth(access_key_id="AKIAX", secret_access_key="geheim")
    assert "geheim" not in job(replace(nowhere, endpoint=replace(nowhere.endpoint, auth=auth))).to_json()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": "big"}, "size: --dsql-runner ec2 has type, market"),
        ({"type": "big"}, "'big' is no EC2 instance type"),
        ({"market": "cheap"}, "spot or on-demand, not 'cheap'"),
        ({"subnet": "mine"}, "'mine' is no id of a subnet"),
        ({"restarts": "-1"}, "a whole number up to 99"),
    ],
)
def test_a_wrong_option_is_one_line(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Ec2Options.of(given, plan="quick")


def test_options_have_defaults() -> None:
    assert Ec2Options.of({}, plan="full") == Ec2Options("c7i.4xlarge")
    assert Ec2Options.of({"market": "on-demand"}, plan="quick") == Ec2Options("c7i.xlarge", "on-demand")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"runner": "moon"}, "'moon' is not one of here, ec2, lambda"),
        ({"runner": "ec2"}, "--dsql-runner ec2 makes the load in AWS, where the embedded engine can't be reached"),
        ({"runner": "lambda"}, "--dsql-runner lambda makes the load in AWS"),
        ({"runner": "ec2", "dsn": "postgresql://me:geheim@db.example/x"}, "sends no password of a DSN"),
        ({"runner": "ec2", "target": "dsql,dsql-multi-region", "budget": "1"}, "measures one target in a run"),
        ({"runner": "ec2", "endpoint": "x" * 26}, "--dsql-runner ec2 starts what costs money: .* --dsql-budget USD"),
        ({"runner": "lambda", "endpoint": "x" * 26}, "--dsql-runner lambda starts what costs money"),
        ({"runner_option": ["type=x"]}, "--dsql-runner-option goes with --dsql-runner"),
    ],
)
def test_a_runner_that_can_t_be_is_a_usage_error(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Settings.resolve(command_line=arguments, environment={}, ini={}, check_set=lambda _set: None)
    assert "geheim" not in str(caught.value)


def test_a_machine_may_log_in_to_the_target_and_no_more(nowhere: Target) -> None:
    statements = machine_statements(
        bucket="b", endpoints=[nowhere.endpoint], secret="rds!x", account="1", partition="aws"
    )
    allowed = {action: one["Resource"] for one in statements for action in one["Action"]}
    assert allowed == {
        "s3:GetObject": ["arn:aws:s3:::b/*"],
        "s3:PutObject": ["arn:aws:s3:::b/*"],
        "s3:ListBucket": ["arn:aws:s3:::b"],
        "cloudwatch:GetMetricData": ["*"],
        "pricing:GetProducts": ["*"],
        "dsql:DbConnectAdmin": ["arn:aws:dsql:us-east-1:1:cluster/abcdefghijklmnopqrstuvwxyz"],
        "secretsmanager:GetSecretValue": ["arn:aws:secretsmanager:us-east-1:1:secret:rds!x-*"],
    }


@pytest.mark.parametrize("runner", ["ec2", "lambda"])
def test_the_policy_of_a_runner_is_one_document(runner: str) -> None:
    document = json.loads(policy_of(runner))
    assert document["Version"] == "2012-10-17"
    assert all(one["Effect"] == "Allow" and "*" not in one["Action"] for one in document["Statement"])
    # What has a boundary by name has one: a wildcard is for what can't have any.
    assert len(EC2_ACTIONS if runner == "ec2" else LAMBDA_ACTIONS) >= len(document["Statement"])
