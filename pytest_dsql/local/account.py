"""Under which account PostgreSQL's programs run. PostgreSQL refuses root; this is where root becomes somebody else."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypedDict

from pytest_dsql.errors import EngineError

Kind = Literal["own", "namespace", "other"]

#: The first ordinary user of most systems; the design's choice when it exists.
_USUAL_UID: Final = 1000


class ProcessOptions(TypedDict, total=False):
    """The arguments of subprocess.Popen that change the account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """How a program of PostgreSQL is started, and who owns its files.

    - `own`: as the current user.
    - `namespace`: root, mapped to an ordinary user in a user namespace of the program's own. Its files stay root's, so
      binaries and data may lie under directories that only root can enter.
    - `other`: root where namespaces are forbidden; the program runs as another user, who must be able to reach
      binaries and data.
    """

    kind: Kind
    uid: int
    gid: int

    def command(self, arguments: list[str]) -> list[str]:
        """The command line that runs `arguments` under this account."""
        if self.kind == "namespace":
            return [*_unshare(self.uid, self.gid), *arguments]
        return arguments

    @property
    def options(self) -> ProcessOptions:
        """What subprocess needs to run a program under this account."""
        if self.kind == "other":
            return {"user": self.uid, "group": self.gid, "extra_groups": []}
        return {}

    def own(self, path: Path) -> None:
        """Give a file or directory to this account."""
        if self.kind == "other":
            os.chown(path, self.uid, self.gid)

    def own_tree(self, directory: Path) -> None:
        """Give a directory and everything in it to this account."""
        if self.kind != "other":
            return
        self.own(directory)
        for parent, directories, files in os.walk(directory):
            for name in (*directories, *files):
                os.chown(Path(parent, name), self.uid, self.gid, follow_symlinks=False)


def choose_account(kind: Kind | None = None) -> Account:
    """The account PostgreSQL runs under; `kind` forces one of the ways.

    Raises EngineError when the machine offers no way.
    """
    if kind is None:
        if os.geteuid() != 0:
            kind = "own"
        else:
            user = _ordinary_user()
            kind = "namespace" if _namespaces_work(user) else "other"
    if kind == "own":
        return Account(kind, os.geteuid(), os.getegid())
    user = _ordinary_user()
    return Account(kind, user.pw_uid, user.pw_gid)


def _ordinary_user() -> pwd.struct_passwd:
    # initdb looks its user up in the password file, so a bare number won't do.
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(_USUAL_UID)
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("nobody")
    for user in pwd.getpwall():
        if user.pw_uid != 0:
            return user
    raise EngineError("PostgreSQL refuses to run as root, and this machine knows no other user: useradd postgres")


def _unshare(uid: int, gid: int) -> list[str]:
    return ["unshare", "--user", f"--map-user={uid}", f"--map-group={gid}", "--"]


def _namespaces_work(user: pwd.struct_passwd) -> bool:
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run([*_unshare(user.pw_uid, user.pw_gid), "true"], capture_output=True, check=False).returncode == 0
    )
