"""Hostile data sets read no file outside, run no code, and take neither memory nor time."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from tests.datasets.formats.hostile_corpus import CASES
from tests.datasets.formats.hostile_runs import FILES, Run, run_all
from tests.datasets.formats.small_sets import READERS

LONGEST_S = 10
MOST_GIB = 1.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Imports all of them, one after the other, in one process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        folder = tmp_path_factory.mktemp("hostile")
        return pool.submit(run_all, list(CASES), folder, MOST_GIB).result()


def test_the_corpus_covers_all_formats() -> None:
    assert len(FILES) == 6
    assert len(CASES) >= 40
    assert {each.format for each in CASES.values()} == set(READERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_data_set_is_refused_in_one_line(runs: dict[str, Run], name: str) -> None:
    run = runs[name]
    case = CASES[name]
    assert run.error in ("", "ValueError", "ForeignDataError"), run.messages
    assert any(case.says in message for message in run.messages), run.messages
    assert all(len(message) < 1500 and "\n" not in message for message in run.messages)
    assert not any("cannot be read (" in message for message in run.messages), run.messages
    assert run.imported == case.others
    assert not run.told
    assert not run.ran
    assert run.gib <= MOST_GIB
    assert run.seconds <= LONGEST_S
