"""Writes into a results file what is known better after its run: costs."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_dsql.errors import UsageError
from pytest_dsql.load.cost import Cost
from pytest_dsql.results.cell import cost_dict
from pytest_dsql.results.mask import masked_value
from pytest_dsql.results.reader import parse_results
from pytest_dsql.results.whole import replace_whole
from pytest_dsql.results.writer import LOCK_NAME


def revise(path: Path, costs: Mapping[str, Cost], targets: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the cost of cells, by their ids, and facts of targets, by their names.

    Raises UsageError when the file can't be written; it is unchanged then.
    """
    try:
        descriptor = os.open(path.parent / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            content = parse_results(path.read_text(encoding="utf-8"), str(path))
            for cell in content["cells"]:
                if cell["id"] in costs:
                    cell["cost"] = cost_dict(costs[cell["id"]])
            for target in content["targets"]:
                target.update(masked_value(targets.get(target["name"], {})))
            text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
            replace_whole(path, f"{text}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror or error}; it is unchanged") from None
