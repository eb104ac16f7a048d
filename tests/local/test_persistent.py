from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_dsql.errors import EngineError, UsageError
from pytest_dsql.local.persistent import DataDirectory, Identity

IDENTITY = Identity("a" * 26, "eu-west-1", "key", "16.14")


def filled(path: Path) -> DataDirectory:
    directory = DataDirectory(path)
    directory.open()
    directory.data.mkdir()
    directory.complete(IDENTITY)
    return directory


def test_checking_makes_nothing(tmp_path: Path) -> None:
    DataDirectory(tmp_path / "new" / "deep").check("eu-west-1")
    assert not any(tmp_path.iterdir())


def test_what_was_said_is_read_again(tmp_path: Path) -> None:
    directory = filled(tmp_path / "data")
    assert directory.identity() == IDENTITY
    directory.check(None)
    directory.check("eu-west-1")


def test_another_region_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="region eu-west-1, not us-east-1"):
        filled(tmp_path / "data").check("us-east-1")


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UsageError, match=r"holds something else \(thesis\.txt\)"):
        DataDirectory(tmp_path).check(None)


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is not a directory"):
        DataDirectory(tmp_path / "file").check(None)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="not writable"):
        DataDirectory(tmp_path).check(None)


def test_a_damaged_description_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"id": ')
    with pytest.raises(UsageError, match=r"cluster\.json can't be read"):
        DataDirectory(tmp_path).check(None)


def test_one_engine_at_a_time(tmp_path: Path) -> None:
    first, second = DataDirectory(tmp_path), DataDirectory(tmp_path)
    first.open()
    with pytest.raises(EngineError, match="another engine is using"):
        second.open()
    first.close()
    second.open()


def test_data_that_was_never_completed_is_made_anew(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.open()
    directory.data.mkdir()
    assert directory.identity() is None
    directory.remove_unfinished()
    assert not directory.data.exists()
