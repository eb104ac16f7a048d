"""Where and how to connect: host, port, TLS, and how to authenticate."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, final

from pytest_dsql.errors import ConnectionFailed, UsageError
from pytest_dsql.masking import mask

#: `<cluster id>.dsql[-<suffix>].<region>.on.aws`; PrivateLink names carry the suffix (botocore's `dsql` model, shape
#: ClusterId; AWS user guide, "Accessing Aurora DSQL" and "Managing and connecting with AWS PrivateLink").
_DSQL_HOST: Final = re.compile(r"[a-z0-9]{26}\.dsql(?:-[a-z0-9-]+)?\.(?P<region>[a-z0-9-]+)\.on\.aws")
_CLUSTER_ID: Final = re.compile(r"[a-z0-9]{26}")
_CLUSTER_ARN: Final = re.compile(r"arn:aws[a-z-]*:dsql:(?P<region>[a-z0-9-]+):[0-9]{12}:cluster/(?P<id>[a-z0-9]{26})")
_HOST_FORM: Final = "<26-character id>.dsql.<region>.on.aws, an ARN, or the id alone with --dsql-region"
_REGION: Final = re.compile(r"[a-z]{2,}(?:-[a-z]+)+-\d{1,2}")

SslMode: TypeAlias = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
_SSL_MODES: Final = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
#: `allow` and `prefer` fall back to clear text, where the token would be for everyone to read.
_MAY_BE_CLEAR_TEXT: Final = frozenset({"disable", "allow", "prefer"})

#: What AWS names as the root of DSQL's certificates. One root, because libpq reads the file for every connection: this
#: one costs 0.3 ms of CPU, the operating system's bundle about a hundred times that. It also spares
#: `sslrootcert=system`, which finds no certificate with the OpenSSL inside psycopg's binary wheels.
AMAZON_ROOT: Final = Path(__file__).with_name("amazon_root_ca_1.pem")

_CONNECT_TIMEOUT_S: Final = 10
#: A silent peer is noticed after about a minute (idle 30 s, then three probes), unacknowledged data after 30 s.
_KEEPALIVES: Final = {
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_OWN_PARAMETERS: Final = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "sslnegotiation"}
)


@final
@dataclass(frozen=True, slots=True)
class IamAuth:
    """Authenticate with an IAM token, signed with a profile's credentials or with keys given here.

    Without either, botocore's usual chain is asked; with `role`, what it finds assumes that role first. Raises
    UsageError when half of a pair of keys is missing.
    """

    profile: str | None = None
    role: str | None = field(default=None, repr=False)  #: the ARN of a role to assume; it holds the account's id
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    service: Literal["dsql", "rds-db"] = "dsql"  #: whose token it is: Aurora DSQL's, or that of RDS and Aurora

    def __post_init__(self) -> None:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise UsageError("an access key id and a secret access key belong together: only one of them was given")
        if self.access_key_id is None and self.session_token is not None:
            raise UsageError("a session token needs the access key id and the secret access key it was issued with")
        if self.access_key_id is not None and (self.profile or self.role) is not None:
            raise UsageError("credentials come either from a profile (--dsql-profile) or as keys, not from both")


@final
@dataclass(frozen=True, slots=True)
class PasswordAuth:
    """Authenticate with a password; None leaves it to libpq's own ways (PGPASSWORD, the password file)."""

    password: str | None = field(default=None, repr=False)


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and how to connect. Validated when made (UsageError), picklable, and shows no secret in its repr."""

    host: str
    port: int = 5432
    hostaddr: str | None = None  #: one or more numeric addresses, comma-separated, in the order to try them
    dbname: str = "postgres"
    user: str = "admin"
    region: str | None = None  #: AWS Region the token is signed for; read from a DSQL host name when None
    sslmode: SslMode = "verify-full"
    sslrootcert: str | None = None  #: None: PGSSLROOTCERT, then Amazon Root CA 1 for DSQL and libpq's default elsewhere
    sslnegotiation: Literal["postgres", "direct"] | None = None  #: None: direct for DSQL where libpq can
    auth: IamAuth | PasswordAuth = IamAuth()
    dialect: Literal["dsql", "postgresql"] = "dsql"
    parameters: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)  #: further libpq parameters

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", dict(self.parameters))
        if not self.host or re.search(r"[\s,\0]", self.host):
            raise UsageError(f"not a host name: {self.host!r}")
        if not 1 <= self.port <= 65535:
            raise UsageError(f"the port must be between 1 and 65535, not {self.port}")
        if not self.user or not self.dbname:
            raise UsageError(f"the user and the database of {self.host} must not be empty")
        for address in self.addresses:
            if not _is_address(address):
                raise UsageError(f"not a numeric address: {address!r} (hostaddr of {self.host})")
        if self.sslmode not in _SSL_MODES:
            raise UsageError(f"sslmode must be one of {', '.join(_SSL_MODES)}, not {self.sslmode!r}")
        if self.sslnegotiation not in (None, "postgres", "direct"):
            raise UsageError(f"sslnegotiation must be postgres or direct, not {self.sslnegotiation!r}")
        if own := _OWN_PARAMETERS.intersection(self.parameters):
            raise UsageError(f"{', '.join(sorted(own))}: fields of the endpoint, not further parameters")
        self._check_identity()

    def _check_identity(self) -> None:
        region = region_of(self.host)
        if self.sslmode in _MAY_BE_CLEAR_TEXT and (region is not None or isinstance(self.auth, IamAuth)):
            raise UsageError(
                f"sslmode={self.sslmode} could send the token to {self.host} in clear text:"
                " use sslmode=verify-full (or require)"
            )
        if region is not None and self.region not in (None, region):
            raise UsageError(f"{self.host} is in {region}, not in {self.region} (--dsql-region)")
        if self.region is None and region is not None:
            object.__setattr__(self, "region", region)
        if self.region is None and isinstance(self.auth, IamAuth):
            raise UsageError(f"a token for {self.host} needs its AWS Region: give --dsql-region")

    @classmethod
    def for_cluster(
        cls,
        host_or_id: str,
        region: str | None = None,
        user: str = "admin",
        profile: str | None = None,
        role: str | None = None,
    ) -> Endpoint:
        """Make the endpoint of an Aurora DSQL cluster from its host name, its ARN, or its id and Region.

        Raises UsageError, in one line that names the option, for anything else.
        """
        name = host_or_id.strip().lower().removesuffix(".")
        if region is not None and not _REGION.fullmatch(region):
            raise UsageError(f"--dsql-region: {region!r} is not an AWS Region such as eu-central-1")
        if arn := _CLUSTER_ARN.fullmatch(name):
            name = arn["id"]
            if region not in (None, arn["region"]):
                raise UsageError(f"--dsql-endpoint: the ARN is of {arn['region']}, not of {region} (--dsql-region)")
            region = arn["region"]
        if _DSQL_HOST.fullmatch(name):
            host = name
        elif not _CLUSTER_ID.fullmatch(name):
            raise UsageError(f"--dsql-endpoint: {mask(host_or_id)!r} is not {_HOST_FORM}")
        elif region is None:
            raise UsageError(f"--dsql-endpoint: the cluster id {name} needs its AWS Region: give --dsql-region")
        else:
            host = f"{name}.dsql.{region}.on.aws"
        return cls(host, user=user, region=region, auth=IamAuth(profile=profile, role=role))

    @classmethod
    def from_dsn(cls, dsn: str) -> Endpoint:
        """Make an endpoint of a libpq connection string, in URI or key=value form, for any PostgreSQL.

        What the string leaves open is what libpq would take (PGUSER, PGSSLMODE ...). A DSQL host name makes it an
        endpoint of that cluster: verify-full, and an IAM token unless a password is given. Raises UsageError, in one
        line that repeats nothing secret.
        """
        given = _parse(dsn)
        host = given.pop("host", None) or given.get("hostaddr") or _libpq_default("host")
        if host is None:
            raise UsageError("--dsql-dsn names no host: postgresql://USER@HOST/DBNAME, or host=HOST user=USER ...")
        if "," in host or "," in given.get("port", ""):
            raise UsageError("--dsql-dsn must name one host: several servers cannot be measured as one")
        port = given.pop("port", None) or _libpq_default("port") or "5432"
        if not port.isdecimal():
            raise UsageError(f"--dsql-dsn: the port must be a number, not {port!r}")
        dsql = region_of(host) is not None
        password = given.pop("password", None)
        user = given.pop("user", None) or ("admin" if dsql else _libpq_default("user"))
        if user is None:
            raise UsageError("--dsql-dsn names no user, and this process's account has no name either")
        fields: dict[str, Any] = {
            "host": host,
            "port": int(port),
            "hostaddr": given.pop("hostaddr", None),
            "user": user,
            "dbname": given.pop("dbname", None) or ("postgres" if dsql else _libpq_default("dbname") or user),
            "sslmode": given.pop("sslmode", None) or ("verify-full" if dsql else _libpq_default("sslmode") or "prefer"),
            "sslrootcert": given.pop("sslrootcert", None),
            "sslnegotiation": given.pop("sslnegotiation", None),
            "auth": IamAuth() if dsql and password is None else PasswordAuth(password),
            "dialect": "dsql" if dsql else "postgresql",
            "parameters": given,
        }
        return cls(**fields)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The numeric addresses to try, in order; empty when the host was not resolved yet."""
        return tuple(self.hostaddr.split(",")) if self.hostaddr else ()

    def conninfo(self, password: str | None = None) -> dict[str, str]:
        """Return libpq's parameters, for `psycopg.connect(**...)` and `make_conninfo(**...)`.

        `password` is the token; None or "" sends the endpoint's own password, if it has one. The environment adds
        nothing that could lead elsewhere (PGHOSTADDR) or that DSQL refuses (PGOPTIONS).
        """
        secret = password or (self.auth.password if isinstance(self.auth, PasswordAuth) else None)
        result = {
            # libpq wants as many names as addresses; one port serves all of them.
            "host": ",".join([self.host] * max(1, len(self.addresses))),
            "hostaddr": self.hostaddr or "",
            "port": str(self.port),
            "dbname": self.dbname,
            "user": self.user,
            "sslmode": self.sslmode,
            "connect_timeout": str(_CONNECT_TIMEOUT_S),
            "application_name": application_name(),
            **_KEEPALIVES,
        }
        if self.sslrootcert is not None:
            result["sslrootcert"] = self.sslrootcert
        if self.sslnegotiation is not None:
            result["sslnegotiation"] = self.sslnegotiation
        # A DSN that turned out to lead to DSQL, behind some other name, stays as it was written.
        if self.dialect == "dsql" and (isinstance(self.auth, IamAuth) or region_of(self.host) is not None):
            result = _dsql_defaults(self.sslmode) | result
        result |= self.parameters
        if secret:
            result["password"] = secret
        return result

    def resolved(self) -> Endpoint:
        """Return the endpoint with its host looked up, once: libpq would do it, blocking, for every connection.

        All addresses are kept, IPv6 and IPv4, in the resolver's order. Raises ConnectionFailed (phase `resolve`).
        """
        if self.hostaddr or self.host.startswith("/"):
            return self
        failure = None
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = error
        if failure is not None:
            reason = failure.strerror if isinstance(failure, OSError) and failure.strerror else "not a host name"
            raise ConnectionFailed(f"cannot resolve the host name {self.host}: {reason}", phase="resolve")
        return replace(self, hostaddr=",".join(dict.fromkeys(str(address[0]) for *_, address in found)))

    def describe(self) -> str:
        """Return one masked line for people: who connects where, and how."""
        how = "IAM token" if isinstance(self.auth, IamAuth) else "password"
        return mask(
            f"{self.user}@{self.host}:{self.port}/{self.dbname} ({self.dialect}, {how}, sslmode={self.sslmode})"
        )


def region_of(host: str) -> str | None:
    """Return the AWS Region in a DSQL host name, None for any other name."""
    match = _DSQL_HOST.fullmatch(host.lower())
    return match["region"] if match else None


@cache
def application_name() -> str:
    """Return how our sessions name themselves: `pytest-dsql/<version>`."""
    from importlib.metadata import version

    return f"pytest-dsql/{version('pytest-dsql')}"


def _is_address(text: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text.partition("%")[0])
        except OSError:
            continue
        return True
    return False


def _dsql_defaults(sslmode: str) -> dict[str, str]:
    """What libpq should do for DSQL unless the endpoint says otherwise, as far as this libpq knows of it."""
    from psycopg import pq

    defaults = {"gssencmode": "disable", "sslsni": "1", "options": ""}
    if sslmode in ("verify-ca", "verify-full"):
        defaults["sslrootcert"] = os.environ.get("PGSSLROOTCERT") or str(AMAZON_ROOT)
    if pq.version() >= 160000:
        # Nobody asks for a client certificate; looking for one fails where HOME belongs to another user.
        defaults["sslcertmode"] = "disable"
    if pq.version() >= 170000:
        defaults["sslnegotiation"] = "direct"  # a round trip less
    return defaults


def _parse(dsn: str) -> dict[str, str]:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    reason = None
    try:
        parsed = conninfo_to_dict(dsn)
    except ProgrammingError as error:
        # libpq quotes the part it does not understand, and that may be the password.
        reason = re.sub(r'".*"', '"..."', str(error).strip(), flags=re.DOTALL)
    if reason is not None:
        raise UsageError(f"--dsql-dsn is no libpq URI or key=value string: {reason}")
    return {name: str(value) for name, value in parsed.items() if value is not None and value != ""}


def _libpq_default(name: str) -> str | None:
    """Return what libpq takes when a connection string leaves `name` open: the environment's value, or its own."""
    from psycopg import pq

    for option in pq.Conninfo.get_defaults():
        if option.keyword == name.encode():
            return option.val.decode() if option.val else None
    return None
