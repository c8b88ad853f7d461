"""Trainings of different recipes are not called replicates: one line names what differs."""

from pathlib import Path

import pytest

from stringline.sim.experiments.experiment_plan import ExperimentPlan, prepare
from stringline.sim.experiments.recipes import TrainingRecipe


def plan(output: Path, *train: str) -> ExperimentPlan:
    """An experiment with one recipe of these overrides."""
    return ExperimentPlan(
        recipes=(TrainingRecipe("mine", train),),
        trainings=2,
        output=output,
        tasks=("fmb_1",),
        suite=None,
        stores=(),
        episodes=2,
        collect=(),
        train=("trainer.steps=3",),
        evaluate=(),
        seeds=None,
        first_seed=None,
        workers=1,
        videos=False,
    )


def test_the_error_names_only_what_differs(tmp_path: Path) -> None:
    before = ("encoder=rope_mixed", "trainer.batch_size=4")
    prepare(plan(tmp_path, *before))
    prepare(plan(tmp_path, *before))
    with pytest.raises(ValueError, match="The recipe 'mine' of") as error:
        prepare(plan(tmp_path, "encoder=cayley", "trainer.batch_size=4"))
    text = str(error.value)
    assert "was [encoder=rope_mixed]; now it is [encoder=cayley]." in text
    assert "Trainings of different recipes are no replicates" in text
    assert "\n" not in text
    with pytest.raises(ValueError, match=r"was \[\]; now it is \[encoder\.values=false\]"):
        prepare(plan(tmp_path, *before, "encoder.values=false"))
    with pytest.raises(ValueError, match=r"was .*encoder=rope_mixed, trainer\.batch_size=4\]; now"):
        prepare(plan(tmp_path, *before[::-1]))
