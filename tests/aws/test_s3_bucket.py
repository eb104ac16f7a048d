"""A bucket goes with all that can be in one."""

from __future__ import annotations

import pytest

from pytest_dsql.aws.creating import Made
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.kinds.s3_bucket import S3Bucket
from pytest_dsql.aws.run import AwsRun
from tests.aws.clusters import REGION


@pytest.fixture
def bucket(run: AwsRun) -> Entry:
    def call(entry: Entry) -> Made:
        run.clients.call("s3", REGION, "create_bucket", Bucket=entry.name)
        return Made(entry.name)

    return run.create("s3-bucket", run.name("runner"), call)


def buckets(run: AwsRun) -> list[str]:
    return [one["Name"] for one in run.clients.call("s3", REGION, "list_buckets")["Buckets"]]


@pytest.mark.parametrize("versioned", [False, True])
def test_it_goes_with_versions_delete_markers_and_unfinished_uploads(
    run: AwsRun, bucket: Entry, versioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_dsql.aws.kinds.s3_bucket._BATCH", 2)
    where = {"Bucket": bucket.name}
    if versioned:
        status = {"Status": "Enabled"}
        run.clients.call("s3", REGION, "put_bucket_versioning", VersioningConfiguration=status, **where)
    for key in ("log", "results", "log", "job"):
        run.clients.call("s3", REGION, "put_object", Key=key, Body=b"x", **where)
    run.clients.call("s3", REGION, "delete_object", Key="log", **where)
    for number in (1, 2):
        upload = run.clients.call("s3", REGION, "create_multipart_upload", Key=f"big-{number}", **where)["UploadId"]
        part = {"Key": f"big-{number}", "UploadId": upload, "PartNumber": 1}
        run.clients.call("s3", REGION, "upload_part", Body=b"x", **part, **where)
    found = run.clients.call("s3", REGION, "list_object_versions", **where)
    assert len(found["Versions"]) == (4 if versioned else 2)
    assert len(found.get("DeleteMarkers", ())) == (1 if versioned else 0)
    S3Bucket().delete(run.clients, bucket)
    assert buckets(run) == []
    assert run.remove().remaining == []


def test_what_s3_keeps_of_it_is_said(run: AwsRun, bucket: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """DeleteObjects succeeds, and its answer names what it didn't delete: moto enforces no policy."""
    run.clients.call("s3", REGION, "put_object", Bucket=bucket.name, Key="log", Body=b"x")
    real = type(run.clients).call

    def call(self: object, service: str, region: str, operation: str, /, **parameters: object) -> dict[str, object]:
        if operation == "delete_objects":
            return {"Errors": [{"Key": "log", "Code": "AccessDenied", "Message": "no, arn:aws:iam::111122223333:u"}]}
        return real(self, service, region, operation, **parameters)  # type: ignore[arg-type]

    monkeypatch.setattr(type(run.clients), "call", call)
    [(entry, reason)] = run.remove().remaining
    assert entry.name == bucket.name
    assert reason.startswith("s3:DeleteObject or s3:DeleteObjectVersion in us-east-1: S3 kept 1 objects of pytest-dsql")
    assert "(AccessDenied: no" in reason
    assert "111122223333" not in reason
