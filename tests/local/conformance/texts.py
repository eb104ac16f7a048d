"""What stands for something long, or for an earlier answer, in the texts of cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tests.local.conformance.answers import Observation

_PAD: Final = re.compile(r"\{\{pad:(\d+)\}\}")
_VALUES: Final = re.compile(r"\{\{values:(\d+)\.\.(\d+)\}\}")
_COLUMNS: Final = re.compile(r"\{\{columns:(\d+)(?::([^}]+))?\}\}")
_CELL: Final = re.compile(r"\{\{cell:(\d+)\}\}")


def expanded(text: str, history: Sequence[Observation] = ()) -> str:
    """Put what is meant in place of `{{pad:N}}`, `{{values:A..B}}`, `{{columns:N:type}}` and `{{cell:STEP}}`."""
    if "{{" not in text:
        return text
    text = _PAD.sub(lambda found: "x" * int(found[1]), text)
    text = _VALUES.sub(lambda found: ",".join(f"({n})" for n in range(int(found[1]), int(found[2]) + 1)), text)
    text = _COLUMNS.sub(lambda found: ", ".join(f"c{n} {found[2] or 'int'}" for n in range(1, int(found[1]) + 1)), text)
    return _CELL.sub(lambda found: history[int(found[1])].cell or "", text)
