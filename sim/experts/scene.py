"""A scripted expert's view of the world: true poses and contacts."""

from stringline.datasets.embodiments.embodiment import Vector
from stringline.datasets.embodiments.transforms import Matrix, inverse
from stringline.sim.environment.environment import TaskEnvironment
from stringline.sim.props.prop import Prop
from stringline.sim.tasks.tabletop import TabletopTask


class Scene:
    """Reads the true state of a world in a running episode."""

    def __init__(self, env: TaskEnvironment, task: TabletopTask) -> None:
        self.env = env
        self.task = task

    @property
    def table(self) -> float:
        """Height of the table top, metres."""
        return self.task.table_height

    def joints(self) -> Vector:
        """Returns the measured joints (J,)."""
        return self.task.robot.positions(self.env.physics)

    def gripper(self, arm: str) -> Matrix:
        """Returns the measured pose (4, 4) of a gripper in the base frame."""
        return self.task.embodiment.forward_kinematics(self.joints())[arm]

    def pose(self, prop: Prop) -> Matrix:
        """Returns the pose (4, 4) of a prop in the base frame."""
        return self.task.pose(self.env.physics, prop)

    def in_gripper(self, arm: str, prop: Prop) -> Matrix:
        """Returns the measured pose (4, 4) of a prop in the frame of a gripper."""
        return inverse(self.gripper(arm)) @ self.pose(prop)

    def holds(self, arm: str, prop: Prop) -> bool:
        """Returns whether both pads of an arm touch a prop."""
        return self.task.contact_state(self.env.physics).held(arm, prop.name)

    def foot(self, arm: str) -> Vector:
        """Returns the position (3,) of an arm's foot in the base frame, metres."""
        chains = self.task.embodiment.chains
        return next(chain.T_base_root[:3, 3] for chain in chains if chain.arm == arm)
