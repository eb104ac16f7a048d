"""What `--dsql-runner-option` may say of the machines that make the load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, final

from pytest_dsql.errors import UsageError

#: key -> what it means.
OPTIONS: Final[Mapping[str, str]] = {
    "type": "EC2 instance type (c7i.4xlarge, 16 vCPU as in the published experiment; c7i.xlarge with the quick plan)",
    "market": "spot (default) or on-demand",
    "subnet": "id of a subnet with a way to S3, SSM and a package index (the target's, else a default one)",
    "restarts": "how many times another instance goes on when one is taken away (5)",
    "life": "hours after which the machine ends itself and anybody's reap removes it (12)",
}
_TYPE: Final = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
_SUBNET: Final = re.compile(r"subnet-[0-9a-f]{8,17}")
#: Cores as in the published experiment, and a machine that fits seconds-long cells.
_TYPES: Final[Mapping[str, str]] = {"full": "c7i.4xlarge", "quick": "c7i.xlarge"}


@final
@dataclass(frozen=True, slots=True)
class Ec2Options:
    """How the instances are to be."""

    type: str
    market: Literal["spot", "on-demand"] = "spot"
    subnet: str | None = None
    restarts: int = 5

    @classmethod
    def of(cls, given: Mapping[str, str], *, plan: str) -> Ec2Options:
        """Read `--dsql-runner-option`. Raises UsageError, one line that names the key."""
        for key in given:
            if key not in OPTIONS:
                raise UsageError(f"--dsql-runner-option {key}: --dsql-runner ec2 has {', '.join(OPTIONS)}")
        kind = given.get("type", _TYPES[plan])
        if not _TYPE.fullmatch(kind):
            raise UsageError(f"--dsql-runner-option type: {kind!r} is no EC2 instance type such as c7i.4xlarge")
        market = given.get("market", "spot")
        if market not in ("spot", "on-demand"):
            raise UsageError(f"--dsql-runner-option market: spot or on-demand, not {market!r}")
        subnet = given.get("subnet")
        if subnet is not None and not _SUBNET.fullmatch(subnet):
            raise UsageError(f"--dsql-runner-option subnet: {subnet!r} is no id of a subnet")
        restarts = given.get("restarts", "5")
        if not re.fullmatch(r"[0-9]{1,2}", restarts):
            raise UsageError(f"--dsql-runner-option restarts: a whole number up to 99, not {restarts!r}")
        return cls(kind, "spot" if market == "spot" else "on-demand", subnet, int(restarts))
