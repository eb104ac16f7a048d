"""Least-privilege policies, made of what the targets and runners say they call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from pytest_dsql.aws.resources import RUN_TAG

#: Conditions (IAM user guide, "Controlling access to AWS resources using tags"): what is created must carry our tag,
#: and what is changed or removed must have it.
CREATING: Final[Mapping[str, Mapping[str, str]]] = {"StringLike": {f"aws:RequestTag/{RUN_TAG}": "*"}}
OURS: Final[Mapping[str, Mapping[str, str]]] = {"StringLike": {f"aws:ResourceTag/{RUN_TAG}": "*"}}


@final
@dataclass(frozen=True, slots=True)
class Grant:
    """Actions (`dsql:CreateCluster`) on resources (ARN patterns), under a condition. Data of a module's `ACTIONS`."""

    actions: tuple[str, ...]
    resources: tuple[str, ...] = ("*",)
    when: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def policy(grants: Iterable[Grant]) -> dict[str, Any]:
    """Return an IAM policy document that allows what the grants name, each statement once."""
    statements: dict[str, dict[str, Any]] = {}
    for grant in grants:
        scope = {"Resource": sorted(grant.resources), **({"Condition": dict(grant.when)} if grant.when else {})}
        statement = statements.setdefault(json.dumps(scope, sort_keys=True), {"actions": set(), **scope})
        statement["actions"].update(grant.actions)
    return {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": sorted(one.pop("actions")), **one} for one in statements.values()],
    }


def actions(grants: Iterable[Grant]) -> set[str]:
    """Return the names of all actions that the grants allow."""
    return {action for grant in grants for action in grant.actions}
