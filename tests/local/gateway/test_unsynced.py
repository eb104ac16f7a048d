"""What comes after an error and before the Sync is ignored, whatever failed and whatever comes."""

from __future__ import annotations

import pytest

from pytest_dsql.local.gateway import frames
from tests.local.gateway.fuzzing.streams import SYNC, bind, describe, execute, parse, query
from tests.local.gateway.harness import RawClient, RunningGateway

FAILING = [describe("P"), bind(statement="nobody"), parse("SELEC 1"), execute("nobody")]
IGNORED = [query("SELECT 1"), frames.message(frames.FUNCTION_CALL, b"abc"), parse("SELECT 1"), execute()]


@pytest.mark.parametrize("failing", FAILING, ids=["Describe", "Bind", "Parse", "Execute"])
@pytest.mark.parametrize("ignored", IGNORED, ids=["Query", "FunctionCall", "Parse", "Execute"])
def test_an_error_is_told_once_up_to_the_sync(served: RunningGateway, failing: bytes, ignored: bytes) -> None:
    with RawClient(served) as client:
        client.logged_in()
        client.send(failing + ignored + SYNC + query("SELECT 'after'"))
        assert [kind for kind, _ in client.until_ready()] == ["E", "Z"]
        assert [kind for kind, _ in client.until_ready()] == ["T", "D", "C", "Z"]
