"""The benchmark of experts continues its counts."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from stringline.sim.statistics.intervals import Rate

FILE = Path(__file__).parents[2] / "benchmarks" / "experts.py"
SETTINGS = {"first_seed": 0, "options": {"table_height": 0.1}}


@pytest.fixture(scope="module")
def experts() -> ModuleType:
    return import_module("experts")


def test_a_continued_count_is_the_count_of_all(experts: ModuleType) -> None:
    lengths = np.random.default_rng(0).uniform(3.0, 9.0, 12)
    found = [
        experts.Attempt(seed, seed != 4, "grasped", length, "")
        for seed, length in enumerate(lengths)
    ]
    whole = experts.Tally.of(found).entry("kuka_pick", SETTINGS)
    stored = json.loads(json.dumps(experts.Tally.of(found[:7]).entry("kuka_pick", SETTINGS)))
    continued = (experts.Tally.read(stored) + experts.Tally.of(found[7:])).entry(
        "kuka_pick", SETTINGS
    )
    kept = np.delete(lengths, 4)
    for entry in (whole, continued):
        assert entry["rate"] == Rate(11, 12).to_dict()
        assert entry["seconds"] == pytest.approx(kept.mean())
        assert entry["length_variation"] == pytest.approx(kept.std() / kept.mean())
        assert entry["failed"] == [{"seed": 4, "stage": "grasped", "error": ""}]
        assert (entry["name"], entry["settings"]) == ("experts/kuka_pick", SETTINGS)


def test_without_successes_there_is_no_length(experts: ModuleType) -> None:
    entry = experts.Tally.of([experts.Attempt(0, False, "start", 60.0, "Out of reach.")]).entry(
        "fmb_1", SETTINGS
    )
    assert entry["seconds"] is entry["length_variation"] is None
    again = experts.Tally.read(json.loads(json.dumps(entry)))
    assert again.line("fmb_1").endswith("\n    seed 0 ended at 'start'. Out of reach.")
    assert again.rate == Rate(0, 1)


def test_a_file_of_other_settings_is_not_continued(
    experts: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    only = ["kuka_pick"]
    assert experts.read(None, SETTINGS, only) == {}
    assert experts.read(tmp_path / "none.json", SETTINGS, only) == {}
    file = tmp_path / "some.json"
    entry = experts.Tally.of([experts.Attempt(0, True, "success", 4.0, "")]).entry(
        "kuka_pick", SETTINGS
    )
    file.write_text(json.dumps([entry]))
    assert experts.read(file, SETTINGS, only) == {"kuka_pick": entry}
    monkeypatch.setattr(
        sys,
        "argv",
        ["experts.py", "--only", "kuka_pick", "--distractors", "1", "--json", str(file)],
    )
    with pytest.raises(SystemExit):
        experts.main()
    printed = capsys.readouterr().err
    assert "measured with {'first_seed': 0, 'options': {'table_height': 0.1}}; the" in printed
    assert "'options': {'distractors': 1.0}, 'varied': True}. Choose another file." in printed
    monkeypatch.setattr(sys, "argv", ["experts.py", "--only", "kuka_pik"])
    with pytest.raises(SystemExit):
        experts.main()
    assert "'kuka_pick'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "file", sorted(FILE.parents[1].glob("docs/experts*.json")), ids=lambda file: str(file.name)
)
def test_published_results_can_be_continued(experts: ModuleType, file: Path) -> None:
    for task, entry in experts.read(file, {}, []).items():
        assert experts.read(file, entry["settings"], [task])
        again = experts.Tally.read(entry).entry(task, entry["settings"])
        assert again["rate"] == entry["rate"]
        assert again["seconds"] == pytest.approx(entry["seconds"])
        assert again["length_variation"] == pytest.approx(entry["length_variation"])
