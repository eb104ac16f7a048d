"""Answers that moto doesn't give, as the service would send them: put under botocore, so that all above it is real."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSResponse
from moto.core.botocore_stubber import BotocoreStubber


class _Raw(io.BytesIO):
    """What botocore reads a body from."""

    def stream(self, **_named: object) -> Iterator[bytes]:
        yield self.read()


def answer(status: int, code: str, message: str, **headers: str) -> AWSResponse:
    """Make an error answer of a service that speaks REST and JSON."""
    body = json.dumps({"message": message}).encode()
    return AWSResponse("https://example.invalid", status, {"x-amzn-errortype": code, **headers}, _Raw(body))


def xml_answer(status: int, code: str, message: str) -> AWSResponse:
    """Make an error answer of a service that speaks XML (STS, RDS, EC2)."""
    body = f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    return AWSResponse("https://example.invalid", status, {}, _Raw(body.encode()))


@contextmanager
def answering(operation: str, give: Callable[[], AWSResponse | None]) -> Iterator[list[int]]:
    """Ask `give` before each request of an operation (`dsql.CreateCluster`); None lets the request through to moto.

    botocore sends, parses and repeats as it would. Gives the list that grows with each answer given.
    """
    given: list[int] = []
    real = BotocoreStubber.__call__

    def stub(self: Any, event_name: str, request: Any, **named: Any) -> Any:
        one = give() if event_name == f"before-send.{operation}" else None
        if one is None:
            return real(self, event_name, request, **named)
        given.append(one.status_code)
        return one

    with patch.object(BotocoreStubber, "__call__", stub):
        yield given
