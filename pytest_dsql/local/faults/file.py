"""Files of faults: TOML, one `[[fault]]` for each rule."""

from __future__ import annotations

from pathlib import Path

from pytest_dsql.local.documents import Document
from pytest_dsql.local.faults.fault import Fault, FaultError


def read(file: Path) -> list[Fault]:
    """The rules of a file, in their order. Raises UsageError with the line of what is wrong."""
    return parse(Document.read(file))


def parse(document: Document) -> list[Fault]:
    """The rules of a document, in their order. Raises UsageError with the line of what is wrong."""
    entries = document.table(document.values, (), ("fault",)).get("fault", [])
    if not isinstance(entries, list) or not entries:
        document.fail(("fault",), "write [[fault]] for each rule, one at least")
    faults = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            document.fail(("fault", number), "expected a table")
        try:
            faults.append(Fault.from_json(entry))
        except FaultError as error:
            document.fail(("fault", number, error.key), error.problem)
    return faults
