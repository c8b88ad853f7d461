"""The appearance of the arms: our primitives or published meshes. Both move in the same way."""

from typing import Literal

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.sim.robots.menagerie import use_meshes
from stringline.sim.robots.robot import Robot

RobotModel = Literal["primitives", "menagerie"]
ROBOT_MODELS: tuple[RobotModel, ...] = ("primitives", "menagerie")
PRIMITIVES: RobotModel = "primitives"
# Key in results and recipes; where it is missing, the model was `primitives`.
ROBOT_MODEL = "robot_model"


def check_robot_model(model: str) -> None:
    """Checks the name of a robot model.

    Raises:
        ValueError: There is no such model.
    """
    if model not in ROBOT_MODELS:
        raise unknown_name("robot.model", model, ROBOT_MODELS)


def set_robot_model(robot: Robot, model: RobotModel) -> None:
    """Draws primitive arms by a robot model, before they are compiled; collisions and motion stay.

    Raises:
        ValueError: There is no such model, or none of these arms; or its files are missing, or
            describe other arms.
    """
    check_robot_model(model)
    if model == "menagerie":
        use_meshes(robot)
