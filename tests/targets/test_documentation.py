"""The documented example of a target of one's own works when it is pasted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.settings import CREATED_TARGETS
from pytest_dsql.targets.created import COMMON_OPTIONS, module_of
from tests.plain_postgres import plain_postgres

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"


class Provider(ThreadingHTTPServer):
    """A provider that rents out one PostgreSQL, and wants to be asked twice."""

    def __init__(self, dsn: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.dsn = dsn
        self.databases: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def handle_one(self) -> None:
        assert self.headers["Authorization"] == "Bearer secret-of-the-provider"
        name = self.path.rpartition("/")[2]
        self.server.requests.append(self.command)
        known = self.server.databases
        if self.command == "PUT":
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known[name] = {"id": f"db-{name}", "state": "starting", "labels": body["labels"], "size": body["size"]}
            return self.answer(200, known[name])
        if name not in known:
            return self.answer(404, None)
        if self.command == "DELETE":
            return self.answer(200, known.pop(name))
        found = dict(known[name])
        known[name].update(state="ready", dsn=self.server.dsn, version="PostgreSQL, rented")
        return self.answer(200, found)

    do_GET = do_PUT = do_DELETE = handle_one  # noqa: N815 - the base class's names

    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: object) -> None:
        return


@pytest.fixture
def provider() -> Iterator[Provider]:
    with plain_postgres() as postgres, Provider(postgres.dsn) as there:
        thread = threading.Thread(target=there.serve_forever)
        thread.start()
        try:
            yield there
        finally:
            there.shutdown()
            thread.join()


def test_the_example_is_created_measured_and_removed(provider: Provider, tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "rented.py").write_text(example)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
    (tmp_path / "test_it.py").write_text(
        "def test_it(dsql_connection, dsql_target):\n"
        "    assert dsql_connection.execute('SELECT 1').fetchone() == (1,)\n"
        "    assert dsql_target.dialect == 'postgresql'\n"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DSQL_", "PG"))},
        "PROVIDER_URL": f"http://127.0.0.1:{provider.server_port}",
        "PROVIDER_TOKEN": "secret-of-the-provider",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--dsql-target=targets.rented"]
    options = ["--dsql-budget=1", "--dsql-target-option=size=large"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    done = run(*command, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "remaining: 0" in done.stdout
    assert provider.databases == {}
    assert provider.requests.count("PUT") == provider.requests.count("DELETE") == 1
    wrong = run(*command, "--dsql-budget=1", "--dsql-target-option=size=medium")
    assert "size: small or large" in wrong.stderr
    assert provider.requests.count("PUT") == 1

    # What a killed session leaves is removed by the command, from the folder that has the module.
    kept = run(*command, *options, "--dsql-keep")
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert len(provider.databases) == 1
    run_id = next((tmp_path / "state" / "pytest-dsql" / "runs").glob("*.jsonl")).stem
    reaped = run(sys.executable, "-c", "from pytest_dsql.cli import main; raise SystemExit(main())", "reap", run_id)
    assert "removed: 1" in reaped.stdout, reaped.stdout + reaped.stderr
    assert provider.databases == {}
    assert "secret-of-the-provider" not in done.stdout + kept.stdout + reaped.stdout


@pytest.mark.parametrize("name", CREATED_TARGETS)
def test_every_option_of_a_target_is_documented(name: str) -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGE.parent.glob("*.md"))
    for key in {**COMMON_OPTIONS, **module_of(name).OPTIONS}:
        assert f"`{key}`" in text
