"""PostgreSQL's settings for a database: a parameter group, made only where settings are asked for.

Source: RDS user guide, "Parameter groups for Amazon RDS": a group that is named when a server is created holds from its
first start, its static settings too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dsql.aws.creating import Made
from pytest_dsql.errors import UsageError
from pytest_dsql.targets.rds.offers import MAJOR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dsql.aws.inventory import Entry
    from pytest_dsql.aws.run import AwsRun

#: How many settings one call takes (API reference, ModifyDBParameterGroup).
_AT_ONCE: Final = 20
_STEP_S: Final = 120.0


def parameter_group(run: AwsRun, engine: str, parameters: Mapping[str, str], *, cluster: bool) -> str | None:
    """Make a parameter group with these settings and return its name; None when there are none.

    Raises UsageError for a setting that the engine doesn't know, AwsError.
    """
    if not parameters:
        return None
    kind = "cluster_parameter_group" if cluster else "parameter_group"
    key = "DBClusterParameterGroup" if cluster else "DBParameterGroup"
    name = run.name(run.owner)

    def call(_entry: Entry) -> Made:
        answer = run.clients.call(
            "rds",
            run.region,
            f"create_db_{kind}",
            **{f"{key}Name": name},
            DBParameterGroupFamily=f"{engine}{MAJOR}",
            Description="Settings of a database of pytest-dsql",
            Tags=run.tag_list(),
        )
        return Made(answer[key][f"{key}Arn"])

    run.create(f"db-{kind.replace('_', '-')}", name, call)
    settings = [
        # Static settings accept no other method; in a group that no server uses yet it makes no difference.
        {"ParameterName": parameter, "ParameterValue": value, "ApplyMethod": "pending-reboot"}
        for parameter, value in parameters.items()
    ]

    def modify(some: list[dict[str, str]]) -> bool:
        run.clients.call("rds", run.region, f"modify_db_{kind}", **{f"{key}Name": name}, Parameters=some)
        return True

    for start in range(0, len(settings), _AT_ONCE):
        run.wait(
            lambda start=start: modify(settings[start : start + _AT_ONCE]),  # type: ignore[misc]
            what="writing PostgreSQL's settings",
            limit_s=_STEP_S,
        )
    return name


def check_parameter_group(run: AwsRun, name: str, *, cluster: bool) -> None:
    """See that an existing group is there. Raises UsageError."""
    from pytest_dsql.aws.kinds.rds import DbClusterParameterGroup, DbParameterGroup

    if not (DbClusterParameterGroup if cluster else DbParameterGroup).exists(run.clients, run.region, name):
        which = "cluster parameter group" if cluster else "parameter group"
        raise UsageError(f"--dsql-target-option parameter-group: {run.region} has no {which} {name}")
