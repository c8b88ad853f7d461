"""Rules that a chunk must keep before anything of it is followed.

The first that is broken decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason


@dataclass(frozen=True)
class Arrival:
    """A chunk as it came in.

    Attributes:
        chunk: Not looked at yet.
        session: Of whoever sent it.
        wanted_session: Of the episode.
        now: Time of its arrival, seconds.
        image_age_s: How old the oldest image was when the observation was made; 0 if there was none
            or nobody says.
        observed_s: When the observation was made; None: when the first action is due.
    """

    chunk: ActionChunk
    session: int
    wanted_session: int
    now: float
    image_age_s: float = 0.0
    observed_s: float | None = None

    @property
    def observed(self) -> float:
        """When the observation was made, seconds."""
        return float(self.chunk.time[0]) if self.observed_s is None else self.observed_s


ChunkRule = Callable[[Arrival, SafetyLimits], Reason]


def right_shape(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Actions are for this body."""
    return Reason(0) if arrival.chunk.action.shape[1:] == limits.lower.shape else Reason.BAD_CHUNK


def finite(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Nothing in it is infinite or no number."""
    good = (
        np.isfinite(arrival.chunk.action).all()
        and np.isfinite(arrival.chunk.time).all()
        and np.isfinite(arrival.observed)
    )
    return Reason(0) if good else Reason.BAD_CHUNK


def ordered(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Each action is due after the one before it."""
    return (
        Reason(0) if (arrival.chunk.time[1:] > arrival.chunk.time[:-1]).all() else Reason.BAD_CHUNK
    )


def of_this_episode(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """It was planned in this episode: after a reset, old plans are of another world."""
    return Reason(0) if arrival.session == arrival.wanted_session else Reason.BAD_CHUNK


def not_from_the_future(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """It answers an observation that has been made, by a clock that agrees with ours."""
    latest = max(float(arrival.chunk.time[0]), arrival.observed)
    return Reason(0) if latest <= arrival.now + limits.oldest_plan_s else Reason.BAD_CHUNK


def fresh_observation(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """It answers what was seen not long ago, however long the answer took."""
    return Reason(0) if arrival.now - arrival.observed <= limits.oldest_plan_s else Reason.OLD_PLAN


def fresh_images(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """It was planned from what cameras see, not from what they saw before they froze."""
    return Reason(0) if arrival.image_age_s <= limits.oldest_image_s else Reason.OLD_IMAGES
