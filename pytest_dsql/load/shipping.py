"""How work travels to a worker process: by reference where the worker can import it, by value where it cannot."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pytest_dsql.errors import UsageError
from pytest_dsql.masking import mask

#: What goes by value is noted in cloudpickle itself, for all threads.
_ONE_AT_A_TIME: Final = threading.Lock()
_PACKAGE: Final = __name__.partition(".")[0]
_STANDARD_LIBRARY: Final = str(Path(os.__file__).parent)


def search_path() -> list[str]:
    """Return this process's module search path, absolute: the worker's from its first job on."""
    return [str(Path(entry).absolute()) for entry in sys.path]


def pack(job: Any, *, elsewhere: bool = False) -> bytes:
    """Pickle a job for a worker on this host, or `elsewhere`: then every module that isn't installed goes by value.

    Raises UsageError, naming the obstacle, when something in it cannot be sent to another process.
    """
    import cloudpickle

    try:
        with _ONE_AT_A_TIME, _by_value(elsewhere=elsewhere):
            return bytes(cloudpickle.dumps(job))
    except Exception as error:
        reason = mask(" ".join(str(error).split()))
        raise UsageError(
            "the mix cannot be sent to a worker process: its transactions, or values they refer to, do not pickle "
            f"({type(error).__name__}: {reason})"
        ) from error


@contextmanager
def _by_value(*, elsewhere: bool) -> Iterator[None]:
    """Let cloudpickle send the modules by value that a worker could not import, or had better not."""
    import cloudpickle

    registered = []
    for name, module in sorted(sys.modules.items()):
        if not isinstance(module, ModuleType) or name == "__main__":
            continue
        if _travels_by_value(name, module, elsewhere=elsewhere):
            try:
                cloudpickle.register_pickle_by_value(module)
            except ValueError:  # not in sys.modules under its own name: cloudpickle decides by itself
                continue
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _travels_by_value(name: str, module: ModuleType, *, elsewhere: bool) -> bool:
    source = getattr(module, "__file__", None)
    if source is None or name.partition(".")[0] == _PACKAGE or module.__name__ != name or _is_installed(source):
        return False
    # A test module would import pytest, and whatever else it needs, into a process that needs none of it.
    last = name.rpartition(".")[2]
    if last == "conftest" or last.startswith("test_") or last.endswith("_test"):
        return True
    return elsewhere or not _importable(name, source)


def _is_installed(source: str) -> bool:
    """Tell whether a file belongs to the interpreter or to an installed distribution: the worker has it too."""
    parts = Path(source).parts
    return "site-packages" in parts or "dist-packages" in parts or source.startswith(_STANDARD_LIBRARY)


def _importable(name: str, source: str) -> bool:
    """Tell whether a worker with our search path finds the same file under the module's name."""
    path: Any = None
    parent, _, _last = name.rpartition(".")
    if parent:
        package = sys.modules.get(parent)
        origin = getattr(package, "__file__", None)
        if package is None or (origin is not None and not _importable(parent, origin)):
            return False
        path = getattr(package, "__path__", None)
    try:
        spec = PathFinder.find_spec(name, path)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).absolute() == Path(source).absolute()
