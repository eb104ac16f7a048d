from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from pytest_dsql.local.locks import FileLock


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    first = FileLock.acquire(tmp_path / "lock", None)
    assert first is not None
    assert FileLock.acquire(tmp_path / "lock", None) is None
    first.release(remove=False)
    assert FileLock.acquire(tmp_path / "lock", None) is not None


def test_a_file_removed_by_its_holder_is_not_mistaken_for_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = FileLock.acquire(path, None)
    assert first is not None
    waiting: list[FileLock | None] = []
    waiter = threading.Thread(target=lambda: waiting.append(FileLock.acquire(path, 10.0)))
    waiter.start()
    first.release(remove=True)
    waiter.join()
    (second,) = waiting
    assert second is not None
    assert os.path.samestat(os.fstat(second.descriptor), path.stat())


def test_an_inheriting_process_holds_the_lock_alone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock.acquire(path, None)
    assert lock is not None
    heir = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.descriptor,))
    lock.release(remove=False)
    assert FileLock.acquire(path, None) is None
    heir.communicate()
    assert FileLock.acquire(path, 5.0) is not None


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock.acquire(tmp_path / "missing" / "lock", None)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        FileLock.acquire(tmp_path / "lock", None)
    assert not (tmp_path / "elsewhere").exists()
