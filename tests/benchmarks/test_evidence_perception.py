"""Cells of perception: valid commands, shared stores, and their tables."""

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from stringline.encoders.perceive import with_heads


@pytest.fixture(scope="module")
def cells() -> ModuleType:
    return import_module("evidence_perception")


@pytest.fixture(scope="module")
def tasks() -> ModuleType:
    return import_module("evidence_perception_tasks")


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return import_module("evidence_perception_page")


@pytest.mark.slow
def test_every_choice_is_a_command_that_can_be_given(cells: ModuleType) -> None:
    everything = cells.perception_cells()
    assert len({cell.name for cell in everything}) == len(everything)
    drawn: list[list[str]] = []
    with initialize_config_module("stringline.configs", version_base="1.3"):
        for cell in (cell for cell in everything if cell.seed == 0):
            *stores, (_, given) = cell.commands()  # The last one has all options of the others.
            for verb, options in stores:
                if verb != "perceive" and options[:-1] not in drawn:
                    name = f"data/{options[0]}" if verb == "data" else verb
                    compose(name, overrides=options[1:] if verb == "data" else options)
                    drawn.append(options[:-1])
            trained = compose("perceive", overrides=with_heads(given))
            assert trained.trainer.seed == 0
            assert str(cells.RUNS) not in json.dumps(cell.recipe), "lines contain no paths"
            if cell.perception == "detect3d_names":
                assert "wine glass" in trained.held_out
            assert trained.trainer.steps == cells.BUDGETS[cell.perception][0]


def test_cells_of_the_same_images_share_their_store(
    cells: ModuleType, tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "FOLDER", tmp_path)
    monkeypatch.setattr(cells, "RUNS", tmp_path)
    boxes, names, initialised = (
        cells.PerceptionCell(task, choice, 0)
        for task, choice in (
            ("detect3d", tasks.FIRST),
            ("detect3d_names", tasks.FIRST),
            ("detect3d", tasks.INITIALISED),
        )
    )
    assert [verb for verb, _ in boxes.commands()] == ["scenes", "perceive"]
    (tmp_path / "detect3d_images").mkdir()
    assert [verb for verb, _ in names.commands()] == ["perceive"]
    first, *_ = initialised.commands()
    assert "task=retrieve" in first[1], "the towers are trained first"
    towers_of = tmp_path / "perception/retrieve_living/cayley_values/0/small/checkpoint"
    towers_of.mkdir(parents=True)
    assert (
        initialised.recipe["initialise_from"] == "perception/retrieve_living/cayley_values/0/small"
    )
    ((_, given),) = initialised.commands()
    towers = "initialise_from="
    assert [option for option in given if option.startswith(towers)] == [f"{towers}{towers_of}"]


def test_outcomes_are_those_of_the_run(
    cells: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "RUNS", tmp_path)
    cell = cells.PerceptionCell("video", "none", 2)
    cell.folder.mkdir(parents=True)
    results = {
        "measures": {"top1": 0.5},
        "studies": {},
        "images": {"train": 8, "test": 2},
        "parameters": 10,
        "operations": {"products": 10, "rotations": 2},
        "subsets": [],
        "curve": [],
        "test_groups": ["b", "a"],
        "steps": 3,
        "each": {"index": [4, 5], "within_pair": [1.0, 0.333333]},
    }
    (cell.folder / "results.json").write_text(json.dumps(results))
    found = cell.outcomes()
    assert found["measures"] == {"top1": 0.5}
    assert found["each"] == {"index": [4, 5], "within_pair": [1.0, 0.3333]}
    assert found["groups"] == [0, 1]


def classified(choice: str, seed: int, right: int, **studies: Any) -> dict[str, object]:
    """Returns the line of a classifier that is right on the first so many of 40 images."""
    return {
        "perception": "classify",
        "choice": choice,
        "seed": seed,
        "measures": {"top1": right / 40, "chance": 0.1},
        "studies": studies,
        "images": {"train": 100, "test": 40},
        "each": {"index": list(range(40)), "correct": [1.0] * right + [0.0] * (40 - right)},
    }


def test_choices_are_compared_with_the_reference_over_images_and_trainings(
    page: ModuleType,
) -> None:
    shuffled = {"PatchShuffling": [{"setting": "permutation 0", "top1": 0.25, "changed": 0.5}]}
    lines = [
        classified("cayley", 1, 30),
        classified("cayley", 0, 32, **shuffled),
        classified("none", 0, 10),
        classified("none", 1, 12),
        classified("liere", 0, 20),
        {"look": "lifting"},
    ]
    text = page.tables(lines)
    assert "100 images for training, 40 for the test." in text
    (cayley, liere, none) = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in text.splitlines()
        if row.startswith(("| cayley | 0.800;", "| liere", "| none"))
    ]
    assert cayley[1:3] == ["0.800; 0.750", "0.100; 0.100"]
    assert cayley[3] == "-"
    assert liere[3].startswith("+0.275 [")
    assert liere[3].endswith("(these trainings)")
    assert none[3].startswith("+0.500 [")
    assert "these trainings" not in none[3]
    assert "| cayley | 0.800 | 0.250 | 50.0 % |" in text
    assert page.tables([{"look": "lifting"}]) == ""


def test_the_steps_to_equal_accuracy_are_those_of_the_curves(page: ModuleType) -> None:
    lines = [
        classified(choice, 0, 30)
        | {
            "perception": "curve",
            "curve": [{"steps": 200.0, "top1": first}, {"steps": 400.0, "top1": second}],
        }
        for choice, first, second in (("cayley", 0.3, 0.4), ("none", 0.1, 0.3), ("liere", 0, 0.2))
    ]
    text = page.tables(lines)
    assert "Steps to top1 0.300, the last one of `none`, of each training." in text
    assert "| cayley | 200 |" in text
    assert "| none | 400 |" in text
    assert "| liere | not reached |" in text


def test_boxes_are_compared_by_objects(page: ModuleType) -> None:
    def line(choice: str, sums: list[float]) -> dict[str, object]:
        return {
            "perception": "detect3d",
            "choice": choice,
            "seed": 0,
            "measures": {"mean_iou": sum(sums) / 40, "constant_box_iou": 0.02, "ap3d_25": 0.1},
            "studies": {},
            "images": {"train": 100, "test": 20},
            "each": {"index": list(range(20)), "iou_sum": sums, "objects": [2.0] * 20},
        }

    text = page.tables(
        [line("rgbd_cayley_values_relative", [0.6] * 20), line("rgb_cayley_relative", [0.2] * 20)]
    )
    (row,) = [row for row in text.splitlines() if row.startswith("| rgb_cayley_relative |")]
    assert "+0.200 [+0.200, +0.200], p " in row


def test_every_task_has_a_table(page: ModuleType) -> None:
    values = {"index": [0], "correct": [1.0], "i2t_rank": [0], "iou_sum": [0.5], "within_pair": [1]}
    for task, choice in page.REFERENCES.items():
        line = {
            "perception": task,
            "choice": choice,
            "seed": 0,
            "measures": dict.fromkeys(page.TASKS[task].shown, 0.5),
            "studies": {},
            "images": {"train": 1, "test": 1},
            "each": values | {"objects": [1.0]},
        }
        assert f"| {choice} | 0.500 |" in page.tables([line]), task
