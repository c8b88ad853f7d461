"""Rules that a chunk must satisfy before it is followed. The first rule that it breaks decides."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stringline.policies.chunks.chunk import ActionChunk
from stringline.real_robot.ipc.heartbeat import is_age
from stringline.real_robot.safety.limits import SafetyLimits
from stringline.real_robot.safety.reasons import Reason


@dataclass(frozen=True)
class Arrival:
    """A received chunk, not yet checked.

    Attributes:
        session: Episode number of its sender.
        wanted_session: Number of the current episode.
        now: Time of its arrival, seconds.
        image_age_s: Age of the oldest image of the observation; 0 without images, or if unknown.
        observed_s: Time of the observation; None: the time of the first action.
    """

    chunk: ActionChunk
    session: int
    wanted_session: int
    now: float
    image_age_s: float = 0.0
    observed_s: float | None = None

    @property
    def observed(self) -> float:
        """Time of the observation, seconds."""
        return float(self.chunk.time[0]) if self.observed_s is None else self.observed_s


ChunkRule = Callable[[Arrival, SafetyLimits], Reason]


def right_shape(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that actions have an entry for each joint."""
    return Reason(0) if arrival.chunk.action.shape[1:] == limits.lower.shape else Reason.BAD_CHUNK


def finite(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that actions and times are finite."""
    good = (
        np.isfinite(arrival.chunk.action).all()
        and np.isfinite(arrival.chunk.time).all()
        and np.isfinite(arrival.observed)
    )
    return Reason(0) if good else Reason.BAD_CHUNK


def ordered(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that each action is due after the one before it."""
    times = arrival.chunk.time
    return Reason(0) if (times[1:] > times[:-1]).all() else Reason.BAD_CHUNK


def of_this_episode(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that the chunk was planned in this episode: after a reset the world is another one."""
    return Reason(0) if arrival.session == arrival.wanted_session else Reason.BAD_CHUNK


def not_from_the_future(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks that the observation is not later than the local clock allows."""
    latest = max(float(arrival.chunk.time[0]), arrival.observed)
    return Reason(0) if latest <= arrival.now + limits.oldest_plan_s else Reason.BAD_CHUNK


def fresh_observation(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks the age of the observation, however long the inference took."""
    return Reason(0) if arrival.now - arrival.observed <= limits.oldest_plan_s else Reason.OLD_PLAN


def fresh_images(arrival: Arrival, limits: SafetyLimits) -> Reason:
    """Checks the age of the images, so that a frozen camera is not acted upon."""
    fresh = is_age(arrival.image_age_s) and arrival.image_age_s <= limits.oldest_image_s
    return Reason(0) if fresh else Reason.OLD_IMAGES
