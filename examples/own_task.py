"""A task of one's own in one file: a block has to be moved to the left half of the table.

    python examples/own_task.py                     # counts the successes of its expert

docs/tutorials/own-task.md explains each part, and goes on with demonstrations and training.
"""

import argparse
from collections.abc import Iterator

import numpy as np
from dm_control import mjcf

from stringline import (
    Block,
    ContactState,
    GoalTask,
    Grasp,
    Matrix,
    ScriptedExpert,
    Skills,
    TaskEnvironment,
    Vector,
    both_ways,
    gripper_pose,
    pose,
    record_episode,
    rotation_about,
)

WIDTH = 0.03  # Width and height of the block, metres.


class BlockToTheLeft(GoalTask):
    """The block lies on the left half of the table, released and at rest."""

    name = "own_task:BlockToTheLeft"
    instruction = "move the block to the left"
    stages = ("start", "lifted", "left", "success")

    def __init__(self, control_hz: float = 50.0) -> None:
        self.block = Block("block", length=0.06, width=WIDTH)
        super().__init__(control_hz, self.block)

    def place_props(self, physics: mjcf.Physics, random_state: np.random.RandomState) -> None:
        """Draws the pose of the block on the right half; the seed determines the episode."""
        x, y, turn = random_state.uniform((0.05, -0.1, -np.pi), (0.2, 0.1, np.pi))
        self.place(physics, self.block, pose((x, y, WIDTH / 2), rotation_about((0, 0, 1), turn)))

    def reached(self, physics: mjcf.Physics) -> bool:
        """Returns whether the block is 2 cm or more left of the middle, on the table."""
        x, _, z = self.pose(physics, self.block)[:3, 3]
        return bool(x < -0.02 and z < WIDTH)

    def progress(self, physics: mjcf.Physics, contacts: ContactState) -> int:
        """Returns the current stage, below success."""
        lifted = contacts.held("right", "block") and not contacts.between("block", "table")
        return 2 if lifted and self.pose(physics, self.block)[0, 3] < -0.02 else int(lifted)


FROM_ABOVE = gripper_pose((0.0, 0.0, 0.0), forwards=(0, 0, -1), across=(0, 1, 0))
GRASPS = both_ways([Grasp(FROM_ABOVE, closed=0.0)])  # The pads on the two long sides.


class BlockExpert(ScriptedExpert[BlockToTheLeft]):
    """Picks the block with the right arm and puts it down on the left."""

    task_class = BlockToTheLeft

    def script(self, task: BlockToTheLeft, skills: Skills) -> Iterator[Vector]:
        """Yields joint targets; skills look at the true poses and try again after a miss."""
        turn = skills.scene.pose(task.block)[:3, :3]

        def goal() -> Matrix:
            return pose((-0.06, 0.0, WIDTH / 2 + 0.001), turn)

        if (yield from skills.pick("right", task.block, GRASPS)):
            yield from skills.place("right", task.block, goal)
        yield from skills.go_home("right")


def main() -> None:
    """Runs the expert on some seeds, without images."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10)
    given = parser.parse_args()
    world = TaskEnvironment(BlockToTheLeft(), cameras=[], time_limit_s=12.0)
    outcomes = [record_episode(world, BlockExpert(), seed) for seed in range(given.episodes)]
    world.close()
    for seed, outcome in enumerate(outcomes):
        print(f"seed {seed}: {'success' if outcome.success else outcome.stage}")
    print(f"{sum(outcome.success for outcome in outcomes)} of {len(outcomes)} are successes.")


if __name__ == "__main__":
    main()
