"""An AWS account in memory (moto), and what moto lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import pytest
from moto import mock_aws

from pytest_dsql.aws.sessions import Clients
from pytest_dsql.connect.credentials import forget_credentials

#: operation (`GetProducts`) -> answers to the parameters it is called with
Answers: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], Any]]


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """Clients of an empty account."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    forget_credentials()
    with mock_aws():
        yield Clients()
    forget_credentials()


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], list[tuple[str, Mapping[str, Any]]]]:
    """Stub operations at the botocore level; everything else goes to moto. Returns the calls, as they come.

    For what moto 5.2 doesn't have: `pricing` (no implementation at all), and `ce`'s ListCostAllocationTags and figures
    (its GetCostAndUsage answers what was put into it, without filter and groups). Parameters are checked against
    botocore's model all the same, by its own validator.
    """
    from botocore.client import BaseClient
    from botocore.validate import ParamValidator

    original = BaseClient._make_api_call
    calls: list[tuple[str, Mapping[str, Any]]] = []
    known: dict[str, Callable[[Mapping[str, Any]], Any]] = {}

    def call(self: Any, operation: str, parameters: Mapping[str, Any]) -> Any:
        if operation not in known:
            return original(self, operation, parameters)
        shape = self.meta.service_model.operation_model(operation).input_shape
        report = ParamValidator().validate(parameters, shape)
        assert not report.has_errors(), report.generate_report()
        calls.append((operation, parameters))
        return known[operation](parameters)

    def stub(answers: Answers) -> list[tuple[str, Mapping[str, Any]]]:
        known.update(answers)
        monkeypatch.setattr(BaseClient, "_make_api_call", call)
        return calls

    return stub


def refusal(code: str, status: int = 400) -> Callable[[Mapping[str, Any]], Any]:
    """Answer an operation with an error."""
    from botocore.exceptions import ClientError

    def refuse(_parameters: Mapping[str, Any]) -> Any:
        message = "User: arn:aws:sts::123456789012:assumed-role/x/y is not authorized to perform: some:Thing"
        raise ClientError(
            {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Operation"
        )

    return refuse


def product(usage_type: str, usd: str, **attributes: str) -> str:
    """A product as the Price List API gives it: JSON in a text (AWS Billing user guide, "Reading a price list")."""
    return json.dumps(
        {
            "product": {"sku": "X", "productFamily": "F", "attributes": {"usagetype": usage_type, **attributes}},
            "terms": {
                "OnDemand": {
                    "X.T": {
                        "priceDimensions": {"X.T.D": {"unit": "u", "pricePerUnit": {"USD": usd}, "beginRange": "0"}}
                    }
                }
            },
        }
    )
