"""The profiles against the published figures that they are fitted to: transactions drawn from their distributions."""

import random
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_dsql.local.latency import profile as profiles
from pytest_dsql.local.latency.distribution import Distribution
from pytest_dsql.local.latency.profile import Clients, load
from pytest_dsql.local.streams import stream

DRAWS = 10_000
#: Published are single runs; two of them differed by so much.
TOLERANCE = 0.15


def published(name: str) -> dict[str, Any]:
    file = Path(profiles.__file__).parent / "profiles" / f"{name}.toml"
    figures: dict[str, Any] = tomllib.loads(file.read_text())["published"]
    return figures


def quantiles(draw: Callable[[random.Random], float], *shares: float) -> list[float]:
    rng = stream(1, "published")
    drawn = sorted(draw(rng) for _ in range(DRAWS))
    return [drawn[int(share * DRAWS)] for share in shares]


def round_trips(clients: Clients, rng: random.Random, *served: Distribution) -> float:
    return sum(clients.rtt.sample_ms(rng) + one.sample_ms(rng) for one in served)


SEOUL = load("seoul-2026-09").region(0)
_STATEMENT, _COMMIT = SEOUL.statement, SEOUL.commit


def product_read(rng: random.Random) -> float:
    return round_trips(SEOUL, rng, _STATEMENT.begin, _STATEMENT.point_read, _COMMIT.reading)


def order_history(rng: random.Random) -> float:
    return round_trips(SEOUL, rng, _STATEMENT.begin, _STATEMENT.read, _COMMIT.reading)


def order_create(rng: random.Random) -> float:
    lines = rng.randint(1, 3)
    statements = [_STATEMENT.begin, _STATEMENT.point_read, *[_STATEMENT.update] * lines, *[_STATEMENT.insert] * 4]
    return round_trips(SEOUL, rng, *statements, _COMMIT.writing)


def order_cancel(rng: random.Random) -> float:
    lines = rng.randint(1, 3)
    statements = [_STATEMENT.begin, _STATEMENT.point_read, _STATEMENT.update, _STATEMENT.read]
    statements += [*[_STATEMENT.update] * lines, *[_STATEMENT.insert] * 2]
    return round_trips(SEOUL, rng, *statements, _COMMIT.writing)


@pytest.mark.parametrize("transaction", [product_read, order_history, order_create, order_cancel])
def test_seouls_order_workload(transaction: Callable[[random.Random], float]) -> None:
    figures = published("seoul-2026-09")[transaction.__name__]
    assert quantiles(transaction, 0.95, 0.99) == pytest.approx(figures, rel=TOLERANCE)


def test_seouls_kept_connections() -> None:
    figures = published("seoul-2026-09")["kept_connection_p50_p99"]
    assert quantiles(lambda rng: round_trips(SEOUL, rng, _STATEMENT.point_read), 0.5, 0.99) == pytest.approx(
        figures, rel=TOLERANCE
    )


def test_seouls_new_connections() -> None:
    def connect(rng: random.Random) -> float:
        phases = SEOUL.connect
        made = sum(one.sample_ms(rng) for one in (phases.tcp, phases.tls, phases.authentication, phases.startup))
        return made + round_trips(SEOUL, rng, _STATEMENT.other)

    figures = published("seoul-2026-09")["new_connection_p50_p95_p99"]
    assert quantiles(connect, 0.5, 0.95, 0.99) == pytest.approx(figures, rel=TOLERANCE)


@pytest.mark.parametrize(("profile", "region"), [("us-east-1-2026", 0), ("multi-region", 0), ("multi-region", 1)])
def test_the_papers_percentiles(profile: str, region: int) -> None:
    clients = load(profile).region(region)
    for figure, served in (
        ("select_p99", clients.statement.point_read),
        ("update_p99", clients.statement.update),
        ("reading_commit_p99", clients.commit.reading),
        ("writing_commit_p99", clients.commit.writing),
    ):
        expected = published(profile)[figure]
        expected = expected[region] if isinstance(expected, list) else expected
        drawn = quantiles(lambda rng, one=served: round_trips(clients, rng, one), 0.99)  # type: ignore[misc]
        assert drawn == pytest.approx([expected], rel=TOLERANCE), figure
