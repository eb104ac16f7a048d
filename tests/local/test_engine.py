"""The engine's life: started, shared, ended by its last holder, by signals and by kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pytest_dsql.errors import EngineError, UsageError
from pytest_dsql.local.client import Engine
from pytest_dsql.local.options import EngineOptions
from tests.local.conftest import Place
from tests.local.engines import ask, connect

TCP_TABLE = Path("/proc/net/tcp")

#: Runs before anything else in a Python process that has its directory on PYTHONPATH.
CUSTOMIZE = "sitecustomize.py"

HOLD = """
import sys, time
from pytest_dsql.local.client import Engine
engine = Engine.start_or_attach(sys.argv[1])
print(engine.pid, flush=True)
sys.stdin.read()
engine.close()
"""


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine for tests that leave it as it was."""
    with Engine.start_or_attach() as engine:
        yield engine


def holder(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def engine_of(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def servers(place: Place) -> list[int]:
    """The parent processes of the engine's PostgreSQL servers."""
    return [int(path.read_text().split()[0]) for path in place.base.glob("*/*/data/postmaster.pid")]


def test_an_engine_serves_and_leaves_nothing(place: Place) -> None:
    with Engine.start_or_attach() as engine:
        assert ask(engine, "SELECT version()") == "PostgreSQL 16"
        assert ask(engine, "SELECT current_user") == "admin"
        assert "16" in engine.postgresql
    assert not place.left()


def test_what_it_makes_is_private(engine: Engine) -> None:
    directory = engine.control.parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(engine.control.stat().st_mode) == 0o600
    secret = engine.credentials.secret_access_key
    assert secret not in repr(engine.credentials)
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                assert secret.encode() not in (process / name).read_bytes()
            except (FileNotFoundError, PermissionError, ProcessLookupError):
                continue
    for path in directory.glob("*"):
        if path.is_file():
            assert secret.encode() not in path.read_bytes()


@pytest.mark.skipif(not TCP_TABLE.exists(), reason="listening sockets can't be listed here")
def test_it_listens_on_the_loopback_address_only(engine: Engine) -> None:
    listening = [row.split()[1] for row in TCP_TABLE.read_text().splitlines()[1:] if row.split()[3] == "0A"]
    assert [address for address in listening if address.endswith(f":{engine.port:04X}")] == [
        f"0100007F:{engine.port:04X}"  # 127.0.0.1, as the kernel writes it
    ]


def test_holders_of_one_name_share_an_engine_until_the_last_is_gone(place: Place) -> None:
    first = Engine.start_or_attach("shared")
    second = Engine.start_or_attach("shared")
    assert (second.pid, second.port, second.cluster) == (first.pid, first.port, first.cluster)
    assert second.status()["holders"] == 2
    first.close()
    assert ask(second, "SELECT 1") == 1
    second.close()
    assert not place.left()


def test_processes_that_start_together_start_one_engine(place: Place) -> None:
    holders = [holder("together") for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        engines = set(pool.map(engine_of, holders))
    assert len(engines) == 1
    for process in holders:
        process.communicate()
    assert not place.left()


def test_engines_without_a_name_live_side_by_side(place: Place, engine: Engine) -> None:
    with Engine.start_or_attach() as other:
        assert other.pid != engine.pid
        assert other.port != engine.port
        assert ask(other, "SELECT 1") == 1
    assert ask(engine, "SELECT 1") == 1


def test_an_engine_can_be_attached_by_its_control_socket(engine: Engine) -> None:
    with Engine.attach(engine.control) as other:
        assert other.pid == engine.pid


def test_a_control_socket_nobody_answers_at_is_told(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="it has ended"):
        Engine.attach(tmp_path / "control.sock")


def test_further_clusters_are_databases_of_their_own(engine: Engine) -> None:
    with connect(engine) as connection:
        connection.execute("CREATE TABLE only_here (id int PRIMARY KEY)")
    other = engine.new_cluster()
    assert other.host != engine.cluster.host
    assert ask(engine, "SELECT count(*) FROM pg_tables WHERE tablename = 'only_here'") == 1
    assert ask(engine, "SELECT count(*) FROM pg_tables WHERE tablename = 'only_here'", other) == 0
    engine.remove_cluster(other.id)
    assert [cluster["id"] for cluster in engine.status()["clusters"]] == [engine.cluster.id]
    with pytest.raises(EngineError, match="has no cluster"):
        engine.remove_cluster(other.id)


def test_the_default_cluster_stays(engine: Engine) -> None:
    with pytest.raises(EngineError, match="goes with the engine"):
        engine.remove_cluster(engine.cluster.id)


def test_a_holders_clusters_go_with_it(engine: Engine) -> None:
    with Engine.attach(engine.control) as other:
        made = other.new_cluster()
        assert made.id in {cluster["id"] for cluster in engine.status()["clusters"]}
    assert made.id not in {cluster["id"] for cluster in engine.status()["clusters"]}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order(place: Place, number: signal.Signals) -> None:
    engine = Engine.start_or_attach()
    os.kill(engine.pid, number)
    wait_until(lambda: engine.ended() is not None, "nothing was said")
    assert engine.ended() == f"the engine was ended by {number.name}"
    with pytest.raises(EngineError, match=f"has ended: the engine was ended by {number.name}"):
        engine.status()
    engine.close()
    assert not place.left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_end_of_its_holder_ends_it(place: Place, number: signal.Signals) -> None:
    with holder("abandoned") as process:
        engine_of(process)
        process.send_signal(number)
    wait_until(lambda: not place.left(), f"left: {place.left()}")


def test_a_kill_of_the_engine_ends_postgresql_and_removes_everything(place: Place) -> None:
    engine = Engine.start_or_attach()
    engine.new_cluster()
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: not place.left(), f"left: {place.left()}")
    with pytest.raises(EngineError, match="has ended: its process was killed"):
        engine.status()
    engine.close()


def test_postgresql_killed_ends_the_engine_with_the_reason(place: Place) -> None:
    engine = Engine.start_or_attach()
    (server,) = servers(place)
    os.kill(server, signal.SIGKILL)
    wait_until(lambda: engine.ended() is not None, "nothing was said")
    assert "PostgreSQL of cluster" in str(engine.ended())
    assert "killed by SIGKILL" in str(engine.ended())
    engine.close()
    assert not place.left()


def test_clients_in_the_middle_of_something_do_not_delay_the_end(place: Place) -> None:
    engine = Engine.start_or_attach()
    connection = connect(engine)
    connection.execute("BEGIN")
    connection.execute("SELECT 1")
    engine.close()
    assert not place.left()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_a_taken_port_is_one_clear_line(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=rf"^port {port} on 127\.0\.0\.1 can't be used: Address already in use$"):
            Engine.start_or_attach(options=EngineOptions(port=port))
    assert not place.left()


def test_a_port_and_a_region_can_be_chosen(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Engine.start_or_attach(options=EngineOptions(port=port, region="eu-west-1")) as engine:
        assert engine.port == port
        assert engine.cluster.host.endswith(".dsql.eu-west-1.on.aws")
        assert ask(engine, "SELECT 1") == 1


def test_a_failing_start_is_told_and_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # A cache that is no directory: PostgreSQL's template can't be made.
    (place.directory / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.directory / "file"))
    (place.directory / f"pytest-dsql-cache-{os.geteuid()}").touch()
    with pytest.raises(EngineError, match=r"the embedded engine did not start: .*is not a directory of this user's"):
        Engine.start_or_attach()
    (place.directory / "file").unlink()
    assert not place.left()


def test_a_process_that_dies_at_start_is_told_and_leaves_nothing(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CUSTOMIZE).write_text("import os; os.write(2, b'no luck today'); os._exit(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(EngineError, match="the embedded engine's process died at start: no luck today"):
        Engine.start_or_attach()
    assert not place.left()


@pytest.mark.parametrize("module", ["uvloop", "postgast", "cryptography"])
def test_a_missing_part_names_the_extra(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    (tmp_path / CUSTOMIZE).write_text(f"import sys; sys.modules[{module!r}] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(EngineError, match=rf"module '{module}.*pip install 'pytest-dsql\[local\]'"):
        Engine.start_or_attach()
    assert not place.left()


def test_a_disk_that_is_full_is_told_and_leaves_nothing(place: Place) -> None:
    # Of a tiny file system; only root may mount one.
    if shutil.which("mount") is None:
        pytest.skip("no mount on this machine")
    small = place.directory / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip("this user can't mount a small file system")
    code = "from pytest_dsql.local.client import Engine; Engine.start_or_attach()"
    try:
        process = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"TMPDIR": str(small)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "EngineError: the embedded engine did not start: " in process.stderr
        assert "No space left on device" in process.stderr
        assert not list(small.iterdir())
    finally:
        subprocess.run(["umount", small], check=True)
    small.rmdir()
    assert not place.left()


def test_the_control_socket_answers_nonsense_with_what_it_knows(engine: Engine) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(engine.control))
        connection.sendall(b'nonsense\n{"command":"no such"}\n')
        with connection.makefile() as answers:
            for _ in range(2):
                answer = json.loads(answers.readline())
                assert answer["ok"] is False
                assert "hold, describe, status, new_cluster, remove_cluster" in answer["error"]


def test_people_who_start_its_process_are_sent_to_the_command() -> None:
    process = subprocess.run(
        [sys.executable, "-m", "pytest_dsql.local"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr == "this is the engine's own process; start one with: pytest-dsql local\n"


def test_a_closed_handle_says_so(place: Place) -> None:
    engine = Engine.start_or_attach()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="was closed"):
        engine.status()


def test_data_survives_its_engine(place: Place, tmp_path: Path) -> None:
    options = EngineOptions(data=tmp_path / "kept", region="eu-west-1")
    with Engine.start_or_attach(options=options) as engine:
        first = engine.cluster
        with connect(engine) as connection:
            connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
            connection.execute("INSERT INTO kept VALUES (7)")
    assert not place.left()
    with Engine.start_or_attach(options=EngineOptions(data=tmp_path / "kept")) as engine:
        assert engine.cluster == first
        assert ask(engine, "SELECT id FROM kept") == 7
        assert ask(engine, "SHOW fsync") == "on"
        with pytest.raises(EngineError, match="another engine is using"):
            Engine.start_or_attach(options=options)


def test_data_survives_a_kill(place: Place, tmp_path: Path) -> None:
    options = EngineOptions(data=tmp_path / "kept")
    engine = Engine.start_or_attach(options=options)
    with connect(engine) as connection:
        connection.execute("CREATE TABLE kept (id int PRIMARY KEY)")
    os.kill(engine.pid, signal.SIGKILL)
    engine.close()
    wait_until(lambda: not place.left(), f"left: {place.left()}")
    with Engine.start_or_attach(options=options) as engine:
        assert ask(engine, "SELECT count(*) FROM kept") == 0


def test_data_of_another_region_is_a_usage_error(place: Place, tmp_path: Path) -> None:
    with Engine.start_or_attach(options=EngineOptions(data=tmp_path / "kept")):
        pass
    with pytest.raises(UsageError, match="holds a cluster of region us-east-1, not eu-west-1"):
        Engine.start_or_attach(options=EngineOptions(data=tmp_path / "kept", region="eu-west-1"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_root_without_namespaces_runs_it_as_another_user(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.directory.chmod(0o711)
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.directory / "cache"))
    with Engine.start_or_attach(options=EngineOptions(account="other")) as engine:
        (server,) = servers(place)
        assert Path(f"/proc/{server}").stat().st_uid != 0
        assert ask(engine, "SELECT 1") == 1
        other = engine.new_cluster()
        assert ask(engine, "SELECT 1", other) == 1
    assert not place.left()


@pytest.mark.skipif(not Path("/proc/sysvipc/shm").exists(), reason="segments can't be listed here")
def test_a_postgresql_that_was_killed_leaves_no_shared_memory() -> None:
    engine = Engine.start_or_attach()
    (postmaster,) = engine.control.parent.glob("*/data/postmaster.pid")
    lines = postmaster.read_text().splitlines()
    os.kill(int(lines[0]), signal.SIGKILL)
    engine.close()
    identifier = lines[6].split()[1]
    kept = [line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    assert identifier not in kept
