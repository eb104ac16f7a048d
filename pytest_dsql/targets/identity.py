"""What must be alike for two sessions to measure the same target."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsql.settings import EXISTING_TARGETS

if TYPE_CHECKING:
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target


def identity_of(settings: Settings, target: Target) -> dict[str, str]:
    """Return it as plain data, with digests in place of names that a file has no need of.

    An attached endpoint is told by where it is. The embedded engine is made anew by each run, so it is told by how it
    was asked to behave.
    """
    if settings.target not in EXISTING_TARGETS:
        # Made anew by each run, too.
        options = " ".join(f"{name}={value}" for name, value in sorted(settings.target_option.items()))
        return {"name": target.name, "region": str(target.facts["region"]), "options": options}
    endpoint = target.endpoint
    if target.engine is None:
        return {"name": target.name, "place": _digest(f"{endpoint.host}:{endpoint.port}/{endpoint.dbname}")}
    faults = Path(settings.faults).read_text(encoding="utf-8") if settings.faults else ""
    return {
        "name": target.name,
        "server": str(target.facts["server"]),
        "latency": str(target.facts["latency"]),
        "faults": _digest(faults),
        "set": " ".join(f"{name}={value}" for name, value in sorted(settings.set.items())),
    }


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
