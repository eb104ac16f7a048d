"""What runs on the machine that makes the load: one pytest session, whose results go to the bucket as they come.

`python -m pytest_dsql.runner.there BUCKET REGION PREFIX DIRECTORY`. Ends with 0 when it could say in the bucket how the
session ended: a machine that says nothing there is lost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, final

from pytest_dsql.aws.failures import AwsError
from pytest_dsql.aws.sessions import Clients
from pytest_dsql.aws.waiting import Clock, until
from pytest_dsql.results.reader import FILE_NAME
from pytest_dsql.runner.job import VARIABLE, Job
from pytest_dsql.runner.store import JOB, RESULTS, TESTS, Store

STATUS: Final = "status.json"
#: Where pytest writes its results there.
RESULTS_FOLDER: Final = ".dsql"
LOG: Final = "log"
#: How often what is new goes to the bucket, and how often the machine is asked whether it will be taken away. AWS asks
#: to look every 5 s; the notice comes two minutes ahead (EC2 user guide, "Spot Instance interruption notices").
_SYNC_S: Final = 5.0
#: How long pytest may take to end the cell, and to write what it measured, after the notice.
_END_S: Final = 60.0
#: How long the bucket may refuse what a session has brought.
_TELLING_S: Final = 900.0
_METADATA: Final = "http://169.254.169.254"
_TOKEN_LIFE_S: Final = 21_600


@final
class Notice:
    """Asks the instance's metadata service (IMDSv2) whether the instance will be taken away."""

    def __init__(self) -> None:
        # The AWS SDKs' own variables.
        self._address = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _METADATA).rstrip("/")
        self._off = os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true"
        self._token: str | None = None
        self._token_until = 0.0

    def given(self) -> bool:
        """Tell whether there is a notice. A metadata service that doesn't answer gives none."""
        if self._off:
            return False
        try:
            return self._asked("latest/meta-data/spot/instance-action") is not None
        except OSError:
            return False

    def _asked(self, path: str) -> str | None:
        if self._token is None or time.monotonic() > self._token_until:
            life = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE_S)}
            self._token = self._read("latest/api/token", life, method="PUT")
            self._token_until = time.monotonic() + _TOKEN_LIFE_S / 2
        return self._read(path, {"X-aws-ec2-metadata-token": self._token or ""})

    def _read(self, path: str, headers: dict[str, str], method: str = "GET") -> str | None:
        # The address is the machine's own, or what its environment says of it.
        request = urllib.request.Request(f"{self._address}/{path}", headers=headers, method=method)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=2.0) as answer:  # noqa: S310
                text: str = answer.read().decode()
                return text
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise


def prepare(store: Store, folder: Path) -> tuple[Job, Path]:
    """Fetch the job, the tests, and what an earlier machine has measured; return the job and where to run it."""
    text = store.get(JOB)
    packed = store.get(TESTS)
    if text is None or packed is None:
        raise SystemExit("the bucket holds no job")
    job = Job.of_json(text.decode())
    (folder / "tests.tar.gz").write_bytes(packed)
    with tarfile.open(folder / "tests.tar.gz") as tests:
        # Python knows filters from 3.11.4 on; before, the archive is taken as it is: ours, from the run's own bucket.
        tests.extraction_filter = getattr(tarfile, "data_filter", None)
        tests.extractall(folder / "tests")  # noqa: S202
    where = folder / "tests" / job.directory
    where.mkdir(parents=True, exist_ok=True)
    results = where / RESULTS_FOLDER / job.run
    store.fetch(RESULTS, results)
    job = replace(job, resume=(results / FILE_NAME).is_file())
    return job, where


def run(
    store: Store,
    prefix: str,
    folder: Path,
    *,
    notice: Callable[[], bool],
    sync_s: float = _SYNC_S,
    clock: Clock | None = None,
) -> dict[str, object]:
    """Run the session to its end, or to the machine's. Return what was said of it in the bucket."""
    job, where = prepare(store, folder)
    path = folder / "job.json"
    path.write_text(job.to_json(), encoding="utf-8")
    results = where / RESULTS_FOLDER / job.run
    log = folder / LOG
    with log.open("wb") as output:
        session = subprocess.Popen(
            [sys.executable, "-u", "-m", "pytest", *job.arguments],
            cwd=where,
            env={**os.environ, VARIABLE: str(path)},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))

    def synchronise() -> None:
        if results.is_dir():
            store.send(results, RESULTS, last=FILE_NAME)
        store.put(f"{prefix}{LOG}", log.read_bytes())

    try:
        interrupted = False
        while session.poll() is None and not interrupted:
            _wait(session, sync_s)
            try:
                synchronise()
            except AwsError as error:
                if not error.passing:
                    raise  # else the next time
            # A session that has ended by itself is whole, whatever becomes of the machine.
            interrupted = session.poll() is None and (bool(told) or notice())
        if interrupted:
            session.send_signal(signal.SIGTERM)
            _wait(session, _END_S)
    finally:
        if session.poll() is None:
            session.kill()
        code = session.wait()
    status: dict[str, object] = {"state": "interrupted" if interrupted else "finished", "exit": code}

    def tell() -> dict[str, object]:
        synchronise()
        store.put_json(f"{prefix}{STATUS}", status)
        return status

    return until(tell, what="sending the results", limit_s=_TELLING_S, clock=clock)


def _wait(session: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        session.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return


def main(arguments: list[str]) -> int:
    """Run the session that the bucket describes."""
    bucket, region, prefix, directory = arguments
    store = Store(Clients(), region, bucket)
    print(json.dumps(run(store, prefix, Path(directory), notice=Notice().given)))  # noqa: T201 - for the command's record
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
