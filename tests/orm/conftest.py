"""Where the mappers and connectors find the engine: host, port and certificate as options, keys in the environment."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from pytest_dsql.local.controls import LocalControls
from pytest_dsql.targets.target import Target


@dataclass(frozen=True)
class Address:
    """How a client reaches the target's cluster as `admin`."""

    host: str
    port: int
    region: str
    ca_file: str

    @property
    def libpq(self) -> dict[str, Any]:
        """What a client on top of libpq needs, besides user and database."""
        return {"hostaddr": "127.0.0.1", "port": self.port, "region": self.region}


@contextlib.contextmanager
def jobs_afterwards(target: Target) -> Iterator[None]:
    """Hold the jobs that a schema's creation begins until it is done: their end changes the catalog (OC001)."""
    controls: LocalControls | None = target.local
    assert controls is not None
    usual = controls.limits.get().job_build_s
    controls.limits.set(job_build_s=3600.0)
    yield
    controls.limits.set(job_build_s=0.0)
    _finish_jobs(target)
    controls.limits.set(job_build_s=usual)


def _finish_jobs(target: Target) -> None:
    with target.connect() as connection:
        while True:
            with contextlib.suppress(psycopg.errors.SerializationFailure):
                jobs = connection.execute("SELECT job_id FROM sys.jobs WHERE status IN ('submitted', 'processing')")
                rows = jobs.fetchall()
                if not rows:
                    return
                for (job,) in rows:
                    connection.execute(f"CALL sys.wait_for_job('{job}')".encode())


@pytest.fixture
def resolved(address: Address, monkeypatch: pytest.MonkeyPatch) -> Address:
    """The same, for clients that know no `hostaddr`: the cluster's name leads to this machine."""
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host == address.host else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return address


@pytest.fixture
def address(dsql_target: Target, dsql_clean: None, monkeypatch: pytest.MonkeyPatch) -> Address:
    engine = dsql_target.engine
    if engine is None:
        pytest.skip("mappers are tried on the embedded engine")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", engine.credentials.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", engine.credentials.secret_access_key)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    endpoint = dsql_target.endpoint
    assert endpoint.region is not None
    return Address(endpoint.host, engine.port, endpoint.region, str(engine.ca_file))
