"""Makes a wheel of the package that is running, its benchmarks included, to install it on another machine.

The installed files are packed as they are (Binary distribution format, packaging.python.org), so it needs neither the
build backend nor a network, and what runs there is what runs here, changes of a clone included.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from pytest_dsql.errors import UsageError

_PACKAGE: Final = Path(__file__).parents[1]
_METADATA: Final = ("METADATA", "entry_points.txt", "top_level.txt")
_WHEEL: Final = "Wheel-Version: 1.0\nGenerator: pytest-dsql\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
#: Packed files have this time, so that the same files make the same wheel.
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)


def build_wheel(directory: Path) -> Path:
    """Write the wheel into `directory`, and return its path. Raises UsageError when the package isn't installed."""
    installed = _installed()
    name = f"pytest_dsql-{installed.version}"
    info = f"{name}.dist-info"
    path = directory / f"{name}-py3-none-any.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:

        def add(target: str, content: bytes) -> None:
            wheel.writestr(zipfile.ZipInfo(target, _EPOCH), content, zipfile.ZIP_DEFLATED)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{target},sha256={digest},{len(content)}")

        for source, target in package_files():
            add(target, source.read_bytes())
        for one in _METADATA:
            if text := installed.read_text(one):
                add(f"{info}/{one}", text.encode())
        add(f"{info}/WHEEL", _WHEEL.encode())
        record.append(f"{info}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info}/RECORD", _EPOCH), "\n".join(record) + "\n")
    return path


def package_files() -> Iterator[tuple[Path, str]]:
    """Give every file of the package with its name in a wheel; in a clone the benchmarks lie beside the package."""
    folders = [(_PACKAGE, _PACKAGE.name)]
    beside = _PACKAGE.parent / "benchmarks"
    if not (_PACKAGE / "benchmarks").is_dir() and (beside / "conftest.py").is_file():
        folders.append((beside, f"{_PACKAGE.name}/benchmarks"))
    for folder, name in folders:
        for source in sorted(folder.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts and not source.name.startswith("."):
                yield source, f"{name}/{source.relative_to(folder).as_posix()}"


def _installed() -> Distribution:
    try:
        return distribution("pytest-dsql")
    except ModuleNotFoundError:
        raise UsageError(
            "pytest-dsql isn't installed, so it can't be sent to another machine: pip install -e ."
        ) from None
