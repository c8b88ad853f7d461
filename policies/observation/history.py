"""How far a policy looks back, and what a session keeps for that."""

import logging
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from torch import nn

from stringline.datasets.contract.arguments import NOT_NEGATIVE, POSITIVE, SHARE
from stringline.datasets.contract.contract import Array, Observation
from stringline.encoders.positions.initialisation import check_wavelengths

logger = logging.getLogger(__name__)


class ObservationHistory(nn.Module):
    """Which moments of the past a memory takes besides the present.

    Each of them brings a token for every gripper, where it was then, and, if asked for, the patches
    of all cameras, where they were then; time is an axis of their places. What there is no
    observation of, as at the start of an episode, is absent: its tokens tell nobody anything.
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
        """Keeps the choice.

        Args:
            ages_s: How long ago each moment was. Policies look when they plan, so these are to be
                multiples of the time between two plans.
            wavelengths_s: Shortest and longest on the axis of time at the start; they are learned
                where those of space are.
            images: Whether to look at the images of the past too.
            dropout: Share of the training examples whose past is hidden. A history tells so well
                what the demonstrator would do next that a policy may stop to look (de Haan et al.,
                Causal Confusion in Imitation Learning, NeurIPS 2019).
            tolerance_s: How much older or younger than asked for an observation may be; its own
                time is what counts.

        Raises:
            ValueError: There is no age, one is not above 0 or comes twice, or another number is out
                of range.
        """
        super().__init__()
        self.ages_s = tuple(sorted((float(age) for age in ages_s), reverse=True))
        if (
            not self.ages_s
            or any(age not in POSITIVE for age in self.ages_s)
            or len(set(self.ages_s)) < len(self.ages_s)
        ):
            raise ValueError(
                f"ages_s is {list(ages_s)}; allowed: different times above 0, in seconds, at "
                f"least one."
            )
        check_wavelengths(**{"history.wavelengths_s": wavelengths_s})
        SHARE.check(**{"history.dropout": dropout})
        NOT_NEGATIVE.check(**{"history.tolerance_s": tolerance_s})
        self.wavelengths_s = (float(wavelengths_s[0]), float(wavelengths_s[1]))
        self.images = images
        self.dropout = dropout
        self.tolerance_s = tolerance_s

    def steps(self, control_hz: float) -> tuple[int, ...]:
        """Returns the same as steps of an episode, the farthest first.

        Raises:
            ValueError: An age is less than half a step, or two fall on the same step.
        """
        steps = tuple(round(age * control_hz) for age in self.ages_s)
        if min(steps) < 1 or len(set(steps)) < len(steps):
            raise ValueError(
                f"ages_s {list(self.ages_s)} are {list(steps)} steps at {control_hz:g} Hz; "
                f"allowed: different steps from 1."
            )
        return steps


class PastObservations:
    """What a session has seen so far, as far back as its policy looks."""

    def __init__(self, history: ObservationHistory, keys: Sequence[str]) -> None:
        """Starts with nothing.

        Args:
            history: Which moments are asked for.
            keys: What of an observation is kept, `time` included.
        """
        self._history = history
        self._keys = tuple(keys)
        self._seen = deque[Mapping[str, Array]]()
        self._first_s: float | None = None
        self._warned = False

    def before(self, observation: Observation) -> dict[str, Array]:
        """Returns what was at the ages before an observation, and keeps that one.

        Args:
            observation: The next one; later than all before it.

        Returns:
            `past/<key>` (K, ...), the farthest first, and `past_mask` (K,) bool, False where
            nothing was seen then and the observation itself stands in its place.

        Raises:
            ValueError: The observation is not later than the one before.
        """
        now = float(observation["time"])
        if self._seen and not now > float(self._seen[-1]["time"]):
            raise ValueError(
                f"An observation of {now} s came after one of {float(self._seen[-1]['time'])} s; "
                f"a policy with a history needs "
                "them in order, and a new session for each episode."
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
        """Returns what was seen at a time; says once if it should have been and was not."""
        tolerance = self._history.tolerance_s + 1e-9  # Times are sums of rounded periods.
        nearest = min(self._seen, key=lambda each: abs(float(each["time"]) - time), default=None)
        if nearest is not None and abs(float(nearest["time"]) - time) <= tolerance:
            return nearest
        if self._first_s is not None and self._first_s <= time + tolerance and not self._warned:
            self._warned = True
            logger.warning(
                (
                    "The policy looks back %s s, but it was not asked about %.3f s; plan at times "
                    "that are that far apart."
                ),
                list(self._history.ages_s),
                time,
            )
        return None
