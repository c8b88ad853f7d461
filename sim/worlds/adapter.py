"""The interface between `ThirdPartyEnvironment` and the simulation of a third-party package."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, util
from typing import Any, Protocol

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix


@dataclass(frozen=True)
class CameraView:
    """A camera of a third-party model, with its vertical field of view."""

    camera: str
    fovy_deg: float


@dataclass(frozen=True)
class TaskDescription:
    """The constants of a third-party task.

    Attributes:
        stages: Names, one more than the steps of the reward; the last one is success.
        embodiment: The embodiment, whose joints are those of the contract.
        views: Cameras by their names in the contract.
        T_base_world: (4, 4), from the frame of the environment to the base of the embodiment.
        image_delay_s: Age of the observed images.
        joint_delay_s: Age of the observed joints.
    """

    name: str
    instruction: str
    stages: tuple[str, ...]
    embodiment: Embodiment
    views: Mapping[str, CameraView]
    T_base_world: Matrix
    control_hz: float = 50.0
    image_delay_s: float = 0.0
    joint_delay_s: float = 0.0


@dataclass(frozen=True)
class JointMeasurement:
    """Joints (J,) in the units of the contract: rad and openings, their rates, and Nm and N."""

    position: Vector
    velocity: Vector
    effort: Vector


class Adapter(Protocol):
    """A third-party simulation."""

    @property
    def about(self) -> TaskDescription:
        """The constants of the task."""
        ...

    @property
    def physics(self) -> Any:
        """The dm_control physics; `begin` may replace it."""
        ...

    @property
    def stage(self) -> int:
        """The current stage according to the reward."""
        ...

    @property
    def unstable(self) -> bool:
        """Whether the physics became unstable in this episode."""
        ...

    def begin(self, seed: int) -> None:
        """Begins the episode that the third-party package begins with that seed."""

    def advance(self, action: Vector) -> None:
        """Applies joint targets (J,) of the contract for one control period."""

    def measure(self) -> JointMeasurement:
        """Returns the current joints."""
        ...

    def close(self) -> None:
        """Frees the physics."""


def check_version(package: str, module: str, version: str, how: str) -> None:
    """Checks the version of a third-party package; a module without metadata is accepted.

    `how` is a sentence on the installation.

    Raises:
        ValueError: The package is not installed or has another version.
    """
    if util.find_spec(module) is None:
        raise ValueError(f"{package} is not installed. {how}")
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:  # A folder on Python's path.
        return
    if found != version:
        raise ValueError(f"{package} {found} is installed; Stringline needs {version}. {how}")
