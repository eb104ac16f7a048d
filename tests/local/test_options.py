from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.local.limits import NAMES, Limits
from pytest_dsql.local.options import SETTINGS, EngineOptions, settings_help


def test_settings_change_what_they_name() -> None:
    options = EngineOptions(port=6543).with_settings({"region": "eu-west-1", "rules": "2026-07-01"})
    assert options == EngineOptions(port=6543, region="eu-west-1", rules=date(2026, 7, 1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"latencies": "1"}, "unknown setting 'latencies'; known: region, rules, durable"),
        ({"rules": "yesterday"}, "write it like rules=2026-07-01"),
        ({"rules": "2025-05-26"}, "general availability, 2025-05-27"),
        ({"region": "Frankfurt"}, "not the name of a region"),
        ({"durable": "yes"}, "write durable=on or durable=off"),
        ({"connections": "2.5"}, "connections=2.5: a whole number, 0 or more"),
        ({"session_s": "-1"}, "session_s=-1: a number, 0 or more"),
    ],
)
def test_wrong_settings_are_usage_errors(settings: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        EngineOptions().with_settings(settings)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_out_of_range_is_a_usage_error(port: int) -> None:
    with pytest.raises(UsageError, match="between 1 and 65535"):
        EngineOptions(port=port)


@pytest.mark.parametrize(
    "options",
    [
        EngineOptions(),
        EngineOptions(
            1234, Path("/data"), "eu-west-1", date(2026, 7, 1), "namespace", durable=False, limits=Limits(session_s=2)
        ),
    ],
)
def test_options_survive_the_way_to_the_engine(options: EngineOptions) -> None:
    assert EngineOptions.from_json(options.to_json()) == options


def test_every_limit_is_a_setting() -> None:
    assert set(NAMES) < set(SETTINGS)
    options = EngineOptions().with_settings({"session_s": "2.5", "connections": "3"})
    assert options.limits == Limits(session_s=2.5, connections=3)


def test_the_help_tells_what_dsql_has() -> None:
    assert "  transaction_bytes   DSQL's: 10485760\n" in settings_help()
