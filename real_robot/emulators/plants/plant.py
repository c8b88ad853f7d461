"""What an emulated robot moves: the face of every world behind the servos, and the simplest one."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stringline.datasets.contract.contract import Array
from stringline.datasets.embodiments.embodiment import Embodiment
from stringline.real_robot.emulators.plants.test_pattern import Cards

Vector = NDArray[np.float64]

_FROM_CAMERAS = ("rgb/", "depth/", "intrinsics/", "time/")


def from_cameras(seen: Mapping[str, Array]) -> dict[str, Array]:
    """Returns what real cameras tell of all that an observation holds: where they are, somebody has to measure."""
    return {key: value for key, value in seen.items() if key.startswith(_FROM_CAMERAS)}


class Plant(Protocol):
    """Joints that follow targets. Vectors are (J,) in the order and units of the embodiment."""

    @property
    def period_s(self) -> float:
        """Seconds that `advance` takes the world on."""
        ...

    def begin(self, seed: int, options: Mapping[str, float]) -> None:
        """Begins an episode."""
        ...

    def advance(self, target: Vector) -> None:
        """Drives the joints towards the targets for one period."""
        ...

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and efforts."""
        ...

    def frames(self) -> dict[str, Array]:
        """Returns the latest images: `rgb/`, `depth/`, `intrinsics/` and `time/` of each camera, by the plant's clock."""
        ...

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns `success`, `stage`, `stage_name`, `time` (seconds in this episode) and `expired`."""
        ...

    def close(self) -> None:
        """Frees what it holds."""
        ...


class FirstOrderPlant:
    """Joints that approach their targets exponentially: no contact, no gravity; cameras see cards with a number.

    Args:
        embodiment: The body.
        period_s: Of one step.
        time_constant_s: In which a joint covers 63 % of the way.
        time_limit_s: When an episode expires.
        cards: What its cameras see, if it has any.
    """

    def __init__(
        self,
        embodiment: Embodiment,
        *,
        period_s: float = 0.01,
        time_constant_s: float = 0.05,
        time_limit_s: float = 15.0,
        cards: Cards | None = None,
    ) -> None:
        self._cards = cards
        self._home = embodiment.home
        self.period_s = period_s
        self._time_limit_s = time_limit_s
        self._share = 1 - np.exp(-period_s / time_constant_s)
        self._position = self._home.copy()
        self._velocity = np.zeros_like(self._home)
        self._steps = 0

    def begin(self, seed: int, options: Mapping[str, float]) -> None:
        """Puts the joints at home, whatever the seed; there are no options."""
        if options:
            raise ValueError(f"The first-order plant has no options; got {', '.join(options)}.")
        self._position = self._home.copy()
        self._velocity = np.zeros_like(self._home)
        self._steps = 0

    def advance(self, target: Vector) -> None:
        """Covers a fixed share of the way to the targets."""
        before = self._position
        self._position = before + self._share * (target - before)
        self._velocity = (self._position - before) / self.period_s
        self._steps += 1

    def measure(self) -> tuple[Vector, Vector, Vector]:
        """Returns positions, velocities and no efforts."""
        return self._position, self._velocity, np.zeros_like(self._position)

    def frames(self) -> dict[str, Array]:
        """Returns the cards of this time."""
        return {} if self._cards is None else self._cards.at(self._steps * self.period_s)

    def outcome(self) -> dict[str, bool | int | float | str]:
        """Returns that nothing was achieved yet."""
        time = self._steps * self.period_s
        return {
            "success": False,
            "stage": 0,
            "stage_name": "start",
            "time": time,
            "expired": time >= self._time_limit_s - 1e-9,
        }

    def close(self) -> None:
        """Holds nothing."""
