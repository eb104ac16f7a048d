"""Opens targets as a run does, with the PostgreSQL in place of what moto makes."""

from __future__ import annotations

from pytest_dsql.settings import Settings
from pytest_dsql.targets.created import module_of
from pytest_dsql.targets.target import Target
from tests.plain_postgres import PlainPostgres
from tests.targets.rds.conftest import GENERATOR, begin


def settings_for(target: str, postgres: PlainPostgres, **options: str) -> Settings:
    """Settings of a target; underscores in options are hyphens, and "" leaves one out."""
    usual = {"generator": GENERATOR, "sslrootcert": str(postgres.sslrootcert)}
    given = {name.replace("_", "-"): value for name, value in options.items()}
    options_given = {name: value for name, value in (usual | given).items() if value}
    return Settings(target=target, budget=1.0, target_option=options_given)


def opened(target: str, postgres: PlainPostgres, **options: str) -> Target:
    """Check the settings and open the target."""
    settings = settings_for(target, postgres, **options)
    module = module_of(target)
    module.check(settings)
    run = begin(target)
    try:
        return module.open(settings, run)
    except BaseException:
        run.close()  # what a target shares with others is in use as long as it is open
        raise
