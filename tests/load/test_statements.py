from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.errors import DataError
from psycopg.types.string import StrDumper

from pytest_dsql.load.statements import dump, dumper_of, new_converter

CONVERTER = new_converter()
plain = st.one_of(st.integers(), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.none())
others = st.one_of(st.booleans(), st.floats(), st.decimals(allow_nan=False), st.binary(), st.lists(st.integers()))


def as_bytes(values: Any) -> list[bytes | None]:
    return [None if one is None else bytes(one) for one in values]


@given(st.lists(plain | others, max_size=6))
def test_quick_dumping_is_what_psycopg_does(parameters: list[Any]) -> None:
    assert as_bytes(dumper_of(CONVERTER)(parameters)) == as_bytes(dump(CONVERTER, parameters))


def test_text_with_a_zero_is_refused_as_psycopg_does() -> None:
    with pytest.raises(DataError, match="NUL"):
        dumper_of(CONVERTER)(("a\0b",))


def test_a_registered_dumper_is_used() -> None:
    class Shouting(StrDumper):
        def dump(self, obj: Any) -> bytes:
            return str(obj).upper().encode()

    converter = new_converter()
    converter.adapters.register_dumper(str, Shouting)
    assert as_bytes(dumper_of(converter)(("a", 1, Decimal("1.5")))) == [b"A", b"1", b"1.5"]
