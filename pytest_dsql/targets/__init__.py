"""What is measured: how a target comes to exist and how it goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_dsql.settings import Settings
    from pytest_dsql.targets.target import Target


def open_target(settings: Settings, *, run_id: str) -> Target:
    """Make the target that the settings name. `run_id` is what processes of one run share.

    Raises UsageError, MissingExtra, EngineError, CredentialsError or ConnectionFailed, each one clear line.
    """
    if settings.target == "attach":
        from pytest_dsql.targets.attach import attach

        return attach(settings)
    from pytest_dsql.targets.local import open_local

    return open_local(settings, run_id=run_id)


def preflight(settings: Settings) -> None:
    """Say what would keep the target from being made, before anything is created. Raises like `open_target`."""
    if settings.target == "attach":
        from pytest_dsql.targets.attach import attach

        attach(settings).close()
    elif settings.engine is None:
        from pytest_dsql.local.options import EngineOptions
        from pytest_dsql.targets.local import check_installed

        EngineOptions().with_settings(settings.set)
        check_installed()
