"""`pytest-dsql verify`, `reap`, `policy` and `doctor`, in an account of moto's."""

from __future__ import annotations

import importlib.metadata
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pytest_dsql.aws.inventory import Inventory, inventories
from pytest_dsql.aws.resources import KINDS
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.cli import main
from pytest_dsql.connect.credentials import forget_credentials
from tests.aws.answers import answer, answering, xml_answer

REGION = "us-east-1"


@pytest.fixture(autouse=True)
def there(account: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    # Looking for every other kind as well takes its time; `test_every_kind_is_looked_for` does.
    monkeypatch.setattr("pytest_dsql.aws.verifying.KINDS", {"dsql-cluster": KINDS["dsql-cluster"]})


def make(run: str, *, expires_in_h: float = 1, region: str = REGION) -> str:
    """Make a cluster with our tags, as a run on another machine would."""
    expires = datetime.now(UTC) + timedelta(hours=expires_in_h)
    made = Clients().call(
        "dsql",
        region,
        "create_cluster",
        deletionProtectionEnabled=False,
        tags={"pytest-dsql:run": run, "pytest-dsql:expires": expires.isoformat(), "Name": f"of-{run}"},
    )
    return str(made["arn"])


def clusters(region: str = REGION) -> list[str]:
    return [one["arn"] for one in Clients().pages("dsql", region, "list_clusters", "clusters")]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(arguments)
    out = capsys.readouterr().out
    assert "123456789012" not in out
    return status, out


def test_nothing_is_left_in_an_empty_account(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "verify") == (0, "remaining: 0\n")
    assert said(capsys, "reap") == (0, "removed: 0\nremaining: 0\n")


def test_every_kind_is_looked_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dsql.aws.verifying.KINDS", KINDS)
    assert said(capsys, "verify") == (0, "remaining: 0\n")


def test_what_is_not_ours_is_neither_seen_nor_touched(capsys: pytest.CaptureFixture[str]) -> None:
    Clients().call("dsql", REGION, "create_cluster", deletionProtectionEnabled=False, tags={"Name": "production"})
    assert said(capsys, "verify") == (0, "remaining: 0\n")
    assert said(capsys, "reap")[0] == 0
    assert len(clusters()) == 1


def test_a_run_whose_inventory_is_lost_is_found_by_its_tags(capsys: pytest.CaptureFixture[str]) -> None:
    make("elsewhere-1")
    status, out = said(capsys, "verify")
    assert status == 1
    assert out == (
        "dsql-cluster of-elsewhere-1 in us-east-1, run elsewhere-1: of a run that was started elsewhere, or whose "
        "inventory is lost\n"
        "what another machine's run has left, once its processes are gone: pytest-dsql reap RUN --lost removes it\n"
        "remaining: 1\n"
    )
    # It may be another machine's that goes on: only an explicit word, or its expiry, removes it.
    assert said(capsys, "reap")[0] == 1
    assert said(capsys, "reap", "elsewhere-1")[0] == 1
    assert len(clusters()) == 1
    status, out = said(capsys, "reap", "elsewhere-1", "--lost")
    assert (status, clusters()) == (0, [])
    assert out.endswith("removed: 1\nremaining: 0\n")


def test_what_has_expired_is_anybodys_to_remove(capsys: pytest.CaptureFixture[str]) -> None:
    make("elsewhere-1", expires_in_h=-1)
    make("elsewhere-2", expires_in_h=1)
    assert "elsewhere-1: its maximum life is over" in said(capsys, "verify")[1]
    status, out = said(capsys, "reap")
    assert status == 1
    assert "removed: 1\n" in out
    assert out.endswith("remaining: 1\n")
    assert len(clusters()) == 1


def test_other_regions_are_looked_through_when_named(capsys: pytest.CaptureFixture[str]) -> None:
    make("elsewhere-1", region="us-east-2")
    assert said(capsys, "verify")[0] == 0
    assert said(capsys, "verify", "--region", "us-east-2")[0] == 1


def test_regions_are_remembered_after_all_of_a_run_was_removed(capsys: pytest.CaptureFixture[str]) -> None:
    inventory = Inventory.create("run-1")
    inventory.removed(inventory.intend("dsql-cluster", "us-east-2", "one"))
    inventory.close()
    assert inventories() == []
    make("elsewhere-1", region="us-east-2")
    assert said(capsys, "verify")[0] == 1


def test_a_running_run_is_in_use_and_not_remaining(capsys: pytest.CaptureFixture[str]) -> None:
    inventory = Inventory.create("run-1", account=Clients().account)
    entry = inventory.intend("dsql-cluster", REGION, "of-run-1")
    inventory.created(entry, make("run-1"))
    status, out = said(capsys, "verify")
    assert status == 0
    assert out.endswith("run run-1: its run goes on\nin use: 1\nremaining: 0\n")
    assert said(capsys, "reap", "run-1", "--lost")[0] == 0
    assert len(clusters()) == 1
    inventory.close()
    assert said(capsys, "verify")[1].endswith("run run-1: left behind\nremaining: 1\n")
    assert said(capsys, "reap")[1].endswith("removed: 1\nremaining: 0\n")
    assert clusters() == []


def test_what_could_not_be_looked_at_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    inventory = Inventory.create("run-1", account=Clients().account)
    inventory.created(inventory.intend("dsql-cluster", REGION, "of-run-1"), make("run-1"))
    inventory.close()
    denial = answer(403, "AccessDeniedException", "not authorized to perform: dsql:GetCluster on arn:aws:x")
    with answering("dsql.GetCluster", lambda: denial):
        status, out = said(capsys, "verify")
    assert status == 1
    assert "could not look at dsql-cluster of-run-1 in us-east-1, run run-1: dsql:GetCluster is not allowed" in out
    assert out.endswith("remaining: 0 at least\n")


def test_a_user_without_credentials_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    forget_credentials()
    status, out = said(capsys, "verify")
    assert status == 1
    assert out.count("no usable AWS credentials") == 1
    assert out.endswith("remaining: 0 at least\n")


def test_a_misspelt_region_is_not_passed_over(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "reap"):
        with pytest.raises(SystemExit) as caught:
            main([command, "--region", "eu-central1"])
        assert caught.value.code == 2
        assert "'eu-central1' is not an AWS Region such as eu-central-1" in capsys.readouterr().err


def test_where_nothing_was_looked_at_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    status, out = said(capsys, "verify")
    assert status == 0
    assert out == (
        "looked nowhere: no run of this user has used a Region, and neither --region nor AWS_REGION names one\n"
        "remaining: 0\n"
    )
    # Who asks for a run by name wants to know about that one.
    status, out = said(capsys, "verify", "run-of-another-machine")
    assert status == 1
    assert out.startswith("could not look at run run-of-another-machine: it has no inventory here; say where")
    assert said(capsys, "verify", "run-of-another-machine", "--region", REGION) == (0, "remaining: 0\n")


def test_the_doctor_says_that_boto3_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name == "boto3":
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    status, out = said(capsys, "doctor")
    assert status == 1
    assert "FAIL  boto3: an AWS account needs an extra that is not installed: pip install 'pytest-dsql[aws]'" in out


def test_an_unreadable_configuration_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[default\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    forget_credentials()
    assert main(["doctor"]) == 1
    out, err = capsys.readouterr()
    assert (out + err).count(
        "no AWS session with the AWS configuration that is there: Unable to parse config file"
    ) == 1


def test_the_region_is_that_of_every_sdk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    make("elsewhere-1", region="us-east-2")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    status, out = said(capsys, "verify")
    assert status == 1
    assert "in us-east-2, run elsewhere-1" in out


@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_a_profile_that_is_not_there_is_told_with_the_commands_own_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = said(capsys, command, "--profile", "nope")
    assert status == 1
    assert "nope" in out
    assert "--dsql-" not in out


def test_what_may_not_be_listed_and_was_never_used_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    denial = answer(403, "AccessDeniedException", "no")
    with answering("dsql.ListClusters", lambda: denial):
        status, out = said(capsys, "verify")
    assert status == 0
    assert out == (
        "could not look in us-east-1 (AccessDeniedException) for what no run here has used: dsql-cluster\n"
        "remaining: 0\n"
    )


def test_lost_needs_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["reap", "--lost"])
    assert caught.value.code == 2
    assert "reap RUN --lost" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["dsql", "dsql-multi-region", "attach"])
def test_a_policy_is_one_that_iam_takes(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out = said(capsys, "policy", target)
    assert status == 0
    made = Clients().call("iam", REGION, "create_policy", PolicyName=target, PolicyDocument=out)  # moto checks the form
    assert made["Policy"]["PolicyName"] == target
    document = json.loads(out)
    for statement in document["Statement"]:
        changing = [one for one in statement["Action"] if one.split(":")[1].startswith(("Delete", "Update"))]
        if changing:
            assert statement["Condition"] == {"StringLike": {"aws:ResourceTag/pytest-dsql:run": "*"}}, changing


def test_a_policy_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for target, words in (("local", "asks nothing of AWS"), ("no.such", "can't import no.such")):
        with pytest.raises(SystemExit):
            main(["policy", target])
        assert words in capsys.readouterr().err


def test_the_doctor_says_what_can_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    status, out = said(capsys, "doctor")
    assert status == 0
    for words in (
        "ok    embedded engine: PostgreSQL 16",
        "ok    AWS credentials: accepted",
        "ok    Aurora DSQL in us-east-1",
    ):
        assert words in out
    expired = xml_answer(403, "ExpiredToken", "expired")
    with answering("sts.GetCallerIdentity", lambda: expired):
        status, out = said(capsys, "doctor", "--region", "eu-west-1")
    assert status == 1
    assert "FAIL  AWS credentials: sts:GetCallerIdentity" in out
