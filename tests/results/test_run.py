"""What a run notes of its machine."""

from __future__ import annotations

import re
from dataclasses import replace

from pytest_dsql.results.run import Host, RunInfo, utc_now


def test_this_machine() -> None:
    host = Host.here()
    assert host.cores >= 1
    assert host.memory_bytes is None or host.memory_bytes > 2**20
    assert host.system
    assert host.kernel


def test_the_fingerprint_tells_machines_apart_but_not_kernels() -> None:
    host = Host("AMD EPYC", 2, 24 * 2**30, "Linux", "6.1", "x86_64")
    assert re.fullmatch("[0-9a-f]{16}", host.fingerprint)
    assert replace(host, kernel="6.2", memory_bytes=24 * 2**30 + 4096).fingerprint == host.fingerprint
    assert replace(host, cores=4).fingerprint != host.fingerprint


def test_versions_and_time() -> None:
    run = RunInfo.collect(id="run", plan="quick", seed=7)
    assert {"python", "pytest", "psycopg", "pytest-dsql"} <= set(run.versions)
    assert run.started_at <= utc_now()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", run.started_at)
    assert run.as_dict()["machine_fingerprint"] == run.host.fingerprint
