"""A scripted expert for the insertion of one block."""

from collections.abc import Iterator

from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.experts.bars import Part
from stringline.sim.experts.insertion import BLOCK_CLOSED, PACES, SOCKET_CLOSED, fill, stand_at
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import Skills
from stringline.sim.tasks.single_insertion import SingleInsertion

SOCKET_PITCHES_DEG = (60.0, 63.0)  # Steeper, the cameras on both grippers would meet before the block is in.


class SingleInsertionExpert(ScriptedExpert[SingleInsertion]):
    """The left arm takes the socket and holds it level; the right one takes the block, aligns it and pushes it in."""

    task_class = SingleInsertion

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: SingleInsertion, skills: Skills) -> Iterator[Vector]:
        """Does what is missing until the block is seated, or has been tried often enough."""
        rng = skills.rng
        stand = stand_at(skills, Part("left", rng.uniform(0.044, 0.048), SOCKET_CLOSED, SOCKET_PITCHES_DEG))
        inserter = Part("right", rng.uniform(0.046, 0.05), BLOCK_CLOSED)
        yield from fill(skills, task, task.block, stand, inserter, rng.uniform(0.077, 0.08))
        yield from skills.go_home("right")
