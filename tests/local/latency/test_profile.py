from datetime import date
from pathlib import Path

import pytest

from pytest_dsql.errors import UsageError
from pytest_dsql.local.documents import Document
from pytest_dsql.local.latency.distribution import Constant, LogNormal
from pytest_dsql.local.latency.profile import OFF, load, names, parse


@pytest.mark.parametrize("name", [name for name in names() if name != "none"])
def test_each_profile_says_when_and_by_whom_it_was_measured(name: str) -> None:
    profile = load(name)
    assert profile.about
    assert profile.measured is not None
    assert profile.measured > date(2026, 1, 1)
    assert profile.sources


def test_no_profile_injects_nothing() -> None:
    assert load("none") is OFF


def test_the_known_ones_are_named_when_one_is_not_known() -> None:
    with pytest.raises(UsageError, match=r"no latency profile 'mars': name one of none, multi-region, seoul-2026-09"):
        load("mars")


def test_a_profile_can_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("rtt = 1.5\n[commit]\nwriting = { p50 = 5, p99 = 9 }\n")
    profile = load(str(file))
    assert profile.name == "mine"
    assert profile.region(0).rtt == Constant(1.5)
    assert profile.region(0).commit.writing == LogNormal.fitted(5, 9, 600_000)


def test_a_region_has_the_common_figures_where_it_says_nothing() -> None:
    text = "rtt = 1\n[statement]\nread = 2\n[[region]]\n[[region]]\nrtt = 7\nstatement.insert = 3\n"
    profile = parse(Document(text, "p"), "p")
    first, second = profile.region(0), profile.region(1)
    assert (first.rtt, first.statement.read, first.statement.insert) == (Constant(1), Constant(2), Constant(0))
    assert (second.rtt, second.statement.read, second.statement.insert) == (Constant(7), Constant(2), Constant(3))
    assert profile.region(5) == second


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("rtt = ", "p: not TOML: Invalid value"),
        ("rtt = 1\nspeed = 2", "p:2: speed: unknown key; known: about"),
        ("[connect]\ntcp = 1\ntls = 'slow'", "p:3: connect.tls: expected milliseconds, 0 to 600,000, not 'slow'"),
        ("[statement]\n\nselect = 1", "p:3: statement.select: unknown key; known: begin, point_read"),
        ("[commit]\nwriting = { p50 = 5 }", "p:2: commit.writing: expected both p50 and p99"),
        ("[commit]\nwriting = { p50 = 5, p99 = 4 }", "p:2: commit.writing: expected 0 < p50 <= p99"),
        ("[commit]\nwriting = { p50 = 5, p99 = 9, max = 8 }", "p:2: commit.writing.max: less than p99"),
        ("[commit]\nwriting.p50 = -1\nwriting.p99 = 2", "p:2: commit.writing.p50: expected milliseconds"),
        ("rtt = { quantiles = [[0, 1]] }", r"p:1: rtt: expected quantiles as \[\[share, ms\], ...\]"),
        ("rtt = { quantiles = [[0, 1], [0.5, 2]] }", "p:1: rtt: the quantiles' shares must rise from 0 to 1"),
        ("rtt = { quantiles = [[0, 1], [1, 0.5]] }", "p:1: rtt: the quantiles' values must not fall"),
        ("rtt = true", "p:1: rtt: expected milliseconds"),
        ("rtt = 1\n[[region]]\n[[region]]\nfoo = 1", "p:4: region.#2.foo: unknown key"),
        ("[region]\nrtt = 1", r"p:1: region: write \[\[region\]\]"),
        ("measured = 'today'", "p:1: measured: expected a day, like 2026-09-29"),
    ],
)
def test_a_mistake_is_shown_with_its_line(text: str, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        parse(Document(text, "p"), "p")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: No such file"):
        load(str(tmp_path / "gone.toml"))
