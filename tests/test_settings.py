"""Settings: precedence of the sources, and one clear line for every wrong value."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.local import environment
from pytest_dsql.local.options import EngineOptions
from pytest_dsql.settings import ENGINE_VARIABLE, OPTIONS, Settings, misspelt


def resolve(
    command_line: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    ini: dict[str, Any] | None = None,
) -> Settings:
    return Settings.resolve(
        command_line=command_line or {},
        environment=environment or {},
        ini=ini or {},
        check_set=EngineOptions().with_settings,
    )


def test_defaults_measure_the_embedded_engine() -> None:
    settings = resolve()
    assert (settings.target, settings.plan, settings.inconclusive, settings.seed) == ("local", "quick", "fail", 1)


def test_command_line_wins_over_environment_over_ini() -> None:
    sources = ({"plan": "full"}, {"DSQL_PLAN": "quick"}, {"plan": "quick"})
    assert resolve(*sources).plan == "full"
    assert resolve({}, {"DSQL_SEED": "7"}, {"seed": "8"}).seed == 7
    assert resolve({}, {}, {"seed": "8"}).seed == 8


def test_empty_values_are_not_given() -> None:
    assert resolve({"set": []}, {"DSQL_PLAN": ""}, {"set": [], "seed": ""}) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("target", "rds", "--dsql-target: 'rds' is not one of local, attach"),
        ("plan", "fast", "--dsql-plan: 'fast' is not one of quick, full"),
        ("scale", "huge", "--dsql-scale: 'huge' is not one of tiny, quick, full"),
        ("seed", "-1", "--dsql-seed: expected a whole number from 0 to 9223372036854775807, not '-1'"),
        ("seed", "1.5", "--dsql-seed: expected a whole number from 0 to 9223372036854775807, not '1.5'"),
        ("seed", "\u0663", "--dsql-seed: expected a whole number from 0 to 9223372036854775807, not '\u0663'"),
        ("workers", "0", "--dsql-workers: expected a whole number from 1 to 256, not '0'"),
        ("workers", "9999999999999999999999", "--dsql-workers: expected a whole number from 1 to 256"),
        ("inconclusive", "pass", "--dsql-inconclusive: 'pass' is not one of fail, skip"),
        ("set", ["rules"], "--dsql-set: expected NAME=VALUE, not 'rules'"),
        ("set", ["speed=9"], "--dsql-set: unknown setting 'speed'; known: region, rules, durable, asleep"),
        ("set", ["rules=yesterday"], "--dsql-set: rules=yesterday: not a day; write it like rules=2026-07-01"),
        ("set", ["connections=many"], "--dsql-set: connections=many: a whole number, 0 or more"),
        ("target", "attach", "target 'attach' needs --dsql-endpoint HOST_OR_CLUSTER_ID or --dsql-dsn DSN"),
        ("region", "eu-central-1", "--dsql-region goes with --dsql-endpoint; the local engine has its own"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_option(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve({name: value})
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_wrong_value_names_the_source_it_came_from() -> None:
    with pytest.raises(UsageError, match="environment variable DSQL_PLAN: 'x'"):
        resolve({}, {"DSQL_PLAN": "x"})
    with pytest.raises(UsageError, match="ini value dsql_plan: 'x'"):
        resolve({}, {}, {"plan": "x"})


def test_an_endpoint_or_a_dsn_implies_attach() -> None:
    assert resolve({"endpoint": "a" * 26}).target == "attach"
    assert resolve({}, {"DSQL_DSN": "postgresql://127.0.0.1/x"}).target == "attach"


def test_an_endpoint_and_a_dsn_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        resolve({"endpoint": "a" * 26, "dsn": "host=127.0.0.1"})


def test_an_endpoint_and_the_local_target_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="says 'local'"):
        resolve({"endpoint": "a" * 26, "target": "local"})


@pytest.mark.parametrize("name", ["region", "user", "profile"])
def test_a_dsn_says_by_itself_who_connects_where(name: str) -> None:
    with pytest.raises(UsageError, match=f"--dsql-{name} goes with --dsql-endpoint; a DSN says by itself"):
        resolve({"dsn": "host=127.0.0.1", name: "x"})
    assert resolve({"dsn": "host=127.0.0.1"}, {f"DSQL_{name.upper()}": "x"}).target == "attach"


def test_several_targets_have_one_settings_each() -> None:
    settings = resolve(
        {"target": "local, attach", "dsn": "host=127.0.0.1", "set": ["rules=2026-09-01"]}, {ENGINE_VARIABLE: ""}
    )
    assert (settings.target, settings.targets) == ("local", ("local", "attach"))
    local, attached = settings.for_target("local"), settings.for_target("attach")
    assert (local.targets, local.dsn, local.set) == (("local",), None, {"rules": "2026-09-01"})
    assert (attached.target, attached.targets, attached.dsn) == ("attach", ("attach",), "host=127.0.0.1")


def test_an_engine_that_runs_is_that_of_the_local_target_only() -> None:
    settings = resolve({"target": "attach,local", "dsn": "host=127.0.0.1"}, {ENGINE_VARIABLE: "/run/control"})
    assert settings.for_target("local").engine == "/run/control"
    assert settings.for_target("attach").engine is None


def test_several_targets_with_none_to_attach_to() -> None:
    with pytest.raises(UsageError, match="target 'attach' needs"):
        resolve({"target": "local,attach"})


def test_a_target_named_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="--dsql-target: 'local,local' names a target twice"):
        resolve({"target": "local,local"})


def test_engine_settings_come_too_late_for_an_engine_that_runs() -> None:
    with pytest.raises(UsageError, match="--dsql-set comes too late for an engine that runs"):
        resolve({"set": ["rules=2026-09-01"]}, {ENGINE_VARIABLE: "/run/control"})


def test_engine_settings_mean_nothing_on_attach() -> None:
    with pytest.raises(UsageError, match="embedded engine"):
        resolve({"endpoint": "a" * 26, "set": ["rules=2026-09-01"]})


def test_a_running_engine_wins_over_the_endpoint_it_put_into_the_environment() -> None:
    settings = resolve({}, {ENGINE_VARIABLE: "/run/control", "DSQL_ENDPOINT": "x.dsql.us-east-1.on.aws"})
    assert (settings.target, settings.engine, settings.endpoint) == ("local", "/run/control", None)


def test_an_endpoint_on_the_command_line_wins_over_a_running_engine() -> None:
    settings = resolve({"endpoint": "a" * 26}, {ENGINE_VARIABLE: "/run/control"})
    assert (settings.target, settings.engine) == ("attach", None)


def test_a_password_in_the_dsn_is_never_shown() -> None:
    assert "hunter2" not in repr(resolve({"dsn": "postgresql://u:hunter2@127.0.0.1/x"}))


def test_the_engine_which_knows_nothing_of_settings_uses_the_same_name() -> None:
    assert environment.ENGINE_VARIABLE == ENGINE_VARIABLE


def test_every_option_has_a_flag_an_ini_value_and_a_variable() -> None:
    option = next(one for one in OPTIONS if one.name == "inconclusive")
    assert (option.flag, option.ini, option.variable) == (
        "--dsql-inconclusive",
        "dsql_inconclusive",
        "DSQL_INCONCLUSIVE",
    )


def test_a_misspelt_variable_is_told_from_the_users_own() -> None:
    own = {"DSQL_TARGET": "local", "DSQL_LOCAL_ENGINE": "/x", "DSQL_ENDPOINTS": "a,b", "DSQL_USERS_TABLE": "users"}
    assert misspelt(own) == {}
    wrong = {"DSQL_TARGT": "dsql", "DSQL_PLN": "full", "DSQL_BUDGT": "5", "DSQL_TAGRET": "dsql"}
    assert misspelt(own | wrong) == {
        "DSQL_BUDGT": "DSQL_BUDGET",
        "DSQL_PLN": "DSQL_PLAN",
        "DSQL_TAGRET": "DSQL_TARGET",
        "DSQL_TARGT": "DSQL_TARGET",
    }
