"""Action spaces: the numbers that a policy generates instead of the actions of its contract.

`ActionSpace` is the interface. `ContractActions` leaves the actions of the contract unchanged,
such as absolute joint targets. `RelativeJoints` gives joint targets relative to the measured
joints. `OpenClose` wraps any space: its grippers open fully or close with limited force.
`HeldActions` reads where a robot stands as targets of its contract.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import SHARE, unknown_name
from stringline.datasets.contract.contract import Array, Camera, Contract
from stringline.datasets.embodiments.embodiment_record import embodiment_of
from stringline.datasets.loading.statistics import QUANTILES, KeyStatistics
from stringline.datasets.loading.window_settings import (
    check_openings,
    gripper_places,
    with_commands,
)
from stringline.datasets.loading.windows import window_starts
from stringline.datasets.store.episode import StoredEpisode
from stringline.encoders.positions.precision import without_autocast


class ActionSpace(nn.Module, ABC):
    """Converts actions of the contract to the numbers that a policy generates, and back.

    The contract determines it, so it saves neither weights nor tables.

    Attributes:
        name: Name in the keys of statistics.
        reads: Keys of the observation that it needs.
        reads_commands: Whether the grippers' numbers in its training data are commands, see
            `datasets/loading/window_settings.py`, in place of the recorded openings.
        dim: Generated numbers per action, D.
        openings: Places of the openings of grippers among these numbers.
        arms: Indices of the numbers that move each arm of the contract.
        positions: Those that are the position of each gripper, in metres in the frame of the
            measured one; if None, no numbers are.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("joints/position",)
    reads_commands: ClassVar[bool] = False
    dim: int
    openings: Sequence[int]
    arms: Sequence[Sequence[int]]
    positions: Sequence[Sequence[int]] | None = None

    @abstractmethod
    def targets(self, action: Tensor) -> Tensor:
        """Returns the targets (..., E) of actions (..., A), without the observation.

        This is the expensive part of `encode`.
        """

    @abstractmethod
    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets (B, T, E) relative to B observations, (B, T, D)."""

    @abstractmethod
    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the actions (B, T, A) of generated numbers (B, T, D) after B observations."""

    def encode(self, action: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns actions (B, T, A) of the contract as numbers to generate, (B, T, D).

        The observation contains the keys `reads`, with a batch axis.
        """
        with without_autocast(action):
            return self.relative(self.targets(action), observation)

    def statistics_key(self, chunk: int) -> str:
        """Returns the key of the statistics of chunks of that length."""
        return f"action/{self.name}/{chunk}"

    def window_rows(
        self, cameras: Sequence[Camera], chunk: int, episode: StoredEpisode
    ) -> NDArray[Any]:
        """Returns all numbers to generate in the windows of an episode, (n, D), for statistics.

        The images of the cameras of the policy determine where windows begin; the episode contains
        the keys `reads`.
        """
        _, rows, inside = self.window_numbers(cameras, chunk, episode)
        return rows[inside].numpy()

    def window_numbers(
        self, cameras: Sequence[Camera], chunk: int, episode: StoredEpisode
    ) -> tuple[Array, Tensor, Tensor]:
        """Returns the windows of an episode, without images; see `window_rows`.

        Returns:
            The first steps (n,) of the windows, the numbers to generate (n, T, D), and whether the
            episode contains them, (n, T) bool; the others have no meaning.
        """
        starts = window_starts(episode, cameras, every_step=False)
        ahead = starts[:, None] + np.arange(chunk)
        inside = ahead < episode.steps
        rows = self._rows(episode, starts, np.where(inside, ahead, 0))
        return starts, rows, torch.from_numpy(inside)

    def _rows(self, episode: StoredEpisode, starts: Array, steps: Array) -> Tensor:
        """Returns the numbers (S, n, D) of the actions at steps (S, n) for windows at `starts`."""
        observation = {
            key: torch.from_numpy(np.array(episode.arrays[key][starts])) for key in self.reads
        }
        targets = self.targets(torch.from_numpy(self._actions(episode)))
        return self.relative(targets[torch.from_numpy(steps)], observation)

    def ranges(self, measured: KeyStatistics) -> KeyStatistics:
        """Returns the statistics that normalise the numbers, given those of `window_rows`."""
        return measured

    def _actions(self, episode: StoredEpisode) -> NDArray[Any]:
        """Returns the actions (T, A) of an episode as training windows have them."""
        return np.array(episode.arrays["action"])


class ContractActions(ActionSpace):
    """The actions of the contract, such as absolute joint targets, unchanged."""

    name = "contract"
    reads = ()

    def __init__(self, *, contract: Contract) -> None:
        super().__init__()
        self.dim = len(contract.action)
        self.openings = gripper_places(contract)
        self.arms = dimensions_of_arms(contract)

    def targets(self, action: Tensor) -> Tensor:
        """Returns the actions unchanged."""
        return action

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the targets unchanged."""
        return targets

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the generated numbers unchanged."""
        return encoded

    def statistics_key(self, chunk: int) -> str:
        """Returns the key of the actions, which is independent of the chunk."""
        return "action"


def dimensions_of_arms(contract: Contract) -> list[list[int]]:
    """Returns the indices of the dimensions of an action that move each arm of the contract."""
    return [
        [index for index, dimension in enumerate(contract.action) if dimension.arm == arm]
        for arm in contract.arms
    ]


ActionSpaceFactory = Callable[..., ActionSpace]
"""Makes an action space, given the `contract`, such as the classes of this folder."""


class RelativeJoints(ActionSpace):
    """Targets of revolute joints relative to the measured positions; grippers stay absolute.

    All actions of a chunk are relative to the same measurement (like the poses in UMI, Chi et al.,
    RSS 2024, arXiv 2402.10329), so errors do not accumulate. Decoded targets are clipped to the
    joint limits if the embodiment is known (`datasets/embodiments/embodiment_record.py`).
    """

    name = "relative_joints"
    revolute: Tensor
    joint: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(self, *, contract: Contract) -> None:
        super().__init__()
        self.dim = len(contract.action)
        self.openings = gripper_places(contract)
        self.arms = dimensions_of_arms(contract)
        for dimension in contract.action:
            if dimension.kind not in ("joint", "gripper") or dimension.mode != "absolute":
                raise ValueError(
                    f"Action {dimension.name!r} is a {dimension.mode} {dimension.kind} target; "
                    f"allowed for relative joints: absolute joint and gripper targets."
                )
            if dimension.kind == "joint" and dimension.name not in contract.joints:
                raise unknown_name("measured joint for the action", dimension.name, contract.joints)
        revolute = [dimension.kind == "joint" for dimension in contract.action]
        joint = [
            contract.joints.index(each.name) if each.kind == "joint" else 0
            for each in contract.action
        ]
        low, high = _joint_limits(contract)
        for name, table in {
            "revolute": revolute,
            "joint": joint,
            "lower": low,
            "upper": high,
        }.items():
            self.register_buffer(name, torch.tensor(table), persistent=False)

    def targets(self, action: Tensor) -> Tensor:
        """Returns the actions unchanged."""
        return action

    def relative(self, targets: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets minus measured positions."""
        return targets - self._start(targets, observation)

    def decode(self, encoded: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns targets within the limits of the joints."""
        action = encoded + self._start(encoded, observation)
        return torch.minimum(
            torch.maximum(action, self.lower.to(action.dtype)), self.upper.to(action.dtype)
        )

    def _start(self, like: Tensor, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the origin of each dimension, (B, 1, A), zero for grippers."""
        measured = observation["joints/position"].to(like.dtype)[:, self.joint]
        return torch.where(self.revolute, measured, torch.zeros_like(measured))[:, None]


def _joint_limits(contract: Contract) -> tuple[list[float], list[float]]:
    """Returns lowest and highest targets, (A,) each; infinite for grippers."""
    embodiment = embodiment_of(contract)
    revolute = (
        {joint.name: joint for joint in embodiment.joints if joint.kind == "revolute"}
        if embodiment
        else {}
    )
    limits = [revolute.get(dimension.name) for dimension in contract.action]
    return [one.lower if one else -np.inf for one in limits], [
        one.upper if one else np.inf for one in limits
    ]


OPEN = 1.0
CLOSE = -1.0


class OpenClose(ActionSpace):
    """One number per gripper, 1 to open it and -1 to close it; the arms' numbers stay as they are.

    A closing gripper gets its smallest opening as its target, so it closes until an object or the
    limit of its force stops it: the force belongs to the robot, not to the policy. Commands of
    training data are found in the recorded openings of whole episodes
    (`datasets/loading/window_settings.py`).

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
            closed: Target opening of a closing gripper; an object or the limit of its force stops
                it before.
            opened: Target opening of an opening gripper; less where open fingers would touch
                something.
            hysteresis: Magnitude of a generated number (-1 closes, 1 opens) up to which the command
                stays.

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


_GRIPPER = "gripper"


def can_hold(contract: Contract) -> bool:
    """Returns whether actions can hold a robot: absolute targets of measured joints and grippers.

    A gripper need not be measured.
    """
    arms = [each for each in contract.action if each.kind != _GRIPPER]
    return (
        bool(arms)
        and all(each.kind == "joint" and each.name in contract.joints for each in arms)
        and all(each.mode == "absolute" for each in contract.action)
    )


class HeldActions(nn.Module):
    """Reads the measured joints of an observation as an action."""

    joint: Tensor
    measured: Tensor

    def __init__(self, contract: Contract) -> None:
        """Finds the joint of each dimension of an action.

        Raises:
            ValueError: Actions of the contract cannot hold the robot; see `can_hold`.
        """
        super().__init__()
        if not can_hold(contract):
            raise ValueError(
                "Actions of this contract cannot hold the measured joints; allowed: absolute "
                "targets of measured joints, and of grippers."
            )
        names = [each.name for each in contract.action]
        known = [name in contract.joints for name in names]
        joints = [contract.joints.index(name) if name in contract.joints else 0 for name in names]
        self.register_buffer("joint", torch.tensor(joints), persistent=False)
        self.register_buffer("measured", torch.tensor(known), persistent=False)

    def forward(self, observation: Mapping[str, Tensor]) -> Tensor:
        """Returns the actions (B, A) of B observations, from `joints/position` (B, J).

        The opening of a gripper without a measurement is 0.
        """
        held = observation["joints/position"][:, self.joint]
        return torch.where(self.measured, held, torch.zeros_like(held))
