"""Makes the zip of the function: the package's light part, and psycopg for the function's processor.

Lambda's Python runtimes have boto3, so botocore (which signs the tokens) is there (Lambda developer guide, "Building
Lambda functions with Python"). psycopg's wheels for ARM are fetched from the package index when it is deployed.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from pytest_dsql.errors import DsqlError

#: The runtime and processor of the function (botocore's `lambda` model, shapes Runtime and Architecture).
RUNTIME: Final = "python3.13"
ARCHITECTURE: Final = "arm64"
HANDLER: Final = "pytest_dsql.runner.function.handler"
#: What CreateFunction takes directly, zipped (Lambda developer guide, "Lambda quotas").
MOST_BYTES: Final = 50_000_000

_PACKAGE: Final = Path(__file__).parents[1]
#: What `function` imports, and what that reads. A test runs it with nothing else.
_LIGHT: Final = (
    "__init__.py",
    "access.py",
    "errors.py",
    "masking.py",
    "transaction.py",
    "connect/*",
    "load/__init__.py",
    "load/blocking.py",
    "load/measurement.py",
    "load/retry.py",
    "load/statements.py",
    "runner/__init__.py",
    "runner/function.py",
    "workloads/*.py",
    "workloads/inserts/*.py",
)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)

#: Gives the files of psycopg: names in the zip, and contents.
Libraries = Callable[[], Iterable[tuple[str, bytes]]]


def build_package(libraries: Libraries | None = None) -> bytes:
    """Return the zip. Raises DsqlError when psycopg can't be fetched, or when it would be too large."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as package:
        for name, data in sorted([*_light_part(), *(libraries or for_lambda)()]):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16  # the function runs as another user than who unpacks it
            package.writestr(entry, data, zipfile.ZIP_DEFLATED)
    size = content.tell()
    if size > MOST_BYTES:
        raise DsqlError(f"the function's zip has {size:,} bytes, and Lambda takes {MOST_BYTES:,}")
    return content.getvalue()


def _light_part() -> Iterator[tuple[str, bytes]]:
    for pattern in _LIGHT:
        for path in sorted(_PACKAGE.glob(pattern)):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{_PACKAGE.name}/{path.relative_to(_PACKAGE).as_posix()}", path.read_bytes()
    try:
        installed = distribution("pytest-dsql")
    except PackageNotFoundError:
        return
    # Sessions name themselves by the version.
    yield (
        f"pytest_dsql-{installed.version}.dist-info/METADATA",
        f"Name: pytest-dsql\nVersion: {installed.version}\n".encode(),
    )


def for_lambda() -> Iterator[tuple[str, bytes]]:
    """Fetch the wheels of the psycopg that runs here, for the function's runtime and processor."""
    version = distribution("psycopg").version
    with tempfile.TemporaryDirectory() as name:
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--only-binary=:all:", "--implementation", "cp", "--python-version", RUNTIME.removeprefix("python")),
            # What the runtimes of Amazon Linux 2023 can load (glibc 2.34).
            *("--platform", "manylinux_2_28_aarch64", "--platform", "manylinux_2_17_aarch64"),
            *("--platform", "manylinux2014_aarch64", "--dest", name),
            *(f"psycopg=={version}", f"psycopg-binary=={version}"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or ["pip says nothing"]
            raise DsqlError(f"psycopg {version} for the function (ARM) can't be fetched: {said[0]}")
        for wheel in sorted(Path(name).glob("*.whl")):
            with zipfile.ZipFile(wheel) as files:
                for one in files.namelist():
                    if not one.endswith("/"):
                        yield one, files.read(one)
