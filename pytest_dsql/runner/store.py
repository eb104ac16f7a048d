"""The bucket through which a run and the machine that makes its load give each other files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure
from pytest_dsql.aws.sessions import Clients

#: Where things lie in it.
PACKAGE: Final = "package/"
RESULTS: Final = "results/"
TESTS: Final = "tests.tar.gz"
JOB: Final = "job.json"


@final
class Store:
    """One bucket. Methods raise AwsError."""

    def __init__(self, clients: Clients, region: str, bucket: str) -> None:
        self._clients = clients
        self._region = region
        self.bucket: Final = bucket
        self._sent: dict[Path, tuple[int, int]] = {}

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        self._clients.call("s3", self._region, "put_object", Bucket=self.bucket, Key=key, Body=content)

    def get(self, key: str, *, after: int = 0) -> bytes | None:
        """Read an object from a place on; None when there is none, empty when there is nothing after it."""
        span = {"Range": f"bytes={after}-"} if after else {}
        try:
            answer = self._clients.call("s3", self._region, "get_object", Bucket=self.bucket, Key=key, **span)
        except AwsError as error:
            if error.failure is Failure.NOT_FOUND:
                return None
            if error.code == "InvalidRange":
                return b""
            raise
        from botocore.exceptions import BotoCoreError

        try:
            content: bytes = answer["Body"].read()
        except BotoCoreError as error:  # the answer broke off
            said, broken = str(error), type(error).__name__
        else:
            return content
        raise AwsError(
            f"s3:GetObject in {self._region}: {said}",
            failure=Failure.UNREACHABLE,
            code=broken,
            action="s3:GetObject",
            region=self._region,
        )

    def put_json(self, key: str, value: Any) -> None:
        """Write an object of JSON."""
        self.put(key, json.dumps(value).encode())

    def get_json(self, key: str) -> Any:
        """Read an object of JSON; None when there is none."""
        text = self.get(key)
        return None if text is None else json.loads(text)

    def send(self, folder: Path, prefix: str, *, last: str = "") -> None:
        """Write the files of a folder that have changed since the last time; the one named `last` after the others.

        Names that begin with a dot are left out: locks, and files that are not whole yet.
        """
        names = sorted(one for one in folder.rglob("*") if one.is_file() and not one.name.startswith("."))
        for path in sorted(names, key=lambda one: one.name == last):
            try:
                facts = path.stat()
                known = (facts.st_size, facts.st_mtime_ns)
                if self._sent.get(path) == known:
                    continue
                content = path.read_bytes()
            except FileNotFoundError:
                continue  # removed or replaced meanwhile: the next time
            self.put(f"{prefix}{path.relative_to(folder).as_posix()}", content)
            self._sent[path] = known

    def fetch(self, prefix: str, folder: Path, *, but: str = "\0") -> list[Path]:
        """Write the objects of a prefix into a folder, but for those whose names there begin with `but`."""
        fetched = []
        pages = self._clients.pages(
            "s3", self._region, "list_objects_v2", "Contents", Bucket=self.bucket, Prefix=prefix
        )
        for key in [str(one["Key"]) for one in pages]:
            name = key.removeprefix(prefix)
            path = folder / name
            if name.startswith(but) or not path.resolve().is_relative_to(folder.resolve()):
                continue
            content = self.get(key)
            if content is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                fetched.append(path)
        return fetched
