"""What the arms of a world are drawn with: our primitives, or meshes that others made.

How they move is the same.
"""

from typing import Literal

from stringline.datasets.contract.arguments import unknown_name
from stringline.sim.robots.menagerie import put_on
from stringline.sim.robots.robot import Robot

RobotModel = Literal["primitives", "menagerie"]
ROBOT_MODELS: tuple[RobotModel, ...] = ("primitives", "menagerie")
PRIMITIVES: RobotModel = "primitives"
ROBOT_MODEL = (
    "robot_model"  # By which results and recipes say it; where they do not, it was primitives.
)


def demand_robot_model(model: str) -> None:
    """Does nothing if arms can be drawn with it.

    Raises:
        ValueError: There is no such model.
    """
    if model not in ROBOT_MODELS:
        raise unknown_name("robot.model", model, ROBOT_MODELS)


def dress(robot: Robot, model: RobotModel) -> None:
    """Changes what arms are drawn with, before their world is compiled: bodies, joints and collisions stay as they are.

    Args:
        robot: Made of primitives.
        model: `primitives` leaves it so, `menagerie` puts on the meshes of MuJoCo Menagerie.

    Raises:
        ValueError: There is no such model, or not of that body; its files are not there, or are of
            other arms.
    """
    demand_robot_model(model)
    if model == "menagerie":
        put_on(robot)
