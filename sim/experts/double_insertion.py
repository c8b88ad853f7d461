"""A scripted expert for the insertion of two blocks."""

from collections.abc import Iterator

from stringline.datasets.embodiments.aloha import ARMS
from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.experts.bars import Part, take
from stringline.sim.experts.insertion import BLOCK_CLOSED, PACES, RETREAT, SOCKET_CLOSED, fill, hold_up, stand_at
from stringline.sim.experts.scripted import ScriptedExpert
from stringline.sim.experts.skills import OPENING, Skills
from stringline.sim.tasks.double_insertion import BLOCK_LENGTH, DoubleInsertion

FINGERS = 0.016  # How far from the rim the point stays where a gripper holds a block: its pads reach 14 mm towards the rim.
BLOCK_PITCHES_DEG = (60.0, 66.0, 72.0)
SOCKET_PITCHES_DEG = (60.0, 63.0)  # Steeper, the cameras on both grippers would meet while both hold it.


class DoubleInsertionExpert(ScriptedExpert[DoubleInsertion]):
    """The left arm holds the socket while the right one inserts a block; the right one takes it over; both swap roles."""

    task_class = DoubleInsertion

    def __init__(self, paces: tuple[float, float] = PACES) -> None:
        super().__init__(paces)

    def script(self, task: DoubleInsertion, skills: Skills) -> Iterator[Vector]:
        """Inserts one block, hands the socket over in the air, and inserts the other one."""
        rng = skills.rng
        holding = {arm: Part(arm, rng.uniform(0.062, 0.066), SOCKET_CLOSED, SOCKET_PITCHES_DEG) for arm in ARMS}
        inserting = {arm: Part(arm, rng.uniform(0.031, 0.033), BLOCK_CLOSED, BLOCK_PITCHES_DEG) for arm in ARMS}
        depth = {arm: part.along + BLOCK_LENGTH / 2 - FINGERS for arm, part in inserting.items()}
        left, right = (stand_at(skills, holding[arm]) for arm in ARMS)
        if not (yield from fill(skills, task, task.first, left, inserting["right"], depth["right"])):
            return
        if not (yield from take(skills, holding["right"], task.socket, lift=0.0)):
            return
        yield from skills.grip("left", 1.0, OPENING)
        yield from skills.back_off("left", RETREAT)
        yield from hold_up(skills, right, task.socket)
        yield from fill(skills, task, task.second, right, inserting["left"], depth["left"])
        yield from skills.go_home("left")
