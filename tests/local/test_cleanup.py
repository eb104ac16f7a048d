"""What is left when the engine and its sentinel were killed together, and who removes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_dsql.local.cleanup import forget_dead_server, remove_engine_directory, sweep
from pytest_dsql.local.client import Engine
from tests.local.conftest import Place

SEGMENTS = Path("/proc/sysvipc/shm")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits only for its parent to take notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def killed_without_a_word(name: str) -> Engine:
    """An engine whose process and sentinel are killed at once; its PostgreSQL lives on."""
    engine = Engine.start_or_attach(name)
    sentinels = [pid for pid in children(engine.pid) if Path(f"/proc/{pid}/comm").read_text().strip() == "sh"]
    assert len(sentinels) == 1
    killed = (*sentinels, engine.pid)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    while not all(has_ended(pid) for pid in killed):  # a kill is not done when kill() returns
        time.sleep(0.01)
    return engine


def test_the_next_start_removes_what_was_left(place: Place) -> None:
    engine = killed_without_a_word("one")
    killed = engine.control.parent
    assert place.processes()
    with Engine.start_or_attach("two"):
        assert not killed.exists()
        assert not [line for line in place.processes() if str(killed) in line]
    engine.close()
    assert not place.left()


def test_a_holder_removes_what_its_engine_could_not(place: Place) -> None:
    killed_without_a_word("one").close()
    assert not place.left()


def test_the_next_start_under_the_same_name_is_a_new_engine(place: Place) -> None:
    killed = killed_without_a_word("one")
    with Engine.start_or_attach("one") as engine:
        assert engine.pid != killed.pid
        assert engine.control == killed.control
        killed.close()
        assert engine.status()["holders"] == 1
    assert not place.left()


def test_the_sweep_leaves_living_engines_alone(place: Place) -> None:
    with Engine.start_or_attach() as engine:
        sweep(place.base)
        assert engine.status()["holders"] == 1


@pytest.mark.skipif(not SEGMENTS.exists(), reason="segments can't be listed here")
def test_shared_memory_of_a_killed_server_is_removed(place: Place) -> None:
    engine = killed_without_a_word("one")
    directory = engine.control.parent
    lines = (directory / "1" / "data" / "postmaster.pid").read_text().splitlines()
    server, segment = int(lines[0]), lines[6].split()[1]
    os.kill(server, signal.SIGKILL)
    while any(str(directory) in line for line in place.processes()):
        time.sleep(0.01)
    assert segment in _segments()
    sweep(place.base)
    deadline = time.monotonic() + 300
    while segment in _segments():  # it goes with the last process that still has it
        assert time.monotonic() < deadline
        time.sleep(0.01)
    engine.close()


def _segments() -> set[str]:
    return {line.split()[1] for line in SEGMENTS.read_text().splitlines()[1:]}


def test_a_process_that_only_mentions_the_directory_is_spared(tmp_path: Path) -> None:
    directory = tmp_path / "engine"
    directory.mkdir()
    bystander = subprocess.Popen([sys.executable, "-c", "input()", f"{directory}/1/data"], stdin=subprocess.PIPE)
    remove_engine_directory(directory)
    assert not directory.exists()
    assert bystander.poll() is None
    bystander.communicate(b"\n")


def test_a_damaged_postmaster_file_is_no_obstacle(tmp_path: Path) -> None:
    data = tmp_path / "engine" / "1" / "data"
    data.mkdir(parents=True)
    (data / "postmaster.pid").write_text("not a number\n")
    remove_engine_directory(tmp_path / "engine")
    assert not (tmp_path / "engine").exists()


def test_linked_data_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    cluster = tmp_path / "engine" / "1"
    cluster.mkdir(parents=True)
    (cluster / "data").symlink_to(kept, target_is_directory=True)
    remove_engine_directory(tmp_path / "engine")
    assert not (tmp_path / "engine").exists()
    assert (kept / "file").exists()


def test_a_dead_servers_lock_file_is_removed_and_a_living_ones_is_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    forget_dead_server(data)
    lock_file = data / "postmaster.pid"
    # The number is one of a process that lives, as it may be for a dead server's.
    lock_file.write_text(f"{os.getpid()}\n{data}\n1\n5432\n/x\n\n1 1\nready\n")
    with subprocess.Popen([sys.executable, "-c", "input()", str(data)], stdin=subprocess.PIPE) as server:
        forget_dead_server(data)
        assert lock_file.exists()
        server.communicate(b"\n")
    forget_dead_server(data)
    assert not lock_file.exists()
