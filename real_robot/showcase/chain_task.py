"""The task of a chain: whether it can run, its cameras, and its emulated arms."""

from collections.abc import Mapping
from dataclasses import dataclass

from stringline.datasets.contract.argument_checks import unknown_name
from stringline.datasets.embodiments.aloha import ALOHA
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.datasets.embodiments.iiwa14 import IIWA14, IIWA14_BIMANUAL
from stringline.sim.experts.expert_registry import make_expert
from stringline.sim.tasks.tabletop import TabletopTask
from stringline.sim.tasks.task_registry import TASKS, is_user_task, task_class
from stringline.sim.worlds.task_settings import TaskSettings
from stringline.sim.worlds.world_registry import is_third_party

OVERHEAD = "overhead"


@dataclass(frozen=True)
class EmulatedArms:
    """The emulated arms of an embodiment.

    Attributes:
        words: The arms and their protocol, for a report.
        overrides: Options of `stringline-deploy` that choose them.
    """

    words: str
    overrides: Mapping[str, str]


ARMS: Mapping[str, EmulatedArms] = {
    ALOHA.name: EmulatedArms(
        "emulated ALOHA arms over the servo protocol", {"robot": "aloha_emulated"}
    ),
    IIWA14.name: EmulatedArms("an emulated KUKA arm over FRI", {"robot": "kuka_emulated"}),
    IIWA14_BIMANUAL.name: EmulatedArms(
        "two emulated KUKA arms over FRI", {"robot": "kuka_emulated", "robot.arms": "two"}
    ),
}


class ChainTask:
    """A task with an expert and emulated arms.

    Args:
        settings: Settings of the task.
        varied: Whether the demonstrations are those of the expert with variation.

    Attributes:
        embodiment: The arms of the task.
        arms: Their emulation.

    Raises:
        ValueError: The task does not exist, has no such expert, or its arms have no emulator.
    """

    def __init__(self, settings: TaskSettings, *, varied: bool) -> None:
        name = settings.name
        self._settings = settings
        self._class = _task_class(name)
        self.embodiment: Embodiment = self._class.cell.embodiment
        if self.embodiment.name not in ARMS:
            raise unknown_name("emulated embodiment", self.embodiment.name, ARMS)
        self.arms = ARMS[self.embodiment.name]
        make_expert(name, varied=varied)

    @property
    def choice(self) -> str:
        """The option that chooses the task on a command line."""
        name = self._settings.name
        return f"task.name={name}" if is_user_task(name) else f"task={name}"

    @property
    def title(self) -> str:
        """The name of the task as a heading."""
        name = self._settings.name.rpartition(":")[2].replace("_", " ")
        return name[:1].upper() + name[1:]

    def policy_cameras(self) -> list[str]:
        """Returns the cameras of the task that a policy reads: overhead and on the wrists."""
        fixed = {mount.name for mount in self.embodiment.cameras if mount.parent == "world"}
        recorded = self._settings.cameras or [mount.name for mount in self.embodiment.cameras]
        return [name for name in recorded if name == OVERHEAD or name not in fixed]

    def success(self) -> str:
        """Returns a sentence on the criterion of success, for a report."""
        stages = ", ".join(self._class.stages)
        where = "" if is_user_task(self._settings.name) else " docs/tasks.md has the criterion."
        return f"Instruction: {self._class.instruction}. Stages of an episode: {stages}.{where}"


def _task_class(name: str) -> type[TabletopTask]:
    # Boards for calibration have no goal, worlds of third parties no emulated arms.
    if is_third_party(name) or name.startswith("stringline."):
        raise ValueError(
            f"{name} cannot run the whole chain, which needs a scripted expert and emulated arms. "
            f"Allowed: {', '.join(sorted(TASKS))}, and module:Class of yours."
        )
    return task_class(name)
