"""The names of the appearances of the arms, which import without the simulation."""

from typing import Literal

from stringline.datasets.contract.argument_checks import unknown_name

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
