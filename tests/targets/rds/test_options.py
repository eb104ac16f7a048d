"""Options of the targets on RDS: what fits is taken, what doesn't is refused in one line, before anything is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.settings import Settings
from pytest_dsql.targets.created import check_options, module_of
from pytest_dsql.targets.rds.options import RdsOptions, parse

TARGETS = ("rds-multi-az", "aurora-provisioned", "aurora-serverless", "rds-proxy")


def settings(target: str, options: dict[str, str]) -> Settings:
    return Settings(target=target, budget=1.0, region="ap-northeast-2", target_option=options)


def test_without_options_it_is_the_published_experiment() -> None:
    chosen = parse("rds-multi-az", {})
    assert (chosen.instance_class, chosen.storage_gib, chosen.storage_type) == ("db.r6g.xlarge", 400, "gp3")
    assert (chosen.least_acu, chosen.most_acu) == (4, 32)
    assert (chosen.auth, chosen.version, chosen.is_public, chosen.creates_network) == ("password", None, True, True)


def test_every_option_is_read(tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.touch()
    chosen = parse(
        "rds-multi-az",
        {
            "class": "db.m7g.2xlarge",
            "storage": "1000",
            "storage-type": "io2",
            "iops": "20000",
            "throughput": "1000",
            "version": "16.4",
            "auth": "iam",
            "sslrootcert": str(root),
            "generator": "203.0.113.7, 10.1.0.0/16",
            "parameters": "random_page_cost:1.1, rds.force_ssl:1",
            "zones": "us-east-1b,us-east-1a",
            "hostaddr": "::1",
            "life": "3",
        },
    )
    assert chosen == RdsOptions(
        instance_class="db.m7g.2xlarge",
        storage_gib=1000,
        storage_type="io2",
        iops=20000,
        throughput=1000,
        version="16.4",
        auth="iam",
        root=root,
        generator=("203.0.113.7/32", "10.1.0.0/16"),
        parameters={"random_page_cost": "1.1", "rds.force_ssl": "1"},
        zones=("us-east-1b", "us-east-1a"),
        hostaddr="::1",
    )


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("rds-multi-az", {"class": "r6g.xlarge"}, "class: expected an instance class like db.r6g.xlarge"),
        ("rds-multi-az", {"storage": "4 GB"}, "storage: expected a whole number of GiB"),
        ("rds-multi-az", {"storage-type": "ssd"}, "storage-type: expected one of gp3"),
        ("rds-multi-az", {"iops": "1e4"}, "iops: expected a whole number"),
        ("rds-multi-az", {"version": "17.1"}, "version: expected a minor version of PostgreSQL 16"),
        ("rds-multi-az", {"auth": "none"}, "auth: expected one of password, iam"),
        ("rds-multi-az", {"sslrootcert": "/nowhere.pem"}, "sslrootcert: expected a file"),
        ("rds-multi-az", {"zones": "us-east-1a"}, "zones: expected Availability Zones, at least 2"),
        ("rds-multi-az", {"subnets": "subnet-1"}, "subnets: expected ids of subnets in different zones, at least 2"),
        ("rds-multi-az", {"generator": "0.0.0.0/0"}, "not the whole internet's"),
        ("rds-multi-az", {"generator": "my-laptop"}, "generator: expected IPv4 addresses"),
        ("rds-multi-az", {"generator": "10.0.0.1/16"}, "generator: expected IPv4 addresses"),
        ("rds-multi-az", {"public": "true"}, "public: expected yes or no"),
        ("rds-multi-az", {"public": "no"}, "nobody reaches a database in a VPC that was created for it"),
        ("rds-multi-az", {"parameters": "work_mem=1"}, "parameters: expected settings"),
        ("rds-multi-az", {"parameters": "work_mem:1", "parameter-group": "g"}, "it excludes parameters"),
        ("rds-multi-az", {"security-group": "sg-1"}, "name the subnets there, too"),
        ("rds-multi-az", {"subnets": "subnet-1,subnet-2", "subnet-group": "g"}, "not both"),
        ("rds-multi-az", {"subnets": "subnet-1,subnet-2", "zones": "us-east-1a,us-east-1b"}, "are in zones already"),
        ("rds-multi-az", {"port": "0"}, "port: expected a whole number"),
        ("rds-multi-az", {"port": "15432", "auth": "iam"}, "own port alone"),
        ("rds-multi-az", {"hostaddr": "localhost"}, "hostaddr: expected a numeric address"),
        ("aurora-provisioned", {"cluster-storage": "gp3"}, "cluster-storage: expected one of aurora, aurora-iopt1"),
        ("aurora-serverless", {"min-acu": "0"}, "min-acu: expected ACU from 0.5"),
        ("aurora-serverless", {"min-acu": "64"}, "64 is more than max-acu"),
        ("rds-proxy", {}, "a proxy has no public address"),
        ("rds-proxy", {"before": "dsql"}, "before: expected one of rds-multi-az"),
        (
            "rds-proxy",
            {"subnets": "subnet-1,subnet-2", "min-acu": "8"},
            "min-acu: means nothing before=rds-multi-az",
        ),
    ],
)
def test_what_does_not_fit_is_refused(target: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        module_of(target).check(settings(target, options))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("target", TARGETS)
def test_an_option_of_another_target_is_refused(target: str) -> None:
    with pytest.raises(UsageError, match="witness: no such option"):
        check_options(settings(target, {"witness": "us-west-2"}))


def test_a_region_whose_root_is_not_known_needs_one() -> None:
    unknown = Settings(target="rds-multi-az", budget=1.0, region="mx-central-1")
    with pytest.raises(UsageError, match="sslrootcert=FILE"):
        module_of("rds-multi-az").check(unknown)


@pytest.mark.parametrize("target", TARGETS)
def test_every_option_has_a_line_of_help_and_a_reader(target: str) -> None:
    from pytest_dsql.targets.rds.options import _READERS

    for key, line in module_of(target).OPTIONS.items():
        assert line
        assert key in _READERS
