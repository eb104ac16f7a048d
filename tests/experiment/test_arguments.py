"""What is asked of a cell, as plain data: alike only when all of it is."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from pytest_dsql.access import HOT, Zipf
from pytest_dsql.experiment.stretch import Shape
from pytest_dsql.load.measurement import Arrival
from pytest_dsql.transaction import Mix, Transaction, transaction


@transaction(kind="read")
def one(ctx: Any) -> Any:
    yield "SELECT 1"


@transaction(kind="read")
def other(ctx: Any) -> Any:
    yield "SELECT 2"


class Shop:
    def __init__(self, scale: int) -> None:
        self.scale = scale


def mix(chosen: Transaction = one, scale: int = 1) -> Mix:
    workload: Any = Shop(scale)
    return Mix({Transaction(chosen.function, "read", "one"): 1.0}, workload=workload)


SHAPE = Shape("test", Arrival("closed"), mix(), 4, 1, 1.0, 8.0, {})


def arguments(shape: Shape) -> str:
    return json.dumps(shape.arguments())


def test_the_same_again_is_alike() -> None:
    assert arguments(SHAPE) == arguments(replace(SHAPE, mix=mix(), warmup_s=1, window_s=8))


@pytest.mark.parametrize(
    "changed",
    [
        {"arrival": Arrival("churn")},
        {"arrival": Arrival("poisson", 5.0)},
        {"mix": mix(other)},
        {"mix": mix(scale=2)},
        {"mix": Mix({one: 1.0})},
        {"mix": Mix({one: 0.5, other: 0.5})},
        {"connections": 5},
        {"workers": 2},
        {"warmup_s": 2.0},
        {"window_s": 9.0},
        {"how": {"access": HOT}},
        {"how": {"access": Zipf(0.99)}},
        {"how": {"attempts": 1}},
        {"how": {"pipeline": True}},
    ],
)
def test_anything_else_is_another_cell(changed: dict[str, Any]) -> None:
    assert arguments(SHAPE) != arguments(replace(SHAPE, **changed))


def test_two_exponents_are_two_cells() -> None:
    first, second = (replace(SHAPE, how={"access": Zipf(exponent)}) for exponent in (0.9, 0.99))
    assert arguments(first) != arguments(second)
