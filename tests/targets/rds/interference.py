"""Interferes with calls to AWS inside botocore: counts them, or refuses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import botocore.handlers

#: What changes nothing.
_LOOKING = ("Describe", "Get", "List")


def changes(operation: str) -> bool:
    """Tell whether a call creates, changes or removes something."""
    return not operation.startswith(_LOOKING)


@contextmanager
def interfering(
    before: Callable[[str, str], Any] | None = None, after: Callable[[str, str], None] | None = None
) -> Iterator[None]:
    """Have `before` and `after` told of each call (service, operation) of every client made in the block.

    What `before` returns, unless None, is the call's outcome: it is not made.
    """

    def on_before(model: Any, **_ignored: Any) -> Any:
        return before(str(model.service_model.service_name), str(model.name)) if before else None

    def on_after(model: Any, **_ignored: Any) -> None:
        if after:
            after(str(model.service_model.service_name), str(model.name))

    known = list(botocore.handlers.BUILTIN_HANDLERS)
    botocore.handlers.BUILTIN_HANDLERS += [("before-call", on_before), ("after-call", on_after)]
    try:
        yield
    finally:
        botocore.handlers.BUILTIN_HANDLERS[:] = known


def refusal(code: str, message: str = "No.", status: int = 400) -> tuple[Any, dict[str, Any]]:
    """An answer of AWS that refuses a call."""
    answer = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
    }
    return SimpleNamespace(status_code=status), answer


class Calls:
    """The calls that changed something, in order."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def after(self, service: str, operation: str) -> None:
        if changes(operation):
            self.made.append(f"{service}:{operation}")
