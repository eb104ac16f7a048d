"""The keys that an engine makes up."""

from __future__ import annotations

import re

from pytest_dsql.local.clusters import throw_away_principal
from pytest_dsql.masking import mask


def test_made_up_keys_have_the_form_by_which_secrets_are_recognised() -> None:
    made = [throw_away_principal() for _ in range(50)]
    assert all(re.fullmatch(r"AKIA[A-Z2-7]{16}", one.access_key_id) for one in made)
    assert all(re.fullmatch(r"[A-Za-z0-9+/]{40}", one.secret_access_key) for one in made)
    # One in a thousand has no digit.
    assert sum(mask(one.secret_access_key) == "<masked>" for one in made) > 45
