"""What `make mutate` removes, and the tests that it runs, exist."""

import functools
import inspect
from pathlib import Path

import pytest
from tests.real_robot.mutate import ROOT, SUITES, mutants, suite_of, without_method
from tests.real_robot.source_mutants import SOURCE_GUARDS


@pytest.mark.parametrize("suite", SUITES)
def test_the_tests_of_a_suite_exist(suite: str) -> None:
    missing = [file for file in SUITES[suite] if not (Path(__file__).parent / file).is_file()]
    assert missing == []


def test_every_suite_has_a_mutant() -> None:
    assert {suite_of(name) for name in (*mutants(), *SOURCE_GUARDS)} == set(SUITES)


def test_what_mutants_replace_exists() -> None:
    for name, change in mutants().items():
        assert isinstance(change, functools.partial) or callable(change), name
        if isinstance(change, functools.partial) and change.func is without_method:
            owner, attribute, _ = change.args
            # Attributes of instances are replaced by properties.
            assert hasattr(owner, attribute) or f"self.{attribute} = " in inspect.getsource(
                owner
            ), name


@pytest.mark.parametrize("name", SOURCE_GUARDS)
def test_a_guard_is_once_in_its_file(name: str) -> None:
    guard = SOURCE_GUARDS[name]
    source = (ROOT / guard.file).read_text(encoding="utf-8")
    assert guard.removed(source) != source
