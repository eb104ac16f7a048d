"""The plugin's options, markers and import cost, driven through pytester."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Tells what the plugin loads when pytest is there already.
LOADED = (
    "import sys, pytest, _pytest.terminal\n"
    "before = set(sys.modules)\n"
    "import pytest_dsql.plugin\n"
    "print(*set(sys.modules) - before)\n"
)


def test_a_run_that_uses_none_of_it_loads_little() -> None:
    loaded = set(
        subprocess.run([sys.executable, "-c", LOADED], check=True, capture_output=True, text=True).stdout.split()
    )
    ours = {name for name in loaded if name.partition(".")[0] == "pytest_dsql"}
    assert ours == {
        "pytest_dsql",
        "pytest_dsql.access",
        "pytest_dsql.errors",
        "pytest_dsql.fixtures",
        "pytest_dsql.fixtures.data",
        "pytest_dsql.fixtures.measuring",
        "pytest_dsql.fixtures.screen",
        "pytest_dsql.fixtures.session",
        "pytest_dsql.fixtures.target",
        "pytest_dsql.plugin",
        "pytest_dsql.settings",
        "pytest_dsql.transaction",
    }
    others = {name.partition(".")[0] for name in loaded} - sys.stdlib_module_names - {"pytest_dsql"}
    assert others == set()
    assert "asyncio" not in loaded


def test_every_option_is_in_the_help(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--help")
    result.stdout.fnmatch_lines(["Aurora DSQL benchmarks and fixtures:", "*--dsql-target=NAME*"])
    result.stdout.fnmatch_lines(["*dsql_plan (string)*"])


def test_markers_are_declared(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.dsql: *", "@pytest.mark.dsql_aws: *", "@pytest.mark.dsql_slow: *"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--dsql-target", "oracle"], "ERROR: --dsql-target: 'oracle' is not one of local, attach, *"),
        (["--dsql-plan", "fast"], "ERROR: --dsql-plan: 'fast' is not one of quick, full"),
        (["--dsql-set", "speed=9"], "ERROR: --dsql-set: unknown setting 'speed'; known: region, rules, *"),
        (["--dsql-target", "attach"], "ERROR: target 'attach' needs --dsql-endpoint *"),
        (["--dsql-latency", "mars"], "ERROR: no latency profile 'mars': *"),
        (["--dsql-faults", "gone.toml"], "ERROR: */gone.toml: No such file or directory"),
    ],
)
def test_a_wrong_option_is_a_usage_error(pytester: pytest.Pytester, arguments: list[str], line: str) -> None:
    pytester.makepyfile("def test_it(dsql_target): assert False, 'must not run'")
    result = pytester.runpytest_subprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([line])
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_a_wrong_ini_value_is_a_usage_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ndsql_plan = fast\n")
    result = pytester.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: ini value dsql_plan: 'fast' is not one of quick, full"])


def test_the_plugin_can_be_switched_off(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(request): assert 'dsql_plan' not in request.fixturenames")
    pytester.runpytest_subprocess("-p", "no:dsql").assert_outcomes(passed=1)


def test_tests_that_need_aws_are_skipped_on_the_embedded_engine(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.dsql_aws\ndef test_it(): assert False")
    pytester.runpytest_subprocess("-rs").assert_outcomes(skipped=1)


def test_a_misspelt_environment_variable_is_a_warning(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSQL_TARGT", "dsql")
    pytester.makepyfile("def test_it(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*the environment variable DSQL_TARGT means nothing *: is DSQL_TARGET meant?"])
