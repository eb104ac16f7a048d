"""The embedded engine as a target: one engine per run, one cluster per process of the run."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dsql.errors import MissingExtra
from pytest_dsql.targets.target import Target

if TYPE_CHECKING:
    from pytest_dsql.local.options import EngineOptions
    from pytest_dsql.settings import Settings

#: What the extra `local` installs besides PostgreSQL, which may also be the system's.
_EXTRA: Final = ("uvloop", "postgast", "cryptography")


def check_installed() -> None:
    """See that the engine's parts are installed. Raises MissingExtra or EngineError."""
    from pytest_dsql.local.installation import find_installation

    for name in _EXTRA:
        if find_spec(name) is None:
            raise MissingExtra("the embedded engine", "local")
    find_installation()


def engine_options(settings: Settings) -> EngineOptions:
    """How this run's engine is to be. Raises UsageError."""
    from pytest_dsql.local.options import EngineOptions

    latency = settings.latency or "none"
    return EngineOptions(
        latency=str(Path(latency).absolute()) if latency.endswith(".toml") else latency,
        faults=Path(settings.faults).absolute() if settings.faults else None,
        seed=settings.seed,
    ).with_settings(settings.set)


def open_local(settings: Settings, *, run_id: str) -> Target:
    """Start the engine of this run, or attach to the one that is there already."""
    check_installed()
    from pytest_dsql.connect.endpoint import Endpoint, IamAuth
    from pytest_dsql.connect.token import TokenSource
    from pytest_dsql.local.client import Engine
    from pytest_dsql.local.controls import LocalControls

    if settings.engine is not None:
        engine = Engine.attach(Path(settings.engine))
    else:
        engine = Engine.start_or_attach(f"run {run_id}", engine_options(settings))
    try:
        # Every worker of pytest-xdist gets a cluster of its own; the others share nothing but the engine.
        cluster = engine.new_cluster() if os.environ.get("PYTEST_XDIST_WORKER") else engine.cluster
        controls = LocalControls(engine, cluster)
        controls.reset()  # an engine that runs already may have been used before
        endpoint = Endpoint(
            host=cluster.host,
            hostaddr="127.0.0.1",
            port=engine.port,
            region=cluster.region,
            sslrootcert=str(engine.ca_file),
            auth=IamAuth(
                access_key_id=engine.credentials.access_key_id,
                secret_access_key=engine.credentials.secret_access_key,
            ),
        )
    except BaseException:
        engine.close()
        raise
    return Target(
        name="local",
        endpoint=endpoint,
        tokens=TokenSource(endpoint),
        facts={
            "dialect": "dsql",
            "server": f"embedded engine on {engine.postgresql}",
            "region": "+".join(endpoint.region for endpoint in cluster.endpoints),
            "latency": controls.latency.profile,
        },
        regions={one.region: replace(endpoint, host=one.host, region=one.region) for one in cluster.endpoints},
        close=engine.close,
        engine=engine,
        local=controls,
    )
