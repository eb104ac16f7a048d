"""What a run creates, written down before it exists: one file per run, 0600, fsynced line by line.

The file lies in `$XDG_STATE_HOME/pytest-dsql/runs` (`~/.local/state/...` without). Processes of a run hold a shared
lock on it; who can lock it alone knows that all of them are gone. It is the only file that holds account ids.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, final

from pytest_dsql.aws.holding import STARTED, Hold, is_held, lock_alone, locked, state_directory
from pytest_dsql.errors import DsqlError, UsageError

#: How long what a run creates may live unless told otherwise. After that it takes no new work, and anybody's `reap`
#: removes it.
LIFE: Final = timedelta(hours=12)

_RUN_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that a run wanted to create. `arn` is its ARN or id, None until the service told it."""

    run: str
    number: int  #: of the run's entries; 0 for what was found by its tags alone
    kind: str  #: which `Resource` removes it
    region: str
    name: str  #: its own, where it has one; else what it is for
    token: str  #: the client token of its create call, the same in every try
    owner: str  #: the target or runner that it belongs to
    intended_at: datetime
    arn: str | None = None
    removed: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    tried_at: datetime | None = None  #: when its create call was made last, if more than once or without an answer

    def __str__(self) -> str:
        """Name it for people: without account id."""
        return f"{self.kind} {self.name} in {self.region}"


@final
class Inventory:
    """A run's file. `create` holds it for this process; `read` only looks."""

    def __init__(self, path: Path, file: int | None) -> None:
        self.path: Final = path
        self._file = file
        self._entries: dict[int, Entry] = {}
        self._notes: dict[str, Any] = {}
        self.run = path.name.removesuffix(".jsonl")
        self.created_at = datetime.now(UTC)
        self.expires_at = self.created_at + LIFE
        self.account: str | None = None
        self.profile: str | None = None
        self.role: str | None = None
        self.kept: set[str] = set()  #: owners whose things are left alone until they expire or `reap` names the run

    @classmethod
    def create(
        cls,
        run_id: str,
        *,
        account: str | None = None,
        profile: str | None = None,
        role: str | None = None,
        life: timedelta = LIFE,
        directory: Path | None = None,
    ) -> Inventory:
        """Begin a run's file, and hold it; join it when another process of the run has begun it.

        Raises UsageError when it can't be written: nothing may be created then.
        """
        if not _RUN_ID.fullmatch(run_id):
            raise UsageError(f"a run's id is made of letters, digits and ._-, not {run_id!r}")
        folder = directory or state_directory()
        path = folder / f"{run_id}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            inventory = cls(path, locked(path, fcntl.LOCK_SH))
        except OSError as error:
            raise UsageError(
                f"can't write {path}: {error.strerror}; what costs money is written down there before it is created "
                "(XDG_STATE_HOME names another place)"
            ) from None
        with inventory.alone():
            inventory.reload()
            if "created_at" not in inventory._notes:
                now = datetime.now(UTC)
                inventory._write(
                    event="run",
                    created_at=now.isoformat(),
                    expires_at=(now + life).isoformat(),
                    account=account,
                    profile=profile,
                    role=role,
                )
                _sync_directory(folder)
                inventory.reload()
        return inventory

    @classmethod
    def read(cls, path: Path) -> Inventory:
        """Read a run's file without holding it. Raises OSError."""
        inventory = cls(path, None)
        inventory.reload()
        return inventory

    @classmethod
    def abandoned(cls, path: Path, *, even_if_held: bool = False) -> Inventory | None:
        """Hold a run's file alone, for removing what it names; None while processes of the run hold it.

        `even_if_held` is for runs that have expired.
        """
        try:
            file = os.open(path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            return None  # another one was faster
        # Whoever has started the run's processes is there while none of them is.
        started = path.with_name(f"{path.name.removesuffix('.jsonl')}.{STARTED}.lock")
        if not even_if_held and (not lock_alone(file) or is_held(started)):
            os.close(file)
            return None
        inventory = cls(path, file)
        try:
            inventory.reload()
        except FileNotFoundError:
            os.close(file)
            return None
        return inventory

    def reload(self) -> None:
        """Read what processes of this run have written meanwhile."""
        self._entries = {}
        for line in self.path.read_bytes().splitlines():
            # A line that was torn by a kill is no loss: an intent is complete before the call is made, and what else
            # is missing is asked of the service.
            with suppress(ValueError, KeyError, TypeError):
                self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        event = line["event"]
        if event == "run":
            self._notes["created_at"] = line["created_at"]
            self.created_at = datetime.fromisoformat(line["created_at"])
            self.expires_at = datetime.fromisoformat(line["expires_at"])
            self.account, self.profile, self.role = line["account"], line["profile"], line["role"]
        elif event == "intend":
            entry = Entry(
                run=self.run,
                number=line["number"],
                kind=line["kind"],
                region=line["region"],
                name=line["name"],
                token=line["token"],
                owner=line["owner"],
                intended_at=datetime.fromisoformat(line["at"]),
                details=line["details"],
            )
            self._entries[entry.number] = entry
        elif event == "created":
            known = self._entries[line["number"]]
            self._entries[known.number] = replace(
                known, arn=line["arn"] or known.arn, details={**known.details, **line["details"]}
            )
        elif event == "tried":
            at = datetime.fromisoformat(line["at"])
            self._entries[line["number"]] = replace(self._entries[line["number"]], tried_at=at)
        elif event == "removed":
            self._entries[line["number"]] = replace(self._entries[line["number"]], removed=True)
        elif event == "kept":
            self.kept.add(line["owner"])
        elif event == "note":
            self._notes[line["name"]] = line["value"]

    @property
    def entries(self) -> list[Entry]:
        """Everything that was intended, in that order."""
        return list(self._entries.values())

    @property
    def remaining(self) -> list[Entry]:
        """What was not seen to be gone yet."""
        return [one for one in self._entries.values() if not one.removed]

    def entry(self, number: int) -> Entry:
        """Return an entry as it is now."""
        return self._entries[number]

    def intend(self, kind: str, region: str, name: str, *, owner: str = "", **details: Any) -> Entry:
        """Write down that something is about to be created, and return the entry with its client token."""
        _remember(self.path.parent, region)
        with self.alone():
            self.reload()
            number = max(self._entries, default=0) + 1
            self._write(
                event="intend",
                number=number,
                kind=kind,
                region=region,
                name=name,
                owner=owner,
                token=uuid.uuid4().hex,
                at=datetime.now(UTC).isoformat(),
                details=details,
            )
            self.reload()
        return self._entries[number]

    def created(self, entry: Entry, arn: str | None, **details: Any) -> Entry:
        """Write down that it exists, and what else is known of it now."""
        return self._add(entry, event="created", arn=arn, details=details)

    def tried(self, entry: Entry, at: datetime) -> Entry:
        """Write down that its create call is made (once more), so that it may appear some time after that."""
        return self._add(entry, event="tried", at=at.isoformat())

    def removed(self, entry: Entry) -> Entry:
        """Write down that it is gone."""
        return self._add(entry, event="removed")

    def keep(self, owner: str) -> None:
        """Write down that the user wants to keep what was created for one target; the rest of the run goes."""
        self._write(event="kept", owner=owner)
        self.kept.add(owner)

    def note(self, name: str, value: Any) -> None:
        """Write down something that other processes of the run are to know: JSON, nothing secret."""
        self._write(event="note", name=name, value=value)
        self._notes[name] = value

    def noted(self, name: str) -> Any:
        """Return what was noted under a name, by any process of this run; None when nothing was."""
        self.reload()
        return self._notes.get(name)

    def expired(self, now: datetime | None = None) -> bool:
        """Tell whether what the run created has reached its maximum life."""
        return (now or datetime.now(UTC)) >= self.expires_at

    def held(self) -> bool:
        """Tell whether a process of the run holds the file, for who only reads it."""
        try:
            file = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            return not lock_alone(file)
        finally:
            os.close(file)

    def hold(self, purpose: str) -> Hold:
        """Join the processes of the run that share something."""
        return Hold.of(self.run, purpose, self.path.parent)

    @contextmanager
    def alone(self, purpose: str = "writing") -> Iterator[None]:
        """Keep the run's other processes and threads from the same purpose meanwhile. Not to be nested in itself."""
        # A file of its own: the lock on the inventory is shared by all of them for as long as they live.
        gate = locked(self._gate(purpose), fcntl.LOCK_EX)
        try:
            yield
        finally:
            os.close(gate)

    def close(self) -> None:
        """Let go of the file; it goes when everything it names is gone and nobody else holds it."""
        if self._file is None:
            return
        try:
            with suppress(FileNotFoundError):
                self.reload()
                if not self.remaining and lock_alone(self._file):
                    for gate in self.path.parent.glob(f"{self.run}.*.lock"):
                        if not is_held(gate):
                            gate.unlink(missing_ok=True)
                    self.path.unlink(missing_ok=True)
        finally:
            os.close(self._file)
            self._file = None

    def _gate(self, purpose: str) -> Path:
        return self.path.with_name(f"{self.run}.{purpose}.lock")

    @property
    def _descriptor(self) -> int:
        if self._file is None:
            raise DsqlError(f"the inventory of run {self.run} is not held by this process")
        return self._file

    def _add(self, entry: Entry, **line: Any) -> Entry:
        self._write(number=entry.number, **line)
        self._take({"number": entry.number, **line})
        return self._entries[entry.number]

    def _write(self, **line: Any) -> None:
        text = json.dumps(line, separators=(",", ":"), default=str).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text  # a kill has torn the last line
        os.write(self._descriptor, text)
        os.fsync(self._descriptor)


def regions_used(directory: Path | None = None) -> set[str]:
    """Return the Regions that any run of this user has ever created something in."""
    with suppress(FileNotFoundError):
        return set(((directory or state_directory()).parent / "regions").read_text(encoding="utf-8").split())
    return set()


def _remember(folder: Path, region: str) -> None:
    """Note a Region for `verify`: a run's own file goes when all of it is removed."""
    if region not in regions_used(folder):
        with (folder.parent / "regions").open("a", encoding="utf-8") as file:
            file.write(f"{region}\n")


def inventories(directory: Path | None = None) -> list[Path]:
    """Return the files of all runs, the oldest first."""
    folder = directory or state_directory()
    return sorted(folder.glob("*.jsonl"))


def _sync_directory(folder: Path) -> None:
    """Have the file's name survive a power loss as well."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
