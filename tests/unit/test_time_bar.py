"""A test that takes too long fails the run; a marked one, and one on a slow machine, does not."""

from __future__ import annotations

import json

import pytest

from support import time_bar

pytestmark = pytest.mark.unit

MANY = 1000.0
"""Times slower, or more crowded, than the machine of the bars: then no test here is too slow,
however long the machine that runs this one lets it wait."""
SLEEPS = """
import time
import pytest

{mark}
def test_sleeps():
    time.sleep(0.2)

def test_fails():
    {body}
"""


def run(pytester: pytest.Pytester, *flags: str, mark: str = "", body: str = "pass") -> int:
    pytester.makepyfile(SLEEPS.format(mark=mark, body=body))
    pytester.makeini(
        "[pytest]\nmarkers =\n slow: s\n ci: c\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = pytester.runpytest_inprocess("-p", "support.time_bar", "-p", "no:cacheprovider", *flags)
    return int(done.ret)


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_bar, "LIMIT_S", 0.1)
    monkeypatch.setattr(time_bar, "crowding", lambda: 1.0)
    monkeypatch.setattr(time_bar, "machine_factor", lambda: 1.0)


def test_an_unmarked_test_over_the_limit_fails_the_run_and_is_named(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(pytester) == pytest.ExitCode.TESTS_FAILED
    said = capsys.readouterr().out
    assert "TOO LONG" in said
    assert "::test_sleeps: 0 s" in said
    assert "2 passed" in said


@pytest.mark.parametrize("mark", ["slow", "ci"])
def test_a_marked_test_may_take_longer(pytester: pytest.Pytester, mark: str) -> None:
    assert run(pytester, mark=f"@pytest.mark.{mark}") == pytest.ExitCode.OK


def test_the_limit_grows_with_the_machines_factor(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_bar, "machine_factor", lambda: MANY)
    assert run(pytester) == pytest.ExitCode.OK


def test_a_machine_that_became_slow_meanwhile_is_not_the_tests_fault(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors = iter([1.0, MANY])
    monkeypatch.setattr(time_bar, "machine_factor", lambda: next(factors, MANY))
    assert run(pytester) == pytest.ExitCode.OK


def test_it_works_beside_a_conftest_of_one_folder_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_bar, "machine_factor", lambda: MANY)
    for folder in ("one", "two"):
        pytester.mkdir(folder).joinpath(f"test_{folder}.py").write_text("def test_it(): pass\n")
    pytester.path.joinpath("one", "conftest.py").touch()
    assert run(pytester, mark="@pytest.mark.slow") == pytest.ExitCode.OK


def test_a_crowded_machine_is_not_the_tests_fault(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_bar, "crowding", lambda: MANY)
    assert run(pytester) == pytest.ExitCode.OK


def test_the_times_of_all_tests_are_written_the_longest_first(
    pytester: pytest.Pytester,
) -> None:
    file = pytester.path / "kept" / "times.json"
    assert run(pytester, "--times", str(file), body="assert 0") == pytest.ExitCode.TESTS_FAILED
    kept = json.loads(file.read_text())
    assert kept["factor"] == 1.0
    assert [row["test"].partition("::")[2] for row in kept["tests"]] == [
        "test_sleeps",
        "test_fails",
    ]
    assert kept["tests"][0]["call"] >= 0.2


def test_the_factor_is_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(time_bar, "_LOOP_S", 1000.0)
    assert time_bar.machine_factor() == 1.0
