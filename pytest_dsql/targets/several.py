"""The targets of a run: each made when it is first asked for, all given up together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, final

from pytest_dsql.targets import open_target

if TYPE_CHECKING:
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target


@final
class Targets(Mapping[str, "Target"]):
    """Name -> target, in the order in which `--dsql-target` names them. `opened` holds those that were made."""

    def __init__(
        self,
        settings: Settings,
        *,
        run_id: str,
        say: Callable[[str], None] = lambda _text: None,
        open_one: Callable[..., Target] = open_target,
    ) -> None:
        self._open = open_one
        self._settings = settings
        self._run_id = run_id
        self._say = say
        self._listeners: list[Callable[[Target], None]] = []
        self._closing = ExitStack()
        self.opened: dict[str, Target] = {}

    def __getitem__(self, name: str) -> Target:
        """Return a target, made now unless it was before. Raises as `open_target` does, KeyError for another name."""
        if name not in self._settings.targets:
            raise KeyError(name)
        if name not in self.opened:
            target = self._open(self._settings.for_target(name), run_id=self._run_id, say=self._say)
            self._closing.callback(target.close)
            self.opened[name] = target
            for tell in self._listeners:
                tell(target)
        return self.opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings.targets)

    def __len__(self) -> int:
        return len(self._settings.targets)

    def tell(self, listener: Callable[[Target], None]) -> None:
        """Call `listener` with each target: at once with those that are there, later with those that are made."""
        self._listeners.append(listener)
        for target in self.opened.values():
            listener(target)

    def close(self) -> None:
        """Give up all that were made, the last one first."""
        self.opened.clear()
        self._closing.close()
