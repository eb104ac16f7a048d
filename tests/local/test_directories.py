from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from pytest_dsql.errors import EngineError
from pytest_dsql.local.directories import cache_directory, private_directory, runtime_base
from pytest_dsql.local.postgres import SOCKET_NAME, SOCKET_PATH_LIMIT
from tests.local.conftest import Place

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def test_the_runtime_directory_is_private(place: Place) -> None:
    base = runtime_base()
    assert base.parent == place.directory
    assert base.stat().st_mode & 0o777 == 0o700


def test_a_long_temporary_directory_gives_way_to_a_short_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    long = place.directory / ("x" * 80)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    socket = runtime_base() / "0123456789ab" / "9999" / SOCKET_NAME
    assert len(os.fsencode(socket)) <= SOCKET_PATH_LIMIT


@as_root
def test_a_directory_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "taken"
    path.mkdir()
    os.chown(path, 65_534, -1)
    with pytest.raises(EngineError, match="not a directory of this user's"):
        private_directory(path)


def test_a_link_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(EngineError, match="not a directory of this user's"):
        private_directory(tmp_path / "link")


def test_a_directory_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "open"
    path.mkdir()
    path.chmod(0o777)
    assert private_directory(path).stat().st_mode & 0o777 == 0o700


def test_the_cache_is_where_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert cache_directory() == tmp_path / "cache" / "pytest-dsql"


@pytest.mark.parametrize("home", ["/nonexistent", "", "relative"])
def test_without_a_home_the_cache_is_temporary(place: Place, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", home)
    assert cache_directory() == place.directory / f"pytest-dsql-cache-{os.geteuid()}"


@as_root
def test_the_home_of_another_user_is_left_alone(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, 65_534, -1)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory().parent == place.directory
    assert not any(tmp_path.iterdir())
