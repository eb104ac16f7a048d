"""Buckets of S3, with what is in them. Source: botocore's `s3` model (2006-03-01).

A bucket goes only when it is empty: of every version of every object and every delete marker (an account may have
switched versioning on), and of uploads in parts that were never completed (S3 user guide, "Deleting a general purpose
bucket", "Deleting object versions from a versioning-enabled bucket", "Aborting a multipart upload").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

from pytest_dsql.aws.failures import AwsError, Failure, failure_of, not_found_is_fine, one_line
from pytest_dsql.aws.inventory import Entry
from pytest_dsql.aws.resources import RUN_TAG, tagged, tags_of
from pytest_dsql.aws.sessions import Clients

#: What all our buckets' names begin with.
PREFIX: Final = "pytest-dsql-"
#: The most that one call removes.
_BATCH: Final = 1000


@final
class S3Bucket:
    """A bucket. Its name is unique in the world and holds the run's id."""

    kind: Final = "s3-bucket"
    rank: Final = 20

    def find(self, clients: Clients, entry: Entry) -> str | None:
        """By its name, among the account's own, when it has our tag - or none: a bucket is tagged after it is made.

        Nobody else makes a bucket of that name by chance: the run's id in it was drawn at random.
        """
        tags = _tags(clients, entry.region, entry.name)
        return entry.name if tags is not None and tags.get(RUN_TAG, entry.run) == entry.run else None

    def delete(self, clients: Clients, entry: Entry) -> None:
        """Empty it, then remove it."""
        region, bucket = entry.region, entry.name
        with not_found_is_fine():
            for one in list(clients.pages("s3", region, "list_multipart_uploads", "Uploads", Bucket=bucket)):
                with not_found_is_fine():  # completed or aborted by whoever began it
                    clients.call(
                        "s3",
                        region,
                        "abort_multipart_upload",
                        Bucket=bucket,
                        Key=one["Key"],
                        UploadId=one["UploadId"],
                    )
            for kind in ("Versions", "DeleteMarkers"):
                # In a bucket that never had versions each object is one, with the id "null".
                found = [
                    {"Key": one["Key"], "VersionId": one["VersionId"]}
                    for one in clients.pages("s3", region, "list_object_versions", kind, Bucket=bucket)
                ]
                for first in range(0, len(found), _BATCH):
                    _delete(clients, region, bucket, found[first : first + _BATCH])
            clients.call("s3", region, "delete_bucket", Bucket=bucket)

    def gone(self, clients: Clients, entry: Entry) -> bool:
        """Gone when there is no such bucket; one that was written to meanwhile is emptied once more."""
        if _tags(clients, entry.region, entry.name) is None:
            return True
        self.delete(clients, entry)
        return _tags(clients, entry.region, entry.name) is None

    def scan(self, clients: Clients, region: str) -> list[Entry]:
        """Our buckets in the Region."""
        found = []
        for name in _own(clients, region):
            entry = tagged(self.kind, region, arn=name, name=name, tags=_tags(clients, region, name) or {})
            if entry is not None:
                found.append(entry)
        return found


def _delete(clients: Clients, region: str, bucket: str, objects: Sequence[dict[str, Any]]) -> None:
    """Delete versions of objects. Raises AwsError for the first that S3 refuses: the call itself succeeds then."""
    answer = clients.call(
        "s3", region, "delete_objects", Bucket=bucket, Delete={"Objects": list(objects), "Quiet": True}
    )
    for refused in answer.get("Errors", ()):
        code, action = str(refused.get("Code", "")), "s3:DeleteObject"
        raise AwsError(
            f"{action} or {action}Version in {region}: S3 kept {len(answer['Errors'])} objects of {bucket} ({code}: "
            f"{one_line(str(refused.get('Message') or code))})",
            failure=failure_of(code),
            code=code,
            action=action,
            region=region,
        )


def _tags(clients: Clients, region: str, bucket: str) -> dict[str, str] | None:
    """Return a bucket's tags, None when the account has no such bucket in the Region. Raises AwsError."""
    try:
        if clients.call("s3", region, "head_bucket", Bucket=bucket).get("BucketRegion", region) != region:
            return None
    except AwsError as error:
        # Of somebody else's bucket and of one's own without the permission S3 says the same: forbidden.
        if error.failure is Failure.DENIED and bucket in _own(clients, region):
            raise
        if error.failure in (Failure.NOT_FOUND, Failure.DENIED):
            return None
        raise
    try:
        return tags_of(clients.call("s3", region, "get_bucket_tagging", Bucket=bucket)["TagSet"])
    except AwsError as error:
        if error.code == "NoSuchTagSet":
            return {}
        if error.failure is Failure.NOT_FOUND:
            return None
        raise


def _own(clients: Clients, region: str) -> list[str]:
    """Return the names of the account's buckets that begin with our prefix."""
    return [str(one["Name"]) for one in clients.pages("s3", region, "list_buckets", "Buckets", Prefix=PREFIX)]
