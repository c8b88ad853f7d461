"""The interface of observation encoders, the tokens that they return, and the history they read.

An `ObservationHistory` says which past observations an encoder reads; `PastObservations` stores
them in a session.
"""

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stringline.datasets.contract.argument_checks import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    check_ordered,
)
from stringline.datasets.contract.contract import (
    NOTHING_SAID,
    Array,
    Camera,
    Observation,
    instruction_number,
)
from stringline.datasets.loading.workspace_clouds import CloudMaker
from stringline.encoders.positions.precision import values_are_hidden
from stringline.policies.networks.inputs import TokenPlaces

logger = logging.getLogger(__name__)


class ObservationHistory(nn.Module):
    """The past times whose observations an encoder reads besides the present one.

    Each past observation adds one token per gripper, at its position then, and optionally the
    patches of all cameras, at their positions then; time is an axis of the positions. If an
    observation is missing, as at the start of an episode, its tokens are absent and have no effect.
    """

    def __init__(
        self,
        ages_s: Sequence[float],
        *,
        wavelengths_s: tuple[float, float] = (0.2, 8.0),
        images: bool = False,
        dropout: float = 0.0,
        tolerance_s: float = 0.05,
    ) -> None:
        """Sets the past times.

        Args:
            ages_s: Ages of the observations. Policies observe when they plan, so ages should be
                multiples of the time between two plans.
            wavelengths_s: Shortest and longest initial wavelength of the time axis; learned if
                those of space are.
            images: If True, the patches of all cameras at these times, too.
            dropout: Share of the training examples whose past is hidden. A history predicts the
                demonstrator's actions so well that a policy may stop using images (de Haan et al.,
                Causal Confusion in Imitation Learning, NeurIPS 2019).
            tolerance_s: Tolerated deviation of the age of an observation; its own time is used.
        """
        super().__init__()
        self.ages_s = tuple(sorted((float(age) for age in ages_s), reverse=True))
        if (
            not self.ages_s
            or any(age not in POSITIVE for age in self.ages_s)
            or len(set(self.ages_s)) < len(self.ages_s)
        ):
            raise ValueError(
                f"ages_s is {list(ages_s)}; allowed: at least one, different times above 0, in "
                f"seconds."
            )
        check_ordered(**{"history.wavelengths_s": wavelengths_s})
        SHARE.check(**{"history.dropout": dropout})
        NOT_NEGATIVE.check(**{"history.tolerance_s": tolerance_s})
        self.wavelengths_s = (float(wavelengths_s[0]), float(wavelengths_s[1]))
        self.images = images
        self.dropout = dropout
        self.tolerance_s = tolerance_s

    def steps(self, control_hz: float) -> tuple[int, ...]:
        """Returns the ages as steps of an episode, the oldest first."""
        steps = tuple(round(age * control_hz) for age in self.ages_s)
        if min(steps) < 1 or len(set(steps)) < len(steps):
            raise ValueError(
                f"ages_s {list(self.ages_s)} are {list(steps)} steps at {control_hz:g} Hz; "
                f"allowed: different steps from 1."
            )
        return steps


class PastObservations:
    """The observations of a session, as far back as its policy reads."""

    def __init__(self, history: ObservationHistory, keys: Sequence[str]) -> None:
        """Starts without observations; `keys`, with `time`, are those to store."""
        self._history = history
        self._keys = tuple(keys)
        self._seen = deque[Mapping[str, Array]]()
        self._first_s: float | None = None
        self._warned = False

    def before(self, observation: Observation) -> dict[str, Array]:
        """Returns the observations at the ages before an observation, and stores that one.

        Args:
            observation: The next observation, later than all before it.

        Returns:
            `past/<key>` (K, ...), the oldest first, and `past_mask` (K,) bool, False for missing
            observations, which are replaced by the present one.
        """
        now = float(observation["time"])
        if self._seen and not now > float(self._seen[-1]["time"]):
            raise ValueError(
                f"An observation of {now} s follows one of {float(self._seen[-1]['time'])} s; a "
                f"policy with a history needs rising times and a new session for each episode."
            )
        self._first_s = now if self._first_s is None else self._first_s
        oldest = now - self._history.ages_s[0] - self._history.tolerance_s
        while self._seen and float(self._seen[0]["time"]) < oldest:
            self._seen.popleft()
        found = [self._nearest(now - age) for age in self._history.ages_s]
        current = {key: np.asarray(observation[key]) for key in self._keys}
        self._seen.append({key: value.copy() for key, value in current.items()})
        past = {
            f"past/{key}": np.stack([(each or current)[key] for each in found])
            for key in self._keys
        }
        return past | {"past_mask": np.array([each is not None for each in found])}

    def _nearest(self, time: float) -> Mapping[str, Array] | None:
        """Returns the observation at a time; warns once if it is missing within the episode."""
        tolerance = self._history.tolerance_s + 1e-9  # Times are sums of rounded periods.
        nearest = min(self._seen, key=lambda each: abs(float(each["time"]) - time), default=None)
        if nearest is not None and abs(float(nearest["time"]) - time) <= tolerance:
            return nearest
        if self._first_s is not None and self._first_s <= time + tolerance and not self._warned:
            self._warned = True
            logger.warning(
                "The policy reads observations of %s s ago, but lacks that of %.3f s; plan at "
                "intervals that divide these ages.",
                list(self._history.ages_s),
                time,
            )
        return None


@dataclass(frozen=True)
class ConditioningTokens:
    """Encoded observations, which the generation of chunks is conditioned on.

    Attributes:
        tokens: (B, N, dim).
        present: (B, N) bool, False for tokens without meaning, such as those of cameras that an
            example lacks; if None, all tokens are present.
        places: Places of the tokens and of the grippers; if None, they have none in metres.
        arms: Number of tokens at the end that belong to the arms, one for each; 0: none does.
        state: (B, S) joints and velocities, and a mark of examples in which they are hidden, for
            networks that read them beside the tokens; if None, the tokens contain the joints.
    """

    tokens: Tensor
    present: Tensor | None = None
    places: TokenPlaces | None = None
    arms: int = 0
    state: Tensor | None = None

    def clone(self) -> "ConditioningTokens":
        """Returns a copy of all tensors."""
        return ConditioningTokens(
            self.tokens.clone(),
            None if self.present is None else self.present.clone(),
            None if self.places is None else self.places.clone(),
            self.arms,
            None if self.state is None else self.state.clone(),
        )


class Instruction(nn.Module, ABC):
    """Converts numbers of texts (`datasets/contract/contract.py`) into tokens.

    Attributes:
        names: The known texts, in the order of their parameters.
        rows: Name of the tensor with a row for each of them.
    """

    rows: ClassVar[str]

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        if not self.names or len(set(self.names)) < len(self.names) or "" in self.names:
            raise ValueError(
                f"The known instructions are {list(names)}; allowed: at least one, different "
                f"texts. They come from the episodes; stringline-data relabel adds them."
            )
        self._numbers = [instruction_number(name) for name in self.names]

    def number(self, text: str | None) -> int:
        """Returns the number of a text for `forward`; empty: no instruction.

        None, a missing instruction, is valid if only one text is known.
        """
        if text is None and len(self.names) == 1:
            return self._numbers[0]
        if text is None:
            raise ValueError(
                "This policy needs an instruction: add the key 'instruction' to observations. "
                f"Known instructions: {', '.join(self.names)}."
            )
        number = instruction_number(text)
        if number not in (NOTHING_SAID, *self._numbers):
            self._add(text)
        return number

    def forward(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Returns tokens (B, 1, dim) of numbers (B,) int64, 0 without an instruction.

        The second tensor, (B, 1) bool, is True for examples with an instruction.
        """
        known = torch.tensor(self._numbers).to(numbers.device, non_blocking=True)
        same = numbers[:, None] == known
        present = numbers[:, None] != NOTHING_SAID
        if not values_are_hidden(numbers) and not bool((same.any(dim=1) | ~present[:, 0]).all()):
            raise ValueError(
                f"An example has an unknown instruction. Known instructions: "
                f"{', '.join(self.names)}."
            )
        return self._tokens()[same.to(torch.uint8).argmax(dim=1)][:, None], present

    @abstractmethod
    def _tokens(self) -> Tensor:
        """Returns a token per known text, (texts, dim)."""

    @abstractmethod
    def _add(self, text: str) -> None:
        """Adds an unknown text; raises a ValueError if that is impossible."""


class ObservationEncoderInterface(Protocol):
    """An encoder of observations, a `torch.nn.Module`.

    Attributes:
        dim: Width of its tokens.
        cameras: The cameras that it reads, without depth and geometry if it does not need them.
        history: The past observations that it reads; if None, only the present.
        instruction: Its encoder of instructions; if None, it needs no instruction.
    """

    dim: int
    cameras: tuple[Camera, ...]
    history: ObservationHistory | None
    instruction: Instruction | None

    @property
    def keys(self) -> list[str]:
        """The keys of the contract that it reads from the present observation."""
        ...

    @property
    def past_keys(self) -> list[str]:
        """The keys of the contract that it reads from each past observation."""
        ...

    def __call__(self, observation: Mapping[str, Tensor]) -> ConditioningTokens:
        """Encodes a batch: at least `keys`, each with a leading batch axis."""
        ...


@runtime_checkable
class CloudEncoder(Protocol):
    """An observation encoder for which windows of chunks contain point clouds, not images.

    Attributes:
        clouds: Makes the clouds.
    """

    clouds: CloudMaker


@dataclass(frozen=True)
class AttentionMap:
    """Patches that have a position, with colours and the attention of each arm.

    Attributes:
        points: (P, 3), metres in the base frame.
        colours: (P, 3) uint8, mean colour of the patch.
        weights: (arms, P), share of each arm's attention; the rest is on other tokens.
        arms: Names of the arms.
        images: (arms, rows, columns) by camera: the share of each patch, also of those without a
            position.
    """

    points: NDArray[np.float32]
    colours: NDArray[np.uint8]
    weights: NDArray[np.float32]
    arms: tuple[str, ...]
    images: Mapping[str, NDArray[np.float32]]


@runtime_checkable
class TracesAttention(Protocol):
    """An observation encoder whose attention can be traced back to image patches."""

    def attention_map(self, observation: Mapping[str, Tensor]) -> AttentionMap:
        """Returns the attention of the arms' tokens for a batch of one, with `keys`."""
        ...


def state_width(encoder: ObservationEncoderInterface) -> int:
    """Returns the numbers of `ConditioningTokens.state` of an encoder, S; 0: it returns none."""
    return int(getattr(encoder, "state_dim", 0))


ObservationEncoderFactory = Callable[..., ObservationEncoderInterface]
"""Makes an observation encoder, given `contract` and `statistics`."""
