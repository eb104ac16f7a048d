"""What AWS's refusals mean, and one clear line for each that a person can do something about.

Codes are those of botocore's service models and of the IAM, STS and EC2 user guides' pages on common errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, final

from pytest_dsql.errors import DsqlError
from pytest_dsql.masking import mask


class Failure(Enum):
    """What a failed call means to whoever made it."""

    DENIED = "denied"  #: a permission is missing
    CREDENTIALS = "credentials"  #: there are none, or they are refused, or have expired
    THROTTLED = "throttled"  #: too many calls; later it may work
    UNREACHABLE = "unreachable"  #: no answer: it may have been carried out all the same
    SERVICE = "service"  #: the service failed: it may have been carried out all the same
    QUOTA = "quota"  #: the account has as many as it may have
    CAPACITY = "capacity"  #: AWS itself has none to give now
    NOT_FOUND = "not_found"  #: there is none, or not yet
    TAKEN = "taken"  #: the name is taken
    CONFLICT = "conflict"  #: it is not in a state for that, or others depend on it; later it may work
    INVALID = "invalid"  #: a value is wrong
    OTHER = "other"


#: Failures after which the same call may succeed by itself.
PASSING: Final = frozenset({Failure.THROTTLED, Failure.UNREACHABLE, Failure.SERVICE})
#: Failures after which it is not known whether the call was carried out.
UNKNOWN_OUTCOME: Final = frozenset({Failure.UNREACHABLE, Failure.SERVICE})

_BY_CODE: Final = {
    "RequestExpired": Failure.CREDENTIALS,
    "ExpiredToken": Failure.CREDENTIALS,
    "ExpiredTokenException": Failure.CREDENTIALS,
    "InvalidClientTokenId": Failure.CREDENTIALS,
    "UnrecognizedClientException": Failure.CREDENTIALS,
    "InvalidAccessKeyId": Failure.CREDENTIALS,
    "InvalidToken": Failure.CREDENTIALS,
    "SignatureDoesNotMatch": Failure.CREDENTIALS,
    "InvalidSignatureException": Failure.CREDENTIALS,
    "IncompleteSignature": Failure.CREDENTIALS,
    "MissingAuthenticationToken": Failure.CREDENTIALS,
    "AuthFailure": Failure.CREDENTIALS,
    "AccessDenied": Failure.DENIED,
    "AccessDeniedException": Failure.DENIED,
    "UnauthorizedOperation": Failure.DENIED,
    "UnauthorizedException": Failure.DENIED,
    "NotAuthorized": Failure.DENIED,
    "Forbidden": Failure.DENIED,
    "403": Failure.DENIED,  # S3's HEAD has no body to name a code in
    "OptInRequired": Failure.DENIED,
    "Throttling": Failure.THROTTLED,
    "ThrottlingException": Failure.THROTTLED,
    "ThrottledException": Failure.THROTTLED,
    "RequestThrottled": Failure.THROTTLED,
    "RequestLimitExceeded": Failure.THROTTLED,
    "TooManyRequestsException": Failure.THROTTLED,
    "SlowDown": Failure.THROTTLED,
    "BandwidthLimitExceeded": Failure.THROTTLED,
    "InternalServerException": Failure.SERVICE,
    "InternalServerError": Failure.SERVICE,
    "InternalFailure": Failure.SERVICE,
    "InternalError": Failure.SERVICE,
    "ServiceUnavailable": Failure.SERVICE,
    "ServiceUnavailableException": Failure.SERVICE,
    "ServiceException": Failure.SERVICE,
    "Unavailable": Failure.SERVICE,
    "LimitExceeded": Failure.QUOTA,
    "LimitExceededException": Failure.QUOTA,
    "StorageQuotaExceeded": Failure.QUOTA,
    "CodeStorageExceededException": Failure.QUOTA,
    "TooManyBuckets": Failure.QUOTA,
    "AddressLimitExceeded": Failure.QUOTA,
    "MaxSpotInstanceCountExceeded": Failure.QUOTA,
    "NoSuchEntity": Failure.NOT_FOUND,
    "NoSuchBucket": Failure.NOT_FOUND,
    "NoSuchKey": Failure.NOT_FOUND,
    "NoSuchUpload": Failure.NOT_FOUND,
    "404": Failure.NOT_FOUND,
    "InvocationDoesNotExist": Failure.NOT_FOUND,
    "StateMachineDoesNotExist": Failure.NOT_FOUND,
    "ExecutionDoesNotExist": Failure.NOT_FOUND,
    "EntityAlreadyExists": Failure.TAKEN,
    "BucketAlreadyOwnedByYou": Failure.TAKEN,
    "BucketAlreadyExists": Failure.TAKEN,
    "DependencyViolation": Failure.CONFLICT,
    "DeleteConflict": Failure.CONFLICT,
    "ConflictException": Failure.CONFLICT,
    "ConcurrentModification": Failure.CONFLICT,
    "ResourceConflictException": Failure.CONFLICT,
    "ResourceInUseException": Failure.CONFLICT,
    "OperationAborted": Failure.CONFLICT,
    "BucketNotEmpty": Failure.CONFLICT,
    "IncorrectInstanceState": Failure.CONFLICT,
    "ValidationException": Failure.INVALID,
    "ValidationError": Failure.INVALID,
    "InvalidParameterException": Failure.INVALID,
}
#: Families of codes, asked in this order when the code itself isn't listed.
_BY_PATTERN: Final = tuple(
    (re.compile(pattern), failure)
    for pattern, failure in (
        (r"(Quota|Limit)(s)?(Exceeded|Reached)|LimitExceeded", Failure.QUOTA),
        (r"^Insufficient\w*Capacity|^InsufficientStorage|CapacityNotAvailable|^NoCapacity", Failure.CAPACITY),
        (r"NotFound(Fault|Exception)?$|\.NotFound$|DoesNotExist$|^InvalidSubnet$", Failure.NOT_FOUND),
        (r"AlreadyExists|\.Duplicate$|^Duplicate|AlreadyOwned|NameTaken", Failure.TAKEN),
        (r"^Invalid\w*State(Fault|Exception)?$|InUse$|Conflict", Failure.CONFLICT),
        (r"^Invalid|Malformed|^MissingParameter|Validation|^Unsupported", Failure.INVALID),
    )
)
_BY_STATUS: Final = {402: Failure.QUOTA, 403: Failure.DENIED, 404: Failure.NOT_FOUND, 429: Failure.THROTTLED}

#: IAM's prefix of a service's actions where it is not the name in its signatures, and its action where that isn't the
#: operation's name (Service Authorization Reference).
_PREFIXES: Final = {"monitoring": "cloudwatch", "events": "events"}
_ACTIONS: Final = {
    ("s3", "HeadBucket"): "s3:ListBucket",
    ("s3", "ListObjectsV2"): "s3:ListBucket",
    ("s3", "HeadObject"): "s3:GetObject",
    ("s3", "DeleteObjects"): "s3:DeleteObject",
    ("s3", "ListObjectVersions"): "s3:ListBucketVersions",
    ("s3", "ListMultipartUploads"): "s3:ListBucketMultipartUploads",
    ("s3", "ListBuckets"): "s3:ListAllMyBuckets",
    ("lambda", "Invoke"): "lambda:InvokeFunction",
}

#: Characters of somebody else's text that are shown.
_LONGEST: Final = 400
_ARN: Final = re.compile(r"arn:aws[a-z-]*:[^\s'\",;)\]]*")
_NAMED_ACTION: Final = re.compile(r"not authorized to perform:?\s+([a-z0-9-]+:[A-Za-z*]+)")


@final
class AwsError(DsqlError):
    """A call that AWS refused or did not answer. The text is one line without ARNs and account ids."""

    def __init__(
        self,
        message: str,
        *,
        failure: Failure,
        code: str,
        action: str,
        region: str,
        retry_after_s: float | None = None,
        retried: bool = False,
    ) -> None:
        super().__init__(message)
        self.failure = failure
        self.code = code  #: the service's own, or botocore's class
        self.action = action  #: the IAM action, like `dsql:CreateCluster`
        self.region = region
        self.retry_after_s = retry_after_s  #: how long the service asked to wait
        self.retried = retried  #: botocore had sent it before, with an outcome that it doesn't tell

    @property
    def passing(self) -> bool:
        """Tell whether the same call may succeed by itself later."""
        return self.failure in PASSING

    @property
    def outcome_unknown(self) -> bool:
        """Tell whether the call may have been carried out although it failed, in this try or in one before it."""
        return self.retried or self.failure in UNKNOWN_OUTCOME


@contextmanager
def not_found_is_fine() -> Iterator[None]:
    """Pass over an AwsError that says there is none: for removing what may be gone already."""
    try:
        yield
    except AwsError as error:
        if error.failure is not Failure.NOT_FOUND:
            raise


def action_of(signing_name: str, operation: str) -> str:
    """Return the IAM action that a call needs."""
    return _ACTIONS.get((signing_name, operation)) or f"{_PREFIXES.get(signing_name, signing_name)}:{operation}"


def explained(error: Exception, *, service: str, operation: str, region: str) -> AwsError:
    """Make our own error of botocore's. `service` is the name in signatures, `operation` the API's (CreateCluster)."""
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        ConnectionClosedError,
        ConnectTimeoutError,
        CredentialRetrievalError,
        EndpointConnectionError,
        HTTPClientError,
        NoCredentialsError,
        PartialCredentialsError,
        ReadTimeoutError,
    )
    from botocore.parsers import ResponseParserError

    action = action_of(service, operation)
    if isinstance(error, ClientError):
        return _refused(error.response, action=action, region=region)
    code = type(error).__name__
    text = one_line(str(error))
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError):
        failure = Failure.UNREACHABLE
        said = (
            f"{action}: nothing answers for {service} in {region}: see that the Region is right (--dsql-region), and "
            "the network open"
        )
    elif isinstance(error, ReadTimeoutError | ConnectionClosedError | HTTPClientError):
        failure, said = Failure.UNREACHABLE, f"{action} in {region} got no answer: {text}"
    elif isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        failure, said = Failure.CREDENTIALS, f"{action} in {region}: no usable AWS credentials ({text}); {_SIGN_IN}"
    elif isinstance(error, ResponseParserError):
        failure = Failure.UNREACHABLE
        said = f"{action} in {region} got an answer that is none of AWS's: is there a proxy in between?"
    elif isinstance(error, BotoCoreError):
        failure, said = Failure.INVALID, f"{action} in {region} could not be asked: {text}"
    else:
        failure, said = Failure.OTHER, f"{action} in {region} failed: {text}"
    return AwsError(said, failure=failure, code=code, action=action, region=region)


_SIGN_IN: Final = "sign in again (`aws sso login`), name another profile (--dsql-profile), or renew the keys"


def _refused(response: Any, *, action: str, region: str) -> AwsError:
    details = response.get("Error", {})
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    code = str(details.get("Code", "")) or str(status)
    message = str(details.get("Message") or "")
    failure = failure_of(code, status)
    if named := _NAMED_ACTION.search(message):
        action = named[1]
    text = one_line(message) or code
    said = {
        Failure.DENIED: f"{action} is not allowed in {region} ({code}): add it to the policy of whoever runs this; "
        "`pytest-dsql policy TARGET` prints what a target needs",
        Failure.CREDENTIALS: f"{action} in {region}: AWS does not accept these credentials ({code}); {_SIGN_IN}",
        Failure.THROTTLED: f"{action} in {region} was throttled ({code}): try later",
        Failure.QUOTA: f"{action} in {region}: a quota of the account is used up ({code}: {text}); remove what is left "
        "(`pytest-dsql reap`), or ask for more (Service Quotas)",
        Failure.CAPACITY: f"{action} in {region}: AWS has none to give now ({code}: {text}); try another zone, class "
        "or Region, or later",
        Failure.SERVICE: f"{action} in {region}: the service failed ({code}: {text}); try again",
    }.get(failure, f"{action} in {region}: {code}: {text}")
    wait = str(headers.get("retry-after", ""))
    return AwsError(
        said,
        failure=failure,
        code=code,
        action=action,
        region=region,
        retry_after_s=float(wait) if wait.isdecimal() else None,
        retried=int(response.get("ResponseMetadata", {}).get("RetryAttempts", 0)) > 0,
    )


def failure_of(code: str, status: int = 0) -> Failure:
    """Tell what a service's error code means; the HTTP status decides where the code says nothing."""
    code = code.removeprefix("Client.").removeprefix("Server.")
    if code in _BY_CODE:
        return _BY_CODE[code]
    for pattern, failure in _BY_PATTERN:
        if pattern.search(code):
            return failure
    if status >= 500:
        return Failure.SERVICE
    return _BY_STATUS.get(status, Failure.OTHER)


def one_line(text: str) -> str:
    """Return what somebody else said as one line to show: without ARNs, account ids and secrets."""
    said = mask(_ARN.sub("<arn>", " ".join(text.split()))).rstrip(".")
    # What isn't AWS's own may be a whole page.
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST].rstrip()}..."
