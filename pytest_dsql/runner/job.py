"""What a machine that makes the load is told: which run, how, and on what target. It holds no secret.

Passwords are read there from Secrets Manager, and tokens are signed there with the machine's own role.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dsql.errors import UsageError

if TYPE_CHECKING:
    from pytest_dsql.connect.endpoint import Endpoint
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target

#: Names the file that holds the job of a session that was sent to another machine.
VARIABLE: Final = "DSQL_RUNNER_JOB"
_PACKAGE: Final = Path(__file__).parents[1]
#: Settings that mean something only where the run was started; the endpoint is in the target.
_NOT_SENT: Final = (
    "endpoint",
    "dsn",
    "profile",
    "role",
    "engine",
    "runner",
    "runner_option",
    "results",
    "resume",
    "keep",
)


@final
@dataclass(frozen=True, slots=True)
class Job:
    """One session. JSON in the bucket; plain data."""

    run: str
    settings: Mapping[str, Any]
    arguments: tuple[str, ...]  #: of pytest
    directory: str  #: in which to give them, below the unpacked tests
    target: Mapping[str, Any]
    resume: bool = False  #: whether results of an earlier machine are to be gone on with
    roots: Mapping[str, str] = field(default_factory=dict)  #: certificates that are not the package's: name -> PEM
    cost: Mapping[str, Any] = field(default_factory=dict)  #: what the budget has to know of: `runner.costs.told`

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str) -> Job:
        """Read it back."""
        value = json.loads(text)
        return cls(**{one.name: value[one.name] for one in fields(cls)} | {"arguments": tuple(value["arguments"])})

    @classmethod
    def here(cls) -> Job | None:
        """Return the job of this session; None when it was started here."""
        path = os.environ.get(VARIABLE)
        return cls.of_json(Path(path).read_text(encoding="utf-8")) if path else None

    def adjusted(self, settings: Settings) -> Settings:
        """Return the settings of the session there: those of the run, whatever the machine's own say."""
        run = self.run if self.resume else None
        return replace(type(settings)(**self.settings), resume=run)


def job_of(
    settings: Settings,
    target: Target,
    *,
    run: str,
    arguments: tuple[str, ...],
    directory: str,
    secret: str | None,
    resume: bool,
    cost: Mapping[str, Any] | None = None,
) -> Job:
    """Describe a session. `secret` names where the password is kept in Secrets Manager, for a target that has one."""
    roots: dict[str, str] = {}
    chosen = {one.name: getattr(settings, one.name) for one in fields(settings) if one.name not in _NOT_SENT}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in chosen.items()}
    described = {
        "name": target.name,
        "facts": dict(target.facts),
        "endpoint": _endpoint(target.endpoint, secret, roots),
        "regions": {region: _endpoint(one, secret, roots) for region, one in target.regions.items()},
    }
    return Job(run, plain, arguments, directory, described, resume, roots, cost or {})


def _endpoint(endpoint: Endpoint, secret: str | None, roots: dict[str, str]) -> dict[str, Any]:
    from pytest_dsql.connect.endpoint import IamAuth, PasswordAuth

    fields_ = {
        name: getattr(endpoint, name)
        for name in ("host", "port", "dbname", "user", "region", "sslmode", "sslnegotiation", "dialect")
    }
    # An address was looked up here, where it may be another than there - but where it isn't, it is a tunnel's end.
    fields_["hostaddr"] = endpoint.hostaddr if endpoint.hostaddr and endpoint.hostaddr.startswith("127.") else None
    if isinstance(endpoint.auth, PasswordAuth):
        if secret is None:
            raise UsageError(
                "--dsql-runner ec2 sends no password to another machine: it works with IAM tokens, and with passwords "
                "that RDS keeps in Secrets Manager"
            )
        fields_["auth"] = {"secret": secret}
    else:
        assert isinstance(endpoint.auth, IamAuth)
        fields_["auth"] = {"service": endpoint.auth.service}
    if endpoint.parameters:
        raise UsageError("--dsql-runner ec2 knows nothing of further parameters of a DSN")
    if endpoint.sslrootcert is not None:
        path = Path(endpoint.sslrootcert)
        name = path.name
        if path.is_relative_to(_PACKAGE):
            fields_["root"] = {"package": path.relative_to(_PACKAGE).as_posix()}
        else:
            roots[name] = path.read_text(encoding="ascii")
            fields_["root"] = {"sent": name}
    return fields_


def target_of(job: Job, *, folder: Path, password: Any) -> Target:
    """Make the target there. `password` reads a secret: called with its name and Region."""
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.targets.target import Target

    def endpoint(value: Mapping[str, Any]) -> Endpoint:
        from pytest_dsql.connect.endpoint import Endpoint, IamAuth, PasswordAuth

        plain = {name: one for name, one in value.items() if name not in ("auth", "root")}
        root = value.get("root")
        auth: IamAuth | PasswordAuth
        if "secret" in value["auth"]:
            auth = PasswordAuth(password(value["auth"]["secret"], value["region"]))
        else:
            auth = IamAuth(service=value["auth"]["service"])
        path = None
        if root is not None:
            path = str(_PACKAGE / root["package"]) if "package" in root else str(folder / root["sent"])
        return Endpoint(**plain, auth=auth, sslrootcert=path).resolved()

    for name, text in job.roots.items():
        (folder / Path(name).name).write_text(text, encoding="ascii")
    first = endpoint(job.target["endpoint"])
    return Target(
        name=job.target["name"],
        endpoint=first,
        tokens=TokenSource(first),
        facts=job.target["facts"],
        regions={region: endpoint(one) for region, one in job.target["regions"].items()},
    )
