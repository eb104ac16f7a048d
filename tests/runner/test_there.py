"""On the machine: a notice of its end, and what is told of how the session ended."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.runner import there
from pytest_dsql.runner.job import Job
from pytest_dsql.runner.store import JOB, RESULTS, TESTS, Store
from pytest_dsql.runner.there import Notice

REGION = "us-east-1"


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """An instance's metadata service (IMDSv2): without a token it says nothing."""
    said: dict[str, Any] = {"action": None, "tokens": 0}

    class Service(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            said["tokens"] += 1
            self._say(200 if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else 400, b"t")

        def do_GET(self) -> None:
            if self.headers["X-aws-ec2-metadata-token"] != "t":
                self._say(401, b"")
            elif said["action"] and self.path == "/latest/meta-data/spot/instance-action":
                self._say(200, json.dumps(said["action"]).encode())
            else:
                self._say(404, b"")

        def _say(self, status: int, text: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_arguments: Any) -> None:
            """Say nothing."""

    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{service.server_address[1]}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    yield said
    service.shutdown()
    service.server_close()


def test_a_notice_is_seen(metadata: dict[str, Any]) -> None:
    notice = Notice()
    assert not notice.given()
    metadata["action"] = {"action": "terminate", "time": "2026-11-30T12:00:00Z"}
    assert notice.given()
    assert metadata["tokens"] == 1


def test_no_metadata_service_gives_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    assert not Notice().given()


@pytest.fixture
def store(server: str, tmp_path: Path) -> Store:
    import io
    import tarfile

    clients = Clients()
    clients.call("s3", REGION, "create_bucket", Bucket="bucket")
    store = Store(clients, REGION, "bucket")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as packed:
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:dsql\n")
        packed.add(tmp_path / "pytest.ini", "pytest.ini")
        (tmp_path / "test_it.py").write_text(TEST)
        packed.add(tmp_path / "test_it.py", "test_it.py")
    store.put(TESTS, content.getvalue())
    job = Job("run-1", {}, ("test_it.py",), ".", {"regions": {}})
    store.put(JOB, job.to_json().encode())
    return store


#: Stands in for a cell: it writes what it has until it is told to end.
TEST = """
import signal, time
from pathlib import Path

def test_it():
    folder = Path(".dsql/run-1/cells"); folder.mkdir(parents=True)
    (folder / "first").write_text("samples")
    (folder.parent / "results.json").write_text("{}")
    (folder.parent / ".lock").touch()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    Path("running").touch()
    if not Path("short").exists():
        time.sleep(60)
"""


def test_what_was_measured_is_kept_when_the_machine_is_taken_away(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()
    status = there.run(store, "m/", folder, notice=(folder / "tests" / "running").exists, sync_s=0.2)
    assert status == {"state": "interrupted", "exit": 2}
    assert store.get_json("m/status.json") == status
    assert store.get(f"{RESULTS}results.json") == b"{}"
    assert store.get(f"{RESULTS}cells/first") == b"samples"
    assert store.get(f"{RESULTS}.lock") is None
    assert b"KeyboardInterrupt" in (store.get("m/log") or b"")
    assert store.get("m/log", after=10_000_000) == b""


def test_the_next_machine_finds_what_was_measured(store: Store, tmp_path: Path) -> None:
    store.put(f"{RESULTS}results.json", b'{"run": 1}')
    store.put(f"{RESULTS}cells/first", b"samples")
    folder = tmp_path / "machine"
    folder.mkdir()
    job, where = there.prepare(store, folder)
    assert job.resume
    assert (where / ".dsql/run-1/results.json").read_text() == '{"run": 1}'
    assert (where / ".dsql/run-1/cells/first").read_text() == "samples"


def test_a_told_end_is_an_interruption(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    folder.mkdir()

    def tell() -> None:
        while not (folder / "tests" / "running").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    try:
        threading.Thread(target=tell).start()
        status = there.run(store, "m/", folder, notice=lambda: False, sync_s=0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert status["state"] == "interrupted"
