"""What the policies of targets and runners allow to change: only what is ours, or what is created with our tag."""

from __future__ import annotations

import re

import pytest

from pytest_dsql.aws.policies import CREATING, OURS, Grant
from pytest_dsql.runner.grants import EC2_ACTIONS, LAMBDA_ACTIONS
from pytest_dsql.targets.created import MODULES, module_of

LOOKING = re.compile(r"(Describe|Get|List|DbConnect)")
#: Cancels a command by its id; the Service Authorization Reference knows neither resource nor condition for it.
WITHOUT_RESOURCES = {"ssm:CancelCommand"}
#: What may be changed or used without our tag: it has none, or it may be the user's, and nothing of it is changed.
WITHOUT_TAG = {
    ("ec2:CreateRoute", "route-table"): "the one that a VPC is born with",
    ("ec2:CreateSecurityGroup", "vpc"): "may be the user's",
    ("ec2:RunInstances", "subnet"): "may be the user's",
    ("ec2:RunInstances", "spot-instances-request"): "is not tagged",
}
ALL = {
    **{name: module_of(name).ACTIONS for name in MODULES},
    "ec2": EC2_ACTIONS,
    "lambda": LAMBDA_ACTIONS,
}


def changing(grants: tuple[Grant, ...]) -> list[tuple[str, Grant]]:
    return [(action, one) for one in grants for action in one.actions if not LOOKING.match(action.partition(":")[2])]


@pytest.mark.parametrize("name", ALL)
def test_no_change_is_allowed_on_everything(name: str) -> None:
    found = changing(ALL[name])
    wide = {action for action, one in found if one.resources == ("*",) and not one.when}
    assert wide <= WITHOUT_RESOURCES


@pytest.mark.parametrize("name", ALL)
def test_on_ec2_only_what_has_our_tag_is_changed(name: str) -> None:
    """Ids there say nothing of whose a thing is, so a resource's pattern is no boundary."""
    for action, one in changing(ALL[name]):
        for resource in one.resources if action.startswith("ec2:") else ():
            kind = resource.rpartition(":")[2].partition("/")[0]
            if (action, kind) not in WITHOUT_TAG:
                assert one.when, f"{action} on {resource}"


def test_an_instance_is_started_with_our_tag_our_group_and_amazons_image() -> None:
    by_kind = {
        resource.rpartition(":")[2].removesuffix("/*"): one.when
        for action, one in changing(EC2_ACTIONS)
        if action == "ec2:RunInstances"
        for resource in one.resources
    }
    assert by_kind == {
        "instance": CREATING,
        "volume": CREATING,
        "network-interface": CREATING,
        "security-group": OURS,
        "image": {"StringEquals": {"ec2:Owner": "amazon"}},
        "subnet": {},
        "spot-instances-request": {},
    }


def test_only_groups_of_ours_let_anybody_in() -> None:
    for grants in ALL.values():
        for action, one in changing(grants):
            if action == "ec2:AuthorizeSecurityGroupIngress":
                rule = all(resource.endswith(":security-group-rule/*") for resource in one.resources)
                assert one.when == (CREATING if rule else OURS)
