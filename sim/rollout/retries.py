"""Episodes whose process died: they are run again, but not for ever."""

import logging
from collections import Counter

logger = logging.getLogger(__name__)

MOST_LOSSES = 3


class Losses:
    """Counts them for each episode."""

    def __init__(self) -> None:
        """Nothing is lost yet."""
        self._count = Counter[int]()

    def again(self, seed: int, reason: str) -> bool:
        """Says whether to run an episode again, and logs why.

        Args:
            seed: Of the episode.
            reason: What became of its process, a sentence.
        """
        self._count[seed] += 1
        if self._count[seed] < MOST_LOSSES:
            logger.warning("Seed %d: %s The episode is run again.", seed, reason)
            return True
        logger.error(
            "Seed %d: %s That happened %d times; the episode counts as failed.",
            seed,
            reason,
            MOST_LOSSES,
        )
        return False
