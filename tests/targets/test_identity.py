"""What makes two sessions' targets the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_dsql.connect.endpoint import Endpoint
from pytest_dsql.connect.token import TokenSource
from pytest_dsql.settings import Settings
from pytest_dsql.targets.identity import identity_of
from pytest_dsql.targets.target import Target

HERE = Endpoint("abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws")
THERE = Endpoint("bcdefghijklmnopqrstuvwxyza.dsql.us-east-1.on.aws")


def target(name: str, endpoint: Endpoint = HERE, **facts: object) -> Target:
    engine = object() if name == "local" else None
    facts = {"server": "16", "latency": "none", "region": "us-east-1", **facts}
    return Target(name=name, endpoint=endpoint, tokens=TokenSource(endpoint), facts=facts, engine=engine)


def test_an_endpoint_is_where_it_is() -> None:
    settings = Settings(target="attach")
    assert identity_of(settings, target("attach")) == identity_of(settings, target("attach"))
    assert identity_of(settings, target("attach")) != identity_of(settings, target("attach", THERE))
    assert HERE.host not in str(identity_of(settings, target("attach")))


def test_what_is_created_anew_is_the_same_when_it_was_asked_for_alike() -> None:
    settings = Settings(target="dsql", budget=1.0)
    assert identity_of(settings, target("dsql")) == identity_of(settings, target("dsql", THERE))
    assert identity_of(settings, target("dsql")) != identity_of(
        replace(settings, target_option={"class": "x"}), target("dsql")
    )


@pytest.mark.parametrize("changed", [{"set": {"session_s": "3"}}, {"faults": __file__}])
def test_an_engine_is_how_it_behaves(changed: dict[str, Any]) -> None:
    settings = Settings()
    assert identity_of(settings, target("local")) == identity_of(settings, target("local", THERE))
    assert identity_of(settings, target("local")) != identity_of(settings, target("local", latency="multi-region"))
    assert identity_of(settings, target("local")) != identity_of(replace(settings, **changed), target("local"))
