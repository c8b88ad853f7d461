"""Grippers that open fully or close with limited force, beside any action space of the arms."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stringline.datasets.contract.argument_checks import SHARE
from stringline.datasets.contract.contract import Contract
from stringline.datasets.loading.gripper_commands import check_openings, with_commands
from stringline.datasets.loading.statistics import QUANTILES, KeyStatistics
from stringline.datasets.store.episode import StoredEpisode
from stringline.policies.action_spaces.space import ActionSpace

OPEN = 1.0
CLOSE = -1.0


class OpenClose(ActionSpace):
    """One number per gripper, 1 to open it and -1 to close it; the arms' numbers stay as they are.

    A closing gripper gets its smallest opening as its target, so it closes until an object or the
    limit of its force stops it: the force belongs to the robot, not to the policy. Commands of
    training data are found in the recorded openings of whole episodes
    (`datasets/loading/gripper_commands.py`).

    A generated number changes the command if it is beyond the hysteresis on the other side; the
    first one of a chunk counts by its sign.
    """

    name = "open_close"
    reads_commands: ClassVar[bool] = True

    def __init__(
        self,
        *,
        contract: Contract,
        arms: ActionSpace,
        closed: float = 0.0,
        opened: float = 1.0,
        hysteresis: float = 0.2,
    ) -> None:
        """Combines gripper commands with an action space.

        Args:
            contract: A contract with absolute openings of grippers.
            arms: The action space of the other numbers.
            closed: Target opening of a closing gripper.
            opened: Target opening of an opening gripper.
            hysteresis: Magnitude of a generated number up to which the command stays, 0 to 1.

        Raises:
            ValueError: The actions contain no absolute opening, or an argument is out of range.
        """
        super().__init__()
        self._places = check_openings(
            contract, "Open and close commands", otherwise="gripper=opening"
        )
        if not 0 <= closed < opened <= 1:
            raise ValueError(
                f"closed is {closed} and opened is {opened}; allowed: 0 <= closed < opened <= 1."
            )
        SHARE.check(hysteresis=hysteresis)
        self._contract = contract
        self.space = arms
        self.dim = arms.dim
        self.openings = arms.openings
        self.arms = arms.arms
        self.positions = arms.positions
        self.closed = closed
        self.opened = opened
        self.hysteresis = hysteresis

    def targets(self, action: Tensor) -> Tensor:
        """Returns the targets of the arms' action space."""
        return self.space.targets(action)

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the numbers of the arms, and 1 or -1 for each gripper."""
        encoded = self.space.relative(targets, observation).clone()
        opening = encoded[..., self.openings] > (self.closed + self.opened) / 2
        encoded[..., self.openings] = torch.where(opening, OPEN, CLOSE).to(encoded.dtype)
        return encoded

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns actions whose openings are `opened` or `closed`."""
        target = torch.where(self._opens(encoded[..., self.openings]), self.opened, self.closed)
        decoded = encoded.clone()
        decoded[..., self.openings] = target.to(encoded.dtype)
        return self.space.decode(decoded, observation)

    def statistics_key(self, chunk: int) -> str:
        """Returns the key of the statistics of chunks of that length."""
        return f"action/{self.space.name}/{self.name}/{chunk}"

    def ranges(self, measured: KeyStatistics) -> KeyStatistics:
        """Returns statistics with which every normaliser leaves commands as they are.

        Raises:
            ValueError: No gripper opens or closes in the data.
        """
        still = measured.min[self.openings] == measured.max[self.openings]
        if still.all():
            names = [self._contract.action[place].name for place in self._places]
            always = ("open" if low > 0 else "closed" for low in measured.min[self.openings])
            got = ", ".join(f"{name} stays {how}" for name, how in zip(names, always, strict=True))
            raise ValueError(
                f"No gripper opens or closes in the data ({got}); allowed for open and close "
                f"commands: data in which one does. Otherwise choose gripper=opening."
            )
        return self._with_normal_commands(self.space.ranges(measured))

    def _with_normal_commands(self, arms: KeyStatistics) -> KeyStatistics:
        """Returns the statistics with a range of commands from `CLOSE` to `OPEN`."""
        normal = {"min": CLOSE, "max": OPEN, "mean": 0.0, "std": 1.0}
        filled = {name: getattr(arms, name).copy() for name in (*normal, "quantiles")}
        for name, value in normal.items():
            filled[name][self.openings] = value
        filled["quantiles"][:, self.openings] = np.sign(np.array(QUANTILES) - 0.5)[:, None]
        return replace(arms, **filled)

    def _actions(self, episode: StoredEpisode) -> NDArray[Any]:
        return with_commands(episode.arrays["action"], self._contract)

    def _opens(self, number: Tensor) -> Tensor:
        """Returns whether grippers open, (B, T, G) bool, for generated numbers."""
        steps = torch.arange(number.shape[-2], device=number.device)[:, None].expand_as(number)
        # The last step up to each one at which the number was beyond the hysteresis.
        beyond = (number.abs() > self.hysteresis) | (steps == 0)
        last = torch.where(beyond, steps, 0).cummax(dim=-2).values
        return number.gather(-2, last) >= 0
