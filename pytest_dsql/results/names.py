"""What a cell is called on each of several targets and what on any: pytest's id, with the target in it or not."""

from __future__ import annotations


def id_on(test: str, target: str) -> str:
    """Put a target into the id of a test, as pytest does with a parameter: `test_it[attach]`, `test_it[attach-16]`."""
    name, bracket, parameters = test.partition("[")
    return f"{name}[{target}-{parameters}" if bracket else f"{test}[{target}]"


def id_without(name: str, target: str) -> str:
    """Take the target out of the id of a test or cell again; an id without it comes back as it is."""
    head, bracket, tail = name.partition("[")
    if tail.startswith(f"{target}-"):
        return f"{head}[{tail.removeprefix(f'{target}-')}"
    return head + tail.removeprefix(f"{target}]") if bracket and tail.startswith(f"{target}]") else name
