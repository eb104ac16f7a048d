"""A plain PostgreSQL for tests: on 127.0.0.1, with a password, with or without TLS; nothing is left afterwards."""

from __future__ import annotations

import contextlib
import datetime
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_dsql.errors import EngineError
from pytest_dsql.local.account import Account, choose_account
from pytest_dsql.local.installation import Installation, find_installation, system_installations
from pytest_dsql.local.postgres import SUPERUSER, Postgres, initdb

#: Old enough for Debian 12, which is what many CI images are; the engine itself wants a newer one.
OLDEST = 15

_ATTEMPTS = 5
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "shared_buffers": "64MB",
    "max_wal_size": "1GB",
    "dynamic_shared_memory_type": "mmap",  # nothing in /dev/shm, whatever happens to the server
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
}


@dataclass(frozen=True)
class PlainPostgres:
    """How to reach the server; its superuser is `user`."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    dbname: str
    sslmode: str  #: "verify-full" with TLS, "disable" without
    sslrootcert: str | None  #: the root certificate's file; it is valid for `localhost` and 127.0.0.1
    pid: int  #: the server's parent process
    installation: Installation

    @property
    def dsn(self) -> str:
        """A libpq connection string, password included."""
        return " ".join(f"{name}={value}" for name, value in self.conninfo().items())

    def conninfo(self) -> dict[str, str]:
        """libpq parameters, password included."""
        parameters = {
            "host": self.host,
            "port": str(self.port),
            "user": self.user,
            "password": self.password,
            "dbname": self.dbname,
            "sslmode": self.sslmode,
        }
        return parameters | ({"sslrootcert": self.sslrootcert} if self.sslrootcert is not None else {})


def tls_installation() -> Installation | None:
    """A PostgreSQL of this machine whose server speaks TLS (the wheel's doesn't), None when there is none."""
    found = [installation for installation in system_installations() if installation.major >= OLDEST]
    return min(found, key=lambda installation: installation.major) if found else None


@contextlib.contextmanager
def plain_postgres(
    *,
    tls: bool = False,
    settings: Mapping[str, str] | None = None,
    installation: Installation | None = None,
) -> Iterator[PlainPostgres]:
    """Start a server, yield how to reach it, and remove everything. Works as root too.

    `settings` are added to postgresql.conf. With `tls` a server of this machine is used; check `tls_installation()`
    first and skip when it is None.
    """
    if installation is None:
        installation = tls_installation() if tls else find_installation(OLDEST)
    assert installation is not None, "no PostgreSQL with TLS on this machine: check tls_installation() and skip"
    account = choose_account()
    password = secrets.token_urlsafe(18)
    directory = Path(tempfile.mkdtemp(prefix="plain-postgres-"))
    try:
        if account.kind == "other":
            directory.chmod(0o711)
        data = _prepare(installation, account, directory, password)
        configured = dict(_SETTINGS, listen_addresses="127.0.0.1", unix_socket_directories="", **(settings or {}))
        if tls:
            configured |= {"ssl": "on"}
            _write_certificate(data, directory, account)
        postgres, port = _start(Postgres(installation, account, data, directory, directory / "log"), configured)
        try:
            yield PlainPostgres(
                host="localhost" if tls else "127.0.0.1",
                port=port,
                user=SUPERUSER,
                password=password,
                dbname="postgres",
                sslmode="verify-full" if tls else "disable",
                sslrootcert=str(directory / "root.pem") if tls else None,
                pid=postgres.pid,
                installation=installation,
            )
        finally:
            postgres.stop()
    finally:
        shutil.rmtree(directory)


def _prepare(installation: Installation, account: Account, directory: Path, password: str) -> Path:
    data = directory / "data"
    data.mkdir(mode=0o700)
    account.own(data)
    password_file = directory / "password"
    password_file.write_text(password)
    password_file.chmod(0o600)
    account.own(password_file)
    initdb(installation, account, data, "--auth=scram-sha-256", f"--pwfile={password_file}")
    password_file.unlink()
    return data


def _start(postgres: Postgres, settings: dict[str, str]) -> tuple[Postgres, int]:
    for _ in range(_ATTEMPTS - 1):
        # The port may be taken between the moment it was free and the moment the server asks for it.
        with contextlib.suppress(EngineError):
            return _start_once(postgres, settings)
        postgres.stop()
    return _start_once(postgres, settings)


def _start_once(postgres: Postgres, settings: dict[str, str]) -> tuple[Postgres, int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    postgres.start(settings | {"port": str(port)})
    postgres.wait_ready()
    return postgres, port


def _write_certificate(data: Path, directory: Path, account: Account) -> None:
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    key_file = data / "server.key"
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    account.own(key_file)
    (data / "server.crt").write_bytes(pem)
    account.own(data / "server.crt")
    (directory / "root.pem").write_bytes(pem)
