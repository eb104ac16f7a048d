"""Packs the tests that were asked for, for another machine: the arguments' files, and what configures them."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from pytest_dsql.errors import UsageError

#: What pytest reads beside the tests ("Configuration file formats", pytest documentation).
_CONFIGURATION: Final = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
_LEFT_OUT: Final = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})
#: Tests, not data sets: what is larger is taken for a mistake.
MOST_BYTES: Final = 50_000_000


@final
@dataclass(frozen=True, slots=True)
class Bundle:
    """The packed files, the arguments as they are to be given there, and the directory in which to give them."""

    path: Path
    arguments: tuple[str, ...]
    directory: str  #: below where the files are unpacked


def bundle(
    arguments: Sequence[str], *, collected: Sequence[str] = (), root: Path, directory: Path, into: Path
) -> Bundle:
    """Pack what the command line's `arguments`, given in `directory`, name below `root` (pytest's root directory).

    `collected` is where pytest looks for tests, which the arguments may leave to the configuration or the directory.
    Raises UsageError for tests that lie elsewhere, and for more than `MOST_BYTES`.
    """
    root, directory = root.resolve(), directory.resolve()
    if not directory.is_relative_to(root):
        raise UsageError(f"--dsql-runner ec2 sends the tests below {root}: run it there, not in {directory}")
    sent: list[str] = []
    wanted: set[Path] = set()
    for argument in arguments:
        name, separator, rest = argument.partition("::")
        path = (directory / name).resolve()
        if not name or argument.startswith("-") or not path.exists():
            sent.append(argument)
            continue
        if not path.is_relative_to(root):
            raise UsageError(f"--dsql-runner ec2 sends the tests below {root}, and {name} is not there")
        wanted.add(path)
        sent.append(f"{Path(os.path.relpath(path, directory)).as_posix()}{separator}{rest}")
    for one in collected:
        path = (directory / one.partition("::")[0]).resolve()
        if path.exists() and path.is_relative_to(root):
            wanted.add(path)
    path = into / "tests.tar.gz"
    size = 0
    with tarfile.open(path, "w:gz") as packed:
        for file in sorted(_files(root, wanted)):
            size += file.stat().st_size
            if size > MOST_BYTES:
                raise UsageError(
                    f"--dsql-runner ec2: the files that the arguments name are more than {MOST_BYTES:,} bytes; name "
                    "the tests' own directory"
                )
            packed.add(file, file.relative_to(root).as_posix(), recursive=False)
    return Bundle(path, tuple(sent), directory.relative_to(root).as_posix())


def _files(root: Path, wanted: set[Path]) -> Iterator[Path]:
    found: set[Path] = {root / name for name in _CONFIGURATION if (root / name).is_file()}
    for path in wanted:
        if path.is_file():
            found.add(path)
        else:
            found.update(one for one in path.rglob("*") if one.is_file() and not _left_out(one.relative_to(path)))
        folder = path if path.is_dir() else path.parent
        # Packages and conftest.py files on the way are imported with the tests.
        for parent in (folder, *folder.parents):
            if not parent.is_relative_to(root):
                break
            found.update(parent / name for name in ("conftest.py", "__init__.py") if (parent / name).is_file())
    return iter(found)


def _left_out(path: Path) -> bool:
    return any(part in _LEFT_OUT or part.startswith(".") for part in path.parts)
