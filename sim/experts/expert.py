"""The interface of experts."""

from typing import Protocol, TypeVar

import numpy as np

from stringline.datasets.embodiments.embodiment import Vector
from stringline.sim.rollout.world_interface import World

WorldT = TypeVar("WorldT", bound=World, contravariant=True)


class Expert(Protocol[WorldT]):
    """Controls the robot of a world whose true state it sees."""

    def reset(self, env: WorldT, rng: np.random.Generator) -> None:
        """Begins an episode that `env` has just begun; `rng` makes episodes vary."""

    def act(self, env: WorldT) -> Vector:
        """Returns the next action (J,).

        Raises:
            OutOfReachError: A pose on the expert's way is out of reach.
        """
        ...
