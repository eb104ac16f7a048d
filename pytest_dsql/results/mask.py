"""Masks every text in what the results say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pytest_dsql.masking import mask

#: Base64 of our own counts: nothing in it can be a secret, and a mask could only break it.
_UNMASKED: Final = ("histogram",)


def masked_value(value: Any) -> Any:
    """Return `value` with every text in it masked, names of objects included."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {
            mask(str(name)): member if name in _UNMASKED else masked_value(member) for name, member in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked_value(member) for member in value]
    return value
