"""The score: how many cases hold, by group."""

from __future__ import annotations

from collections.abc import Iterable


def score_lines(results: Iterable[tuple[str, str, bool]]) -> list[str]:
    """Say how many cases pass, for each group and altogether.

    `results` are group, case id, and whether it passed; a case of both protocols comes twice and has to pass twice.
    """
    groups: dict[str, dict[str, bool]] = {}
    for group, identity, passed in results:
        cases = groups.setdefault(group, {})
        cases[identity] = cases.get(identity, True) and passed
    lines = [f"{group:<18} {sum(cases.values()):>3}/{len(cases)}" for group, cases in sorted(groups.items())]
    good = sum(sum(cases.values()) for cases in groups.values())
    total = sum(map(len, groups.values()))
    return [*lines, f"conformance {good}/{total} ({100 * good / total:.1f} %)"] if total else []
