"""What has to be known of somebody else's world so that `PeerWorld` can run it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stringline.datasets.embodiments.embodiment import Embodiment, Vector
from stringline.datasets.embodiments.transforms import Matrix


@dataclass(frozen=True)
class PeerCamera:
    """A camera of a peer's.

    Attributes:
        camera: Its name in the peer's model.
        fovy_deg: Vertical field of view that it is drawn with.
    """

    camera: str
    fovy_deg: float


@dataclass(frozen=True)
class About:
    """What is fixed about a peer's task.

    Attributes:
        name: As in our configuration.
        instruction: What a person would say.
        stages: Names, one more than the peer counts steps of its reward; the last is success.
        embodiment: The body that moves in it; its joints are those of the contract.
        views: Cameras by the names that the contract gives them.
        T_base_world: (4, 4), from the frame of the peer's world to the base of the embodiment.
        control_hz: Actions per second.
        image_delay_s: How old the images are that the peer shows.
        joint_delay_s: The same for the joints.
    """

    name: str
    instruction: str
    stages: tuple[str, ...]
    embodiment: Embodiment
    views: Mapping[str, PeerCamera]
    T_base_world: Matrix
    control_hz: float = 50.0
    image_delay_s: float = 0.0
    joint_delay_s: float = 0.0


@dataclass(frozen=True)
class Measured:
    """Joints (J,) as the contract counts them: rad and openings, their speeds, and Nm and N."""

    position: Vector
    velocity: Vector
    effort: Vector


class Peer(Protocol):
    """Somebody else's world."""

    @property
    def about(self) -> About:
        """What is fixed."""
        ...

    @property
    def physics(self) -> Any:
        """Its dm_control physics; another one may stand there after each `begin`."""
        ...

    @property
    def stage(self) -> int:
        """How far it is now, by the peer's reward."""
        ...

    @property
    def unstable(self) -> bool:
        """Whether the physics has blown up in this episode."""
        ...

    def begin(self, seed: int) -> None:
        """Begins the episode that the peer itself begins with that seed."""

    def advance(self, action: Vector) -> None:
        """Applies joint targets (J,) of the contract for one control period."""

    def measure(self) -> Measured:
        """Returns the joints of now."""
        ...

    def close(self) -> None:
        """Gives the physics back."""
