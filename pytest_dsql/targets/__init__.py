"""What is measured: how a target comes to exist and how it goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsql.errors import UsageError
from pytest_dsql.settings import EXISTING_TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target


def open_target(settings: Settings, *, run_id: str, say: Callable[[str], None] = lambda _text: None) -> Target:
    """Make the target that the settings name; of several the first. `run_id` is what processes of one run share.

    `say` is told of work that takes a while.

    Raises UsageError, MissingExtra, EngineError, CredentialsError, AwsError or ConnectionFailed, each one clear line.
    """
    if settings.target == "attach":
        from pytest_dsql.targets.attach import attach

        return attach(settings)
    if settings.target != "local":
        from pytest_dsql.targets.created import open_created

        return open_created(settings, run_id=run_id, say=say)
    from pytest_dsql.targets.local import open_local

    return open_local(settings, run_id=run_id)


def preflight(settings: Settings, *, results: bool) -> None:
    """Say what would keep the targets from being made, before anything is created. Raises like `open_target`.

    `results`: the run will write results, so see that it can.
    """
    if results:
        _check_results(settings)
    if any(name not in EXISTING_TARGETS for name in settings.targets):
        from pytest_dsql.targets.created import check_options

        check_options(settings)
    for name in settings.targets:
        _preflight_one(settings.for_target(name))


def _preflight_one(settings: Settings) -> None:
    if settings.target == "attach":
        from pytest_dsql.targets.attach import attach

        attach(settings).close()
    elif settings.target != "local":
        from pytest_dsql.targets.created import check_created

        check_created(settings)
    elif settings.engine is None:
        from pytest_dsql.targets.local import check_installed, engine_options

        engine_options(settings)
        check_installed()


def _check_results(settings: Settings) -> None:
    """See that results could be written, without making their directory."""
    import os
    from pathlib import Path

    directory = Path(settings.results).absolute()
    existing = next(one for one in (directory, *directory.parents) if one.exists() or one.is_symlink())
    if not existing.is_dir():
        reason = "is not a directory"
    elif not os.access(existing, os.W_OK | os.X_OK):
        reason = "can't be written to"
    else:
        return
    raise UsageError(f"can't write results to {directory}: {existing} {reason}; choose another with --dsql-results")
