"""Systems Manager's side of an instance, which moto lacks: it knows no instance, and a command succeeds at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.client

Answer = dict[str, Any]


class Agent:
    """Runs commands on this machine, each in a directory of its own, as the instance that they were sent to would.

    Installed at botocore's level. `bootstrap=False` leaves out what makes a machine ready: the environment of the tests
    is used. `after` is called with a command's number and process when it has started.
    """

    def __init__(
        self,
        directory: Path,
        *,
        bootstrap: bool = False,
        after: Callable[[int, subprocess.Popen[bytes]], None] = lambda _number, _process: None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.after = after
        self.environment = environment or {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.commands: list[list[str]] = []
        self.online = True
        self.cancelled: list[str] = []

    def install(self, monkeypatch: Any) -> None:
        real = botocore.client.BaseClient._make_api_call

        def call(client: Any, operation: str, parameters: Answer) -> Any:
            own = getattr(self, operation, None)
            if client.meta.service_model.service_name == "ssm" and own is not None:
                return own(parameters)
            return real(client, operation, parameters)

        monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)

    # moto 5.2.5 has no DescribeInstanceInformation.
    def DescribeInstanceInformation(self, parameters: Answer) -> Answer:  # noqa: N802
        ids = parameters["Filters"][0]["Values"] if self.online else []
        return {"InstanceInformationList": [{"InstanceId": one, "PingStatus": "Online"} for one in ids]}

    # moto's SendCommand runs nothing.
    def SendCommand(self, parameters: Answer) -> Answer:  # noqa: N802
        lines = parameters["Parameters"]["commands"]
        self.commands.append(lines)
        number = len(self.processes) + 1
        folder = self.directory / f"machine-{number}"
        folder.mkdir(parents=True)
        text = "\n".join(lines).replace("/var/lib/pytest-dsql", str(folder))
        if not self.bootstrap:
            values = [re.search(rf"^{name}='(.*)'$", text, re.MULTILINE) for name in ("BUCKET", "REGION", "PREFIX")]
            arguments = " ".join(f"'{one[1]}'" for one in values if one)
            text = f"exec {sys.executable} -m pytest_dsql.runner.there {arguments} '{folder}'"
        process = subprocess.Popen(
            ["sh", "-c", text],
            stdout=(folder / "stdout").open("wb"),
            stderr=(folder / "stderr").open("wb"),
            env={**os.environ, **self.environment},
            cwd=folder,
            start_new_session=True,
        )
        self.processes.append(process)
        threading.Thread(target=self.after, args=(number, process), daemon=True).start()
        return {"Command": {"CommandId": f"{number:08d}-0000-4000-8000-000000000000"}}

    # Of a command that moto knows nothing of.
    def GetCommandInvocation(self, parameters: Answer) -> Answer:  # noqa: N802
        number = int(parameters["CommandId"][:8])
        code = self.processes[number - 1].poll()
        folder = self.directory / f"machine-{number}"
        return {
            "Status": "InProgress" if code is None else "Success" if code == 0 else "Failed",
            "StandardErrorContent": (folder / "stderr").read_text(),
            "StandardOutputContent": (folder / "stdout").read_text(),
        }

    def CancelCommand(self, parameters: Answer) -> Answer:  # noqa: N802
        self.cancelled.append(parameters["CommandId"])
        return {}

    def close(self) -> None:
        for one in self.processes:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
