"""What RDS and Aurora are made of. Source: botocore's `rds` model (2014-10-31).

RDS has no client tokens, but names are unique in an account and Region, so what was made when an answer was lost is
found by its name. A name alone proves nothing: without our tag of the entry's run it is somebody else's.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, final

from pytest_dsql.aws.failures import AwsError, Failure, not_found_is_fine
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients

#: What all our names in RDS begin with.
PREFIX: Final = "pytest-dsql-"


class _OfRds:
    """What RDS's kinds have in common: they are described by name, and deleted by name.

    RDS's own names all follow from the kind (`db-proxy`: `describe_db_proxies`) and from the noun (`DBProxy`:
    `DBProxyName`, `DBProxyArn`).
    """

    kind: ClassVar[str]
    rank: ClassVar[int]
    #: In CamelCase, as one and as several; what ends the name of the name, and which attribute tells the status.
    _noun: ClassVar[str]
    _nouns: ClassVar[str]
    _named: ClassVar[str] = "Name"
    _status: ClassVar[str | None] = None
    #: The operation that describes them and the key of its items; the operation that deletes one; the name of the name
    #: (as parameter and in an item), and the key of the ARN.
    _describe: ClassVar[tuple[str, str]]
    _delete: ClassVar[str]
    _name: ClassVar[str]
    _arn: ClassVar[str]

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        if "kind" not in vars(cls):
            return  # not one of RDS's kinds itself
        one = cls.kind.replace("-", "_")
        several = f"{one}s" if cls._nouns == f"{cls._noun}s" else f"{one[:-1]}ies"
        cls._describe = (f"describe_{several}", cls._nouns)
        cls._delete = f"delete_{one}"
        cls._name = f"{cls._noun}{cls._named}"
        cls._arn = f"{cls._noun}Arn"

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, when it has our tag."""
        one = described(clients, entry.region, self._describe, self._name, entry.name)
        if one is None or self._tags(clients, entry.region, one).get(RUN_TAG) != entry.run:
            return None
        return str(one[self._arn])

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Ask for its removal, unless it has begun."""
        one = described(clients, entry.region, self._describe, self._name, entry.name)
        if one is None or self._going(one):
            return
        with not_found_is_fine():
            self._remove(clients, entry.region, one)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when RDS knows no such name any more."""
        return described(clients, entry.region, self._describe, self._name, entry.name) is None

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """All of this kind in the Region with our tag; for tags that have to be asked for, those with our prefix."""
        found = []
        for one in clients.pages("rds", region, *self._describe):
            name = str(one[self._name])
            if not name.startswith(PREFIX):
                continue
            tags = self._tags(clients, region, one)
            if entry := tagged(self.kind, region, arn=str(one[self._arn]), name=name, tags=tags):
                found.append(entry)
        return found

    @classmethod
    def exists(cls, clients: Clients, region: str, name: str) -> bool:
        """Tell whether there is one of that name, whosever it is."""
        return described(clients, region, cls._describe, cls._name, name) is not None

    @classmethod
    def look(cls, clients: Clients, region: str, name: str) -> dict[str, Any]:
        """Return what RDS says of the one of that name. Raises AwsError, also when there is none."""
        operation, key = cls._describe
        found: dict[str, Any] = clients.call("rds", region, operation, **{cls._name: name})[key][0]
        return found

    def _tags(self, clients: Clients, region: str, one: dict[str, Any]) -> dict[str, str]:
        if "TagList" in one:
            return tags_of(one["TagList"])
        with not_found_is_fine():
            return tags_of(
                clients.call("rds", region, "list_tags_for_resource", ResourceName=one[self._arn])["TagList"]
            )
        return {}

    def _going(self, one: dict[str, Any]) -> bool:
        return self._status is not None and str(one.get(self._status)) == "deleting"

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        clients.call("rds", region, self._delete, **{self._name: one[self._name]})


class _Server(_OfRds):
    """What holds data: it may be protected, and is asked for no snapshot at its end."""

    _named = "Identifier"

    def _remove(self, clients: Clients, region: str, one: dict[str, Any]) -> None:
        name = {self._name: one[self._name]}
        if self._protected(one):  # somebody has switched it on
            operation = self._delete.replace("delete", "modify")
            clients.call("rds", region, operation, **name, DeletionProtection=False, ApplyImmediately=True)
        clients.call("rds", region, self._delete, **name, SkipFinalSnapshot=True)

    def _protected(self, one: dict[str, Any]) -> bool:
        return bool(one.get("DeletionProtection"))


@final
class DbSubnetGroup(_OfRds):
    """The subnets that a database may be in."""

    kind = "db-subnet-group"
    rank = 40
    _noun, _nouns = "DBSubnetGroup", "DBSubnetGroups"


@final
class DbParameterGroup(_OfRds):
    """PostgreSQL's settings for an instance."""

    kind = "db-parameter-group"
    rank = 40
    _noun, _nouns = "DBParameterGroup", "DBParameterGroups"


@final
class DbClusterParameterGroup(_OfRds):
    """PostgreSQL's settings for an Aurora cluster."""

    kind = "db-cluster-parameter-group"
    rank = 40
    _noun, _nouns = "DBClusterParameterGroup", "DBClusterParameterGroups"


@final
class DbCluster(_Server):
    """An Aurora cluster: its storage and its endpoints. It can go when its instances are going."""

    kind = "db-cluster"
    rank = 50
    _noun, _nouns = "DBCluster", "DBClusters"
    _status = "Status"


@final
class DbInstance(_Server):
    """A database server, alone or of an Aurora cluster. Its secret and its automated backups go with it."""

    kind = "db-instance"
    rank = 60
    _noun, _nouns = "DBInstance", "DBInstances"
    _status = "DBInstanceStatus"

    def _protected(self, one: dict[str, Any]) -> bool:
        return super()._protected(one) and not one.get("DBClusterIdentifier")  # that is its cluster's


@final
class DbProxy(_OfRds):
    """An RDS Proxy; its target group and its registrations go with it."""

    kind = "db-proxy"
    rank = 70
    _noun, _nouns = "DBProxy", "DBProxies"
    _status = "Status"


def described(
    clients: Clients, region: str, describe: tuple[str, str], parameter: str, name: str
) -> dict[str, Any] | None:
    """Return what a description says of one thing, None when RDS knows none of that name. Raises AwsError."""
    operation, key = describe
    try:
        found: list[dict[str, Any]] = clients.call("rds", region, operation, **{parameter: name})[key]
    except AwsError as error:
        if error.failure is Failure.NOT_FOUND:
            return None
        raise
    return next((one for one in found if str(one[parameter]).lower() == name.lower()), None)
