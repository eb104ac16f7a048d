from __future__ import annotations

import subprocess
import sys


def test_a_worker_imports_neither_pytest_nor_the_controller() -> None:
    script = (
        "import sys, pytest_dsql.load.worker\n"
        "for name in ('pytest', '_pytest', 'botocore', 'cloudpickle', 'pytest_dsql.load.fleet', 'pytest_dsql.slo'):\n"
        "    if name in sys.modules: print(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == ""


def test_a_worker_without_a_controller_ends() -> None:
    import socket

    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "pytest_dsql.load.worker", str(theirs.fileno())], pass_fds=(theirs.fileno(),)
        )
    ours.close()
    assert process.wait(300) == 0
