"""Mistakes in a task of another package are named where they are made."""

from typing import Any, ClassVar

import numpy as np
import pytest
from dm_control import mjcf

from stringline import ALOHA, Block, ContactState, GoalTask, Matrix, TaskEnvironment, pose


class Blocks(GoalTask):
    """Two blocks that rest where they lie."""

    name = "own:Blocks"
    instruction = "rest"
    stages: ClassVar[tuple[str, ...]] = ("start", "success")
    names = ("one", "two")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.one, self.two = (Block(name, length=0.05, width=0.03) for name in self.names)
        super().__init__(control_hz, self.one, *self.others())

    def others(self) -> list[Block]:
        """The second block."""
        return [self.two]

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Places both."""
        self.place(physics, self.one, self.at(0.1))
        self.place(physics, self.two, self.at(0.2))

    def at(self, x: float) -> Matrix:
        """Returns a pose on the table."""
        return pose((x, 0.0, 0.015))

    def reached(self, physics: mjcf.Physics) -> bool:
        """Never."""
        return False

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """The first stage."""
        return 0


class WithoutStages(Blocks):
    """It forgets its stages."""

    stages = ()


class SameNames(Blocks):
    """Its blocks have one name."""

    names = ("one", "one")


class NotGiven(Blocks):
    """It forgets a block."""

    def others(self) -> list[Block]:
        return []


class BeyondStages(Blocks):
    """It returns a stage that it does not have."""

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        return 1


class OtherArm(Blocks):
    """It asks for an arm that the workcell does not have."""

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        return int(contacts.held("arm", "one"))


class OtherProp(Blocks):
    """It asks for a prop that it does not have."""

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        return int(contacts.between("oen", "table"))


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (WithoutStages, r"WithoutStages.stages is \(\); allowed: at least two"),
        (SameNames, "SameNames has two props with the name 'one'"),
        (NotGiven, r"'two' is no prop of NotGiven.* super\(\).__init__"),
        (BeyondStages, "BeyondStages.progress returned 1; allowed: 0 to 0"),
        (OtherArm, "no arm 'arm'. Allowed: left, right"),
        (OtherProp, "no prop, arm or table 'oen'. Did you mean 'one'"),
    ],
)
def test_mistakes_of_a_task_are_named(task: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step(task)


def test_the_same_task_without_a_mistake_runs() -> None:
    step(Blocks)


def step(task: Any) -> None:
    """Builds the world of a task and takes one step."""
    world = TaskEnvironment(task(), cameras=())
    try:
        world.begin(seed=0)
        world.advance(ALOHA.home)
    finally:
        world.close()
