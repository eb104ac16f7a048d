"""What the experiments share: cells sized by the plan and the target."""

from __future__ import annotations

import pytest

from pytest_dsql.fixtures import plan_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `connections` and `burst` the values that the plan has for the target."""
    plan = plan_of(metafunc.config)
    if "connections" in metafunc.fixturenames:
        metafunc.parametrize("connections", plan.closed_loop_connections)
    if "burst" in metafunc.fixturenames:
        metafunc.parametrize("burst", plan.bursts)
