"""The target `rds-proxy`: an RDS Proxy before one of the other databases, all of it made for the run.

Source: RDS user guide, "Amazon RDS Proxy": a proxy is in the database's VPC and has no public address; its certificates
are those of AWS Certificate Manager, signed by Amazon's own roots, not by RDS's.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.kinds.iam_role import PATH, REGION_TAG
from pytest_dsql.aws.kinds.rds import DbProxy
from pytest_dsql.errors import DsqlError, UsageError
from pytest_dsql.targets.created import options_of
from pytest_dsql.targets.rds.costs import shape_of, with_proxy
from pytest_dsql.targets.rds.database import DATABASE, MASTER
from pytest_dsql.targets.rds.grants import PROXY
from pytest_dsql.targets.rds.kinds import DATABASES
from pytest_dsql.targets.rds.making import facts_of, make
from pytest_dsql.targets.rds.network import SETTLES, open_to_itself
from pytest_dsql.targets.rds.options import PROXY as PROXY_OPTIONS
from pytest_dsql.targets.rds.options import parse
from pytest_dsql.targets.rds.reaching import iam, password_of, server_of

if TYPE_CHECKING:
    from pytest_dsql.aws.inventory import Entry
    from pytest_dsql.aws.run import AwsRun
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.cost.shape import CostShape
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.rds.database import Database
    from pytest_dsql.targets.rds.network import Network
    from pytest_dsql.targets.rds.options import RdsOptions
    from pytest_dsql.targets.target import Target

OPTIONS: Final = {**PROXY_OPTIONS, **{key: text for one in DATABASES.values() for key, text in one.keys.items()}}
ACTIONS: Final = PROXY

#: A new proxy takes some minutes, its first connections to the database a few more.
_READY_S: Final = 1800.0
#: A role that was just made can't be assumed everywhere yet; RDS says InvalidParameterValue then (IAM user guide,
#: "Troubleshoot IAM: changes that I make are not always immediately visible").
_ROLE_SETTLES: Final = SETTLES | {Failure.INVALID}
_BROKEN: Final = ("incompatible-network", "insufficient-resource-limits", "suspended")


def check(settings: Settings) -> None:
    """See that the options fit together, and what the database that it is put before knows."""
    _options(settings)


def cost_shape(settings: Settings, region: str) -> CostShape:
    """Return what of it will be paid for."""
    options = _options(settings)
    kind = DATABASES[options.before]
    return with_proxy(shape_of(kind, options, region), settings.target, kind, options, region)


def open(settings: Settings, run: AwsRun) -> Target:  # noqa: A001 - the word of every target's module
    """Create the database and the proxy, and wait until the proxy answers a query."""
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.target import Target

    options = _options(settings)
    kind = DATABASES[options.before]
    database, network = make(run, kind, options)
    if options.security_group is None:
        open_to_itself(run, network.security_group)
    proxy = _make_proxy(run, options, database, network)
    endpoint = _endpoint(run, options, database, proxy)
    return Target(
        name=settings.target,
        endpoint=endpoint,
        tokens=TokenSource(endpoint),
        facts={
            "dialect": "postgresql",
            "server": server_of(run, endpoint),
            "before": options.before,
            "proxy_percent": options.proxy_percent,
            **facts_of(kind, options, database),
        },
    )


def _options(settings: Settings) -> RdsOptions:
    given = options_of(settings)
    options = parse(settings.target, given)
    own = {**PROXY_OPTIONS, **DATABASES[options.before].keys}
    for key in given:
        if key in OPTIONS and key not in own:
            raise UsageError(f"--dsql-target-option {key}: means nothing before={options.before}")
    return options


def _make_proxy(run: AwsRun, options: RdsOptions, database: Database, network: Network) -> dict[str, Any]:
    name = run.name(run.owner)
    role = _role(run, database.secret)
    settings = {
        "DBProxyName": name,
        "EngineFamily": "POSTGRESQL",
        "Auth": [
            {
                "AuthScheme": "SECRETS",
                "SecretArn": database.secret,
                "IAMAuth": "REQUIRED" if options.auth == "iam" else "DISABLED",
            }
        ],
        "RoleArn": role,
        "VpcSubnetIds": list(network.subnets),
        "VpcSecurityGroupIds": [network.security_group],
        "RequireTLS": True,
        "Tags": run.tag_list(),
    }

    def call(_entry: Entry) -> Made:
        return Made(run.clients.call("rds", run.region, "create_db_proxy", **settings)["DBProxy"]["DBProxyArn"])

    run.create("db-proxy", name, call, again_on=_ROLE_SETTLES)
    proxy = run.wait(lambda: _available(run, name), what=f"the proxy {name}", limit_s=_READY_S)
    _lead_to(run, options, name, database)
    run.wait(lambda: _connected(run, name), what=f"the connections of the proxy {name}", limit_s=_READY_S)
    return proxy


def _role(run: AwsRun, secret: str) -> str:
    """Make the role with which the proxy reads the database's secret, and nothing else."""
    name = run.name(run.owner)

    def call(_entry: Entry) -> Made:
        answer = run.clients.call(
            "iam",
            run.region,
            "create_role",
            Path=PATH,
            RoleName=name,
            Description="Lets a proxy of pytest-dsql read its database's secret",
            AssumeRolePolicyDocument=_document("sts:AssumeRole", Principal={"Service": "rds.amazonaws.com"}),
            Tags=[*run.tag_list(), {"Key": REGION_TAG, "Value": run.region}],
        )
        return Made(answer["Role"]["Arn"])

    entry = run.create("iam-role", name, call)

    def allow() -> bool:
        run.clients.call(
            "iam",
            run.region,
            "put_role_policy",
            RoleName=name,
            PolicyName="read-secret",
            PolicyDocument=_document("secretsmanager:GetSecretValue", Resource=secret),
        )
        return True

    run.wait(allow, what="giving the proxy's role its policy", limit_s=120.0)
    assert entry.arn is not None
    return entry.arn


def _document(action: str, **rest: Any) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **rest}]})


def _available(run: AwsRun, name: str) -> dict[str, Any] | None:
    proxy = DbProxy.look(run.clients, run.region, name)
    status = str(proxy["Status"])
    if status in _BROKEN:
        raise DsqlError(f"the proxy {name} became {status}: its subnets or quotas don't allow it")
    return proxy if status == "available" and proxy.get("Endpoint") else None


def _lead_to(run: AwsRun, options: RdsOptions, name: str, database: Database) -> None:
    """Have the proxy lead to the database, with as many connections as the options say."""

    def configure() -> bool:
        run.clients.call(
            "rds",
            run.region,
            "modify_db_proxy_target_group",
            DBProxyName=name,
            TargetGroupName="default",
            ConnectionPoolConfig={
                "MaxConnectionsPercent": options.proxy_percent,
                "ConnectionBorrowTimeout": options.proxy_borrow_s,
            },
        )
        return True

    def register() -> bool:
        leads = "DBClusterIdentifiers" if database.is_cluster else "DBInstanceIdentifiers"
        try:
            run.clients.call(
                "rds", run.region, "register_db_proxy_targets", DBProxyName=name, **{leads: [database.identifier]}
            )
        except AwsError as error:
            if error.code != "DBProxyTargetAlreadyRegisteredFault":
                raise
        return True

    run.wait(configure, what="configuring the proxy", limit_s=300.0)
    run.wait(register, what="leading the proxy to the database", limit_s=300.0)


def _connected(run: AwsRun, name: str) -> bool | None:
    """Tell whether the proxy has connections to the database, and to a cluster's writer."""
    targets = list(run.clients.pages("rds", run.region, "describe_db_proxy_targets", "Targets", DBProxyName=name))
    health = [one.get("TargetHealth", {}) for one in targets if one.get("Role") != "READ_ONLY"]
    if any(one.get("State") == "AVAILABLE" for one in health):
        return True
    for one in health:
        if one.get("Reason") in ("AUTH_FAILURE", "INVALID_REPLICATION_STATE"):
            raise DsqlError(f"the proxy {name} can't use its database: {one['Reason']} ({one.get('Description', '')})")
    return None


def _endpoint(run: AwsRun, options: RdsOptions, database: Database, proxy: dict[str, Any]) -> Endpoint:
    """Return the proxy's endpoint; tokens are checked by the proxy, which logs in with the secret itself."""
    from pytest_dsql.connect.endpoint import AMAZON_ROOT, Endpoint, PasswordAuth
    from pytest_dsql.targets.rds.reaching import reached

    endpoint = Endpoint(
        host=str(proxy["Endpoint"]),
        hostaddr=options.hostaddr,
        port=options.port or database.port,
        dbname=DATABASE,
        user=MASTER,
        region=run.region,
        sslmode="verify-full",
        sslrootcert=str(options.root or AMAZON_ROOT),
        auth=iam(run) if options.auth == "iam" else PasswordAuth(password_of(run, database.secret)),
        dialect="postgresql",
    )
    reached(run, endpoint).close()
    return endpoint.resolved()
