"""What tests of the engine's life need: a temporary directory of their own, and a look at what was left."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_dsql.local.cleanup import command_lines


class Place:
    """A temporary directory for one test's engines, so that what one of them left can be told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def base(self) -> Path:
        """Where the engines of this user are, as long as there is one."""
        return self.directory / f"pytest-dsql-{os.geteuid()}"

    def processes(self) -> list[str]:
        """The command lines of the processes that mention this place."""
        lines = (" ".join(words) for _, words in command_lines())
        return [line for line in lines if str(self.directory) in line]

    def left(self) -> list[str]:
        """Files, directories and processes that are there; a cache of templates is meant to stay."""
        entries = [str(path) for path in self.directory.iterdir() if "cache" not in path.name]
        return entries + self.processes()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    tmp_path_factory.getbasetemp()  # made while TMPDIR is still the session's
    # Not tmp_path: sockets below it need a short path.
    directory = Path(tempfile.mkdtemp(prefix="dsql-"))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield Place(directory)
    shutil.rmtree(directory)
